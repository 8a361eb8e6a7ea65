"""`say`: a text, spoken in the voice of a prompt, by whatever system the run is of."""

from pathlib import Path
from typing import Annotated, Any

import typer

from madrigal.errors import UserError
from madrigal.verbs.following import Bf16, CondScale, Method, Steps, Sway, followed
from madrigal.verbs.sampling import TopK, TopP, samplings
from madrigal.verbs.sounding import PIPE, check_out, write_speech, write_stream
from madrigal.verbs.terminal import Bar, Device, Json, Overwrite, given, print_json, refuse

TEMPERATURE = "0.5,0.5,0.5"
"""Of speartts, which draws tokens."""


def say(
    text: Annotated[str | None, typer.Argument(help="What to say.")] = None,
    runs: Annotated[
        list[Path] | None,
        typer.Option(
            "--run",
            help="A run of voicebox or speartts, an exported voice, or the runs of text-to-semantic, coarse and fine, "
            "each with --run; default: the voice that comes with madrigal.",
        ),
    ] = None,
    voice: Annotated[
        str | None, typer.Option("--voice", help="A voice of the run by name, or an audio file of some seconds.")
    ] = None,
    voice_text: Annotated[
        str | None, typer.Option("--voice-text", help="What is said in that file; default: a .txt beside it.")
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", help="A file that holds the text.")] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The audio file to write; - is raw 16-bit sound for a pipe.")
    ] = Path("speech.wav"),
    seed: Annotated[int, typer.Option(min=0, help="The same seed says the same in the same way.")] = 0,
    seconds: Annotated[float | None, typer.Option(min=0.1, help="voicebox: how long it takes to say it all.")] = None,
    rate: Annotated[
        float | None, typer.Option(min=0.2, max=5.0, help="voicebox: 1.5 speaks half as fast again.")
    ] = None,
    steps: Steps = None,
    method: Method = None,
    cond_scale: CondScale = None,
    sway: Sway = None,
    bf16: Bf16 = None,
    temperature: Annotated[
        str | None, typer.Option(help=f"speartts: for all stages, or semantic,coarse,fine; default: {TEMPERATURE}.")
    ] = None,
    top_k: TopK = None,
    top_p: TopP = None,
    stream: Annotated[bool, typer.Option("--stream", help="Write the sound while it is made.")] = False,
    tokenizer: Annotated[str | None, typer.Option(help="speartts: where its tokenizer is, if it has moved.")] = None,
    codec: Annotated[str | None, typer.Option(help="speartts: where its codec is, if it has moved.")] = None,
    device: Device = "cpu",
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Speak a text of any length, with numbers, dates and money read out; long ones sentence by sentence.

    What cannot be said is told. Without --voice a voicebox takes the voice that it has learned most of, if it has any.

    Example: `madrigal say "It is 5 o'clock." -o out.wav`, and with a run of yours `--run runs/voicebox --voice me.wav`
    """
    words = _text(text, file)
    if voice and out != PIPE and out.exists() and Path(voice).exists() and out.samefile(voice):
        raise UserError(f"{out} is the voice to speak like, and would be lost: name another file with -o.")
    check_out(out, overwrite=overwrite)
    flowing = {"steps": steps, "method": method, "cond_scale": cond_scale, "sway": sway, "bf16": bf16}
    timing = {"seconds": seconds, "rate": rate, "voice_text": voice_text, **flowing}
    draws: dict[str, Any] = {"top_k": top_k, "top_p": top_p}
    drawing = {"temperature": temperature, **draws, "tokenizer": tokenizer, "codec": codec}

    from madrigal.engine.machine import prepare_process

    prepare_process()
    if runs is None or _is_voicebox(runs):
        refuse(drawing, "speartts", "this is a voicebox")
        if seconds is not None and rate is not None:
            raise UserError("--seconds and --rate both say how fast it is spoken: give one of them.")
        if voice_text is not None and (voice is None or not Path(voice).is_file()):
            raise UserError("--voice-text is what is said in an audio file, and --voice names none: leave it out.")
        model, options = _voicebox(runs, device), {**given(timing), **followed(**flowing)}
    else:
        refuse(timing, "voicebox", "this is speartts")
        _check_prompt(voice)
        sampling = samplings(temperature or TEMPERATURE, **draws)
        model, options = _speartts(runs, tokenizer, codec, device), {"sampling": sampling}
    script = model.script(words)
    if script.warning is not None:
        typer.echo(script.warning, err=True)
    options |= {"voice": voice, "seed": seed}
    with Bar("Speaking") as bar:
        if stream or out == PIPE:
            done = write_stream(model.stream(words, **options), out, model)
        else:
            done = write_speech(lambda: model.say(words, progress=bar, **options), out)
    for warning in done.warnings:
        typer.echo(f"{warning} Try another --seed, or train for longer.", err=True)
    if stream or out == PIPE:
        typer.echo(done.line(model.sample_rate), err=True)
    if out == PIPE:
        return
    if not as_json:
        typer.echo(str(out))
        return
    print_json(
        {
            "file": str(out),
            "seconds": done.samples / model.sample_rate,
            "sample_rate": model.sample_rate,
            "seed": seed,
            "pieces": script.pieces,
            "unknown": script.unknown,
            "warnings": list(done.warnings),
            "confidence": done.confidence,
            "first_sound_seconds": round(done.first, 3),
            "took_seconds": round(done.took, 3),
        }
    )


def _text(text: str | None, file: Path | None) -> str:
    if text is not None and file is not None:
        raise UserError("A text and --file both say what to say: give one of them.")
    if text is None and file is None:
        raise UserError('Give a text to say, as in `madrigal say "Good morning." …`, or a file of it with --file.')
    if file is None:
        return str(text)
    from madrigal.speaking.script import read_text

    return read_text(file)


def _is_voicebox(runs: list[Path]) -> bool:
    from madrigal.voicebox.loading import is_voicebox

    found = [run for run in runs if is_voicebox(run)]
    if found and len(runs) > 1:
        raise UserError(f"{found[0]} is a voicebox, which speaks alone: name it with the only --run.")
    return bool(found)


def _voicebox(runs: list[Path] | None, device: str) -> Any:
    from madrigal.voicebox.loading import SHIPPED_VOICE, load_voicebox

    return load_voicebox(runs[0] if runs else SHIPPED_VOICE, device=device)


def _speartts(runs: list[Path], tokenizer: str | None, codec: str | None, device: str) -> Any:
    from madrigal.speartts.loading import load_text_to_speech

    return load_text_to_speech(runs, tokenizer=tokenizer, codec=codec, device=device)


def _check_prompt(voice: str | None) -> None:
    if voice is not None and not voice.strip():
        raise UserError("--voice names no file; name an audio file of some seconds, or leave it out.")
    if voice is not None and Path(voice).is_dir():
        raise UserError(f"{voice} is a folder; name one audio file of it with --voice.")
    if voice is not None and not Path(voice).is_file():
        raise UserError(f"There is no file {voice} to take a voice from; check --voice.")
