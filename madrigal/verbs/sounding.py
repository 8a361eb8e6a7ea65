"""Sound into a file or a pipe: whole, or as it is made, with the time until it is first heard."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from madrigal.errors import UserError

PIPE = Path("-")


@dataclass(frozen=True)
class Sounded:
    """Samples that were written, seconds until the first of them, and until the last; what went wrong,
    and how sure the model was, where it says.
    """

    samples: int
    first: float
    took: float
    warnings: Sequence[str] = ()
    confidence: float | None = None

    def line(self, rate: int) -> str:
        seconds = self.samples / rate
        return f"First sound after {self.first:.2f} s; {seconds:.2f} s of speech in {self.took:.2f} s"


def check_out(out: Path, *, overwrite: bool) -> None:
    """Before anything is loaded."""
    if out == PIPE:
        return
    if out.is_dir():
        raise UserError(f"{out} is a folder; name an audio file to write with -o.")
    import soundfile

    if out.suffix[1:].upper() not in {*soundfile.available_formats(), "OPUS"}:
        raise UserError(f"{out} could not be written, for its ending is no format: name a .wav, .flac or .ogg file.")
    above = next(folder for folder in out.absolute().parents if os.path.lexists(folder))
    if not above.is_dir():
        raise UserError(f"{out} cannot be written, for {above} is no folder; name another file with -o.")
    if out.exists() and not overwrite:
        raise UserError(f"{out} is there already; name another file with -o, or replace it with --overwrite.")
    try:
        with TemporaryFile(dir=above):
            pass
    except OSError as error:
        raise UserError(
            f"{out} cannot be written, for nothing can be written in {above} ({error.strerror}); name another file "
            "with -o."
        ) from error


def write_speech(make: Callable[[], Any], out: Path) -> Sounded:
    """Make speech, and write it."""
    from madrigal.data.audio import write

    begin = time.perf_counter()
    speech = make()
    took = time.perf_counter() - begin
    samples = int(speech.wave.shape[-1])
    _check_said(samples)
    _make_folder(out)
    write(out, speech.wave, speech.sample_rate)
    return Sounded(samples, took, took, speech.warnings, speech.confidence)


def write_stream(pieces: Iterator[Any], out: Path, model: Any) -> Sounded:
    """Sound as it comes, into a file or into a pipe."""
    samples, first, begin = 0, 0.0, time.perf_counter()
    with _opened(out, model) as write:
        for piece in pieces:
            write((piece if piece.ndim == 2 else piece[None]).T.clamp(-1, 1).cpu().numpy())
            first = first if samples else time.perf_counter() - begin
            samples += int(piece.shape[-1])
        _check_said(samples)
    return Sounded(samples, first, time.perf_counter() - begin)


@contextmanager
def _opened(out: Path, model: Any) -> Iterator[Callable[[Any], object]]:
    """A function that takes sound [samples, channels]; of a file that is not finished nothing stays.

    A file that is there already stays until the new one is whole.
    """
    if out == PIPE:
        yield lambda sound: (sys.stdout.buffer.write((sound * 32767).astype("<i2").tobytes()), sys.stdout.flush())
        return
    import soundfile

    from madrigal.data.audio import container_of

    _make_folder(out)
    container, subtype = container_of(out)
    how = {"format": container, "subtype": subtype}
    path = out.with_name(f"{out.stem}.unfinished{out.suffix}") if out.exists() else out
    try:
        with soundfile.SoundFile(path, "w", model.sample_rate, model.channels, **how) as file:
            yield lambda sound: (file.write(sound), file.flush())
        path.replace(out)
    except (soundfile.SoundFileError, OSError, TypeError, ValueError) as error:
        path.unlink(missing_ok=True)
        raise UserError(f"{out} could not be written ({error}); name a .wav, .flac or .ogg file.") from error
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _make_folder(out: Path) -> None:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"The folder {out.parent} cannot be made ({error.strerror}); name another file.") from error


def _check_said(samples: int) -> None:
    if not samples:
        raise UserError("The model ended before it said anything: try another --seed, or train it for longer.")
