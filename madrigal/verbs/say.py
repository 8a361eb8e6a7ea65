"""`say`: a text, spoken in the voice of a prompt."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from madrigal.errors import UserError
from madrigal.verbs.generate import Device, Temperature, temperatures
from madrigal.verbs.terminal import Bar, Json, Overwrite, print_json

PIPE = Path("-")
TEMPERATURE = "0.7,0.8,0.8"


def say(
    text: Annotated[str | None, typer.Argument(help="What to say.")] = None,
    runs: Annotated[
        list[Path] | None,
        typer.Option("--run", help="A speartts run, or those of text-to-semantic, coarse and fine, each with --run."),
    ] = None,
    voice: Annotated[
        Path | None, typer.Option("--voice", help="An audio file of any kind; three seconds of it are heard.")
    ] = None,
    file: Annotated[Path | None, typer.Option("--file", help="A file that holds the text.")] = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The audio file to write; - is raw 16-bit sound for a pipe.")
    ] = Path("speech.wav"),
    seed: Annotated[int, typer.Option(min=0, help="The same seed says the same in the same way.")] = 0,
    temperature: Temperature = TEMPERATURE,
    top_k: Annotated[int | None, typer.Option(min=1, help="Draw among the k likeliest.")] = None,
    top_p: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="Draw among the likeliest of this share.")
    ] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Write the sound while it is made.")] = False,
    tokenizer: Annotated[str | None, typer.Option(help="Where the semantic tokenizer is, if it has moved.")] = None,
    codec: Annotated[str | None, typer.Option(help="Where the codec is, if it has moved.")] = None,
    device: Device = "cpu",
    overwrite: Overwrite = False,
    as_json: Json = False,
) -> None:
    """Speak a text of any length, with numbers, dates and money read out; long ones sentence by sentence.

    What cannot be said is told. Without a voice the model takes any.

    Example: `madrigal say "It is 5 o'clock." --run runs/speartts --voice me.wav -o out.wav`
    """
    words = _text(text, file)
    if not runs:
        raise UserError("Name the run that speaks with --run, for example --run runs/speartts.")
    _check_files(voice, out, overwrite=overwrite)

    from madrigal.engine.machine import prepare_process
    from madrigal.engine.recipe import build_config
    from madrigal.layers.sampling import Sampling
    from madrigal.speartts.loading import load_text_to_speech

    prepare_process()
    common = {"top_k": top_k, "top_p": top_p}
    degrees = temperatures(temperature).items()
    sampling = {s: build_config(Sampling, {**common, "temperature": t}, "Sampling") for s, t in degrees}
    model = load_text_to_speech(runs, tokenizer=tokenizer, codec=codec, device=device)
    script = model.script(words)
    if script.warning is not None:
        typer.echo(script.warning, err=True)
    options: dict[str, Any] = {"voice": voice, "sampling": sampling, "seed": seed}
    with Bar("Speaking") as bar:
        if stream or out == PIPE:
            samples = _stream(model.stream(words, **options), out, model)
        else:
            samples = _write(model.say(words, progress=bar, **options), out)
    if out == PIPE:
        return
    if not as_json:
        typer.echo(str(out))
        return
    seconds = samples / model.sample_rate
    print_json(
        {
            "file": str(out),
            "seconds": seconds,
            "sample_rate": model.sample_rate,
            "seed": seed,
            "pieces": script.pieces,
            "unknown": script.unknown,
        }
    )


def _text(text: str | None, file: Path | None) -> str:
    if (text is None) == (file is None):
        raise UserError('Give a text to say, as in `madrigal say "Good morning." …`, or a file of it with --file.')
    if file is None:
        return str(text)
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is no text in UTF-8; save it as such.") from error
    except OSError as error:
        raise UserError(f"The text {file} cannot be read: {error.strerror}.") from error


def _check_files(voice: Path | None, out: Path, *, overwrite: bool) -> None:
    """Before anything is loaded."""
    if voice is not None and voice.is_dir():
        raise UserError(f"{voice} is a folder; name one audio file of it with --voice.")
    if voice is not None and not voice.is_file():
        raise UserError(f"There is no file {voice} to take a voice from; check --voice.")
    if out == PIPE:
        return
    if out.is_dir():
        raise UserError(f"{out} is a folder; name an audio file to write with -o.")
    if out.exists() and not overwrite:
        raise UserError(f"{out} is there already; name another file with -o, or replace it with --overwrite.")


def _write(speech: Any, out: Path) -> int:
    from madrigal.data.audio import write

    samples = int(speech.wave.shape[-1])
    _check_said(samples)
    out.parent.mkdir(parents=True, exist_ok=True)
    write(out, speech.wave, speech.sample_rate)
    return samples


def _stream(pieces: Iterator[Any], out: Path, model: Any) -> int:
    """Sound as it comes, into a file or into a pipe; gives the number of samples."""
    samples = 0
    with _opened(out, model) as write:
        for piece in pieces:
            write((piece if piece.ndim == 2 else piece[None]).T.clamp(-1, 1).cpu().numpy())
            samples += int(piece.shape[-1])
        _check_said(samples)
    return samples


@contextmanager
def _opened(out: Path, model: Any) -> Iterator[Callable[[Any], object]]:
    """A function that takes sound [samples, channels]; of a file that is not finished nothing stays.

    A file that is there already stays until the new one is whole.
    """
    if out == PIPE:
        yield lambda sound: (sys.stdout.buffer.write((sound * 32767).astype("<i2").tobytes()), sys.stdout.flush())
        return
    import soundfile

    out.parent.mkdir(parents=True, exist_ok=True)
    path = out.with_name(f"{out.stem}.unfinished{out.suffix}") if out.exists() else out
    try:
        with soundfile.SoundFile(path, "w", model.sample_rate, model.codec.channels) as file:
            yield lambda sound: (file.write(sound), file.flush())
        path.replace(out)
    except (soundfile.SoundFileError, TypeError, ValueError) as error:
        path.unlink(missing_ok=True)
        raise UserError(f"{out} could not be written ({error}); name a .wav, .flac or .ogg file.") from error
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _check_said(samples: int) -> None:
    if not samples:
        raise UserError("The model ended before it said anything: try another --seed, or train it for longer.")
