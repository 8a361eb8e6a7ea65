"""`edit` and `denoise`: other words in a recording, holes and bursts of noise filled in, and the rest untouched."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from madrigal.errors import UserError
from madrigal.verbs.following import Bf16, CondScale, Method, Steps, Sway, followed
from madrigal.verbs.say import read_text
from madrigal.verbs.sounding import PIPE, check_out
from madrigal.verbs.terminal import Bar, Device, Json, Overwrite, print_json

if TYPE_CHECKING:
    from madrigal.voicebox.editing import Edited, Editor
    from madrigal.voicebox.mending import Sound

Source = Annotated[Path, typer.Argument(help="An audio file of any rate, with any number of channels.")]
Run = Annotated[
    Path | None,
    typer.Option("--run", help="A voicebox run or an exported voice; default: the voice that comes with madrigal."),
]
Transcript = Annotated[
    str | None, typer.Option("--text", help="What is said in the recording; default: a .txt beside it.")
]
Target = Annotated[Path, typer.Option("--out", "-o", help="The audio file to write: wav or flac keep every sample.")]
Seed = Annotated[int, typer.Option(min=0, help="The same seed makes the same.")]


def edit(
    source: Source,
    out: Target,
    replace: Annotated[
        tuple[str, str] | None, typer.Option("--replace", help="Words that are said, and those to be said instead.")
    ] = None,
    fill: Annotated[
        str | None, typer.Option("--fill", help="Seconds to make anew: 1.2-1.9, or several: 1-2,3-3.5.")
    ] = None,
    text: Transcript = None,
    run: Run = None,
    seed: Seed = 0,
    steps: Steps = None,
    method: Method = None,
    cond_scale: CondScale = None,
    sway: Sway = None,
    bf16: Bf16 = None,
    device: Device = "cpu",
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Change what is said in a recording, or make a part of it anew; all the rest stays, sample for sample.

    To replace words the text has to be known; without one a recogniser listens, if one is installed.

    Example: `madrigal edit in.wav --replace "five o'clock" "noon" -o out.wav`
    """
    if (replace is None) == (fill is None):
        raise UserError('Say what to do: --replace "old words" "new words", or --fill 1.2-1.9.')
    editor, sound = _opened(source, out, run, seed, device, overwrite, [steps, method, cond_scale, sway, bf16])
    known = _transcript(source, text)
    if replace is not None:
        known = known or _recognised(sound, source)
        words, instead = replace
        done = _at_work("Editing", lambda: editor.replace(sound, str(known), words, instead))
    else:
        done = _at_work("Filling", lambda: editor.fill(sound, _spans(fill or "", "--fill"), known, str(source)))
    _tell(done, out, seed, as_json)


def denoise(
    source: Source,
    out: Target,
    spans: Annotated[
        str | None,
        typer.Option("--spans", help="Where the noise is, in seconds: 1.2-1.9,3-3.5; default: it is looked for."),
    ] = None,
    text: Transcript = None,
    run: Run = None,
    seed: Seed = 0,
    steps: Steps = None,
    method: Method = None,
    cond_scale: CondScale = None,
    sway: Sway = None,
    bf16: Bf16 = None,
    device: Device = "cpu",
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Take bursts of noise out of a recording, and say again what they drowned; the rest stays, sample for sample.

    With the text of the recording it says what was said there, without it what may have been.

    Example: `madrigal denoise in.wav -o out.wav`
    """
    from madrigal.voicebox.bursts import find_bursts

    editor, sound = _opened(source, out, run, seed, device, overwrite, [steps, method, cond_scale, sway, bf16])
    rate = editor.speech.sample_rate
    places = find_bursts(sound.mono(rate), rate) if spans is None else _spans(spans, "--spans")
    if not places:
        typer.echo("No burst of noise was found: the recording stays as it is.", err=True)
    known = _transcript(source, text)
    _tell(_at_work("Denoising", lambda: editor.fill(sound, places, known, str(source))), out, seed, as_json)


def _opened(
    source: Path, out: Path, run: Path | None, seed: int, device: str, overwrite: bool, how: list[Any]
) -> "tuple[Editor, Sound]":
    """What is wrong with the files is told before the model is loaded."""
    if source.is_dir():
        raise UserError(f"{source} is a folder; name one audio file of it.")
    if out == PIPE:
        raise UserError("A mended recording goes into a file: name one with -o.")
    check_out(out, overwrite=overwrite)
    from madrigal.engine.machine import prepare_process
    from madrigal.voicebox.editing import Editor
    from madrigal.voicebox.loading import SHIPPED_VOICE, load_voicebox
    from madrigal.voicebox.mending import Sound

    prepare_process()
    sound = Sound.read(source)
    options = followed(**dict(zip(("steps", "method", "cond_scale", "sway", "bf16"), how, strict=True)))
    speech = load_voicebox(run or SHIPPED_VOICE, device=device)
    return Editor(speech, seed=seed, drawing=speech.drawing.but(**options)), sound


def _spans(text: str, option: str) -> Any:
    from madrigal.voicebox.mending import spans_of

    return spans_of(text, option)


def _transcript(source: Path, text: str | None) -> str | None:
    beside = source.with_suffix(".txt")
    if text is None and beside.is_file():
        text = read_text(beside)
    return " ".join(text.split()) if text and text.strip() else None


def _recognised(sound: "Sound", source: Path) -> str:
    from madrigal.judge.recognisers import find_recognisers

    found = find_recognisers()
    if not found:
        raise UserError(
            f"Nobody knows what is said in {source}: give its text with --text, or in {source.with_suffix('.txt')}."
        )
    heard = next(iter(found.values())).transcribe(sound.wave().numpy(), sound.rate).strip()
    typer.echo(f"Heard: {heard}", err=True)
    return heard


def _at_work(label: str, work: "Callable[[], Edited]") -> "Edited":
    with Bar(label):
        return work()


def _tell(done: "Edited", out: Path, seed: int, as_json: bool) -> None:
    done.sound.write(out)
    if not as_json:
        typer.echo(str(out))
        return
    print_json(
        {
            "file": str(out),
            "seconds": done.sound.seconds,
            "sample_rate": done.sound.rate,
            "text": done.text,
            "old": [[round(start, 4), round(stop, 4)] for start, stop in done.old],
            "new": [[round(start, 4), round(stop, 4)] for start, stop in done.new],
            "seed": seed,
        }
    )
