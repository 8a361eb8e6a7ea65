"""`edit` and `denoise`: other words in a recording, holes and bursts of noise filled in, and the rest untouched."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from madrigal.errors import UserError
from madrigal.verbs.following import Bf16, CondScale, Method, Steps, Sway, followed
from madrigal.verbs.picture_editing import Expand, Mask, Vary
from madrigal.verbs.picture_editing import edit as edit_picture
from madrigal.verbs.picture_making import PICTURES, ClassName, Negative, PictureSize, is_picture
from madrigal.verbs.sounding import PIPE, check_out
from madrigal.verbs.terminal import Bar, Device, Json, Overwrite, print_json, refuse

if TYPE_CHECKING:
    from madrigal.voicebox.editing import Edited, Editor
    from madrigal.voicebox.mending import Sound

Source = Annotated[Path, typer.Argument(help="An audio file of any rate, with any number of channels.")]
Run = Annotated[
    Path | None,
    typer.Option(
        "--run",
        help="A voicebox run or an exported voice; default: the voice that comes with madrigal. Pictures: a Muse run.",
    ),
]
Transcript = Annotated[
    str | None, typer.Option("--text", help="What is said in the recording; default: a .txt beside it.")
]
Target = Annotated[
    Path,
    typer.Option("--out", "-o", help="The audio file to write: wav keeps every sample, flac those of up to 24 bits."),
]
Seed = Annotated[int, typer.Option(min=0, help="The same seed makes the same.")]


def edit(
    source: Annotated[
        Path, typer.Argument(help="An audio file of any rate, with any number of channels; or a picture.")
    ],
    out: Target,
    replace: Annotated[
        tuple[str, str] | None, typer.Option("--replace", help="Words that are said, and those to be said instead.")
    ] = None,
    fill: Annotated[
        str | None, typer.Option("--fill", help="Seconds to make anew: 1.2-1.9, or several: 1-2,3-3.5.")
    ] = None,
    text: Annotated[
        str | None,
        typer.Option("--text", help="What is said, default: a .txt beside it; picture: what it should show."),
    ] = None,
    mask: Mask = None,
    expand: Expand = None,
    vary: Vary = None,
    negative: Negative = None,
    class_name: ClassName = None,
    size: PictureSize = None,
    run: Run = None,
    seed: Seed = 0,
    steps: Steps = None,
    method: Method = None,
    cond_scale: CondScale = None,
    temperature: Annotated[
        str | None, typer.Option("--temperature", help="Picture: of drawing its tokens; default: as the run says.")
    ] = None,
    sway: Sway = None,
    bf16: Bf16 = None,
    device: Device = "cpu",
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Change what is said in a recording, or make a part of it anew; all the rest stays, sample for sample.

    To replace words the text has to be known; without one a recogniser listens, if one is installed. A picture is made
    anew inside a mask, around its edges or here and there.

    Example: `madrigal edit in.wav --replace "five o'clock" "noon" --run runs/voicebox -o out.wav`

    Example: `madrigal edit in.png --mask mask.png --text "a red apple" --run runs/muse -o out.png`
    """
    of_pictures = {
        "mask": mask,
        "expand": expand,
        "vary": vary,
        "negative": negative,
        "class": class_name,
        "size": size,
    }
    if is_picture(source):
        refuse(
            {"replace": replace, "fill": fill, "method": method, "sway": sway, "bf16": bf16},
            "sound",
            "this is a picture",
        )
        ways: Any = {"mask": mask, "expand": expand, "vary": vary, "size": size, "run": run, "seed": seed}
        asked: Any = {"text": text, "negative": negative, "class_name": class_name}
        how = {"timesteps": steps, "cond_scale": cond_scale, "temperature": temperature}
        edit_picture(source, out, **ways, **asked, how=how, device=device, overwrite=overwrite, as_json=as_json)
        return
    refuse({**of_pictures, "temperature": temperature}, PICTURES, f"{source} is none")
    if (replace is None) == (fill is None):
        ways = '--replace "old words" "new words", or --fill 1.2-1.9'
        raise UserError(f"Say what to do: {ways}." if fill is None else f"Say one thing to do at a time: {ways}.")
    from madrigal.speaking.script import transcript_of

    if text is not None and not text.strip():
        raise UserError("--text is empty; write what is said in the recording, or leave --text out.")
    editor, sound = _opened(source, out, run, seed, device, overwrite, [steps, method, cond_scale, sway, bf16])
    known = transcript_of(source, text)
    if replace is not None:
        known = known or _recognised(sound, source)
        words, instead = replace
        done = _at_work("Editing", lambda: editor.replace(sound, str(known), words, instead, str(source)))
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

    Example: `madrigal denoise in.wav --run runs/voicebox -o out.wav`
    """
    from madrigal.speaking.script import transcript_of
    from madrigal.voicebox.bursts import find_bursts
    from madrigal.voicebox.mending import leaves_something

    editor, sound = _opened(source, out, run, seed, device, overwrite, [steps, method, cond_scale, sway, bf16])
    # At the recording's own rate: brought to another one it has nothing where a burst would have something.
    places = find_bursts(sound.mono(sound.rate), sound.rate) if spans is None else _spans(spans, "--spans")
    if not places:
        typer.echo("No burst of noise was found: the recording stays as it is.", err=True)
    if spans is None and not leaves_something(places, sound.seconds):
        raise UserError(f"Bursts of noise cover nearly all of {source}: nothing would be left to go by.")
    known = transcript_of(source, text)
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
    sound.check_target(out)
    options = followed(**dict(zip(("steps", "method", "cond_scale", "sway", "bf16"), how, strict=True)))
    speech = load_voicebox(run or SHIPPED_VOICE, device=device)
    return Editor(speech, seed=seed, drawing=speech.drawing.but(**options)), sound


def _spans(text: str, option: str) -> Any:
    from madrigal.voicebox.mending import spans_of

    return spans_of(text, option)


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
