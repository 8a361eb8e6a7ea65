"""Sound files read and written piece by piece at the codec's rate; a piece is float32 [samples, channels]."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from madrigal.data.audio import AudioInfo, DecodeError, open_audio, words
from madrigal.data.inspection import MAX_CHANNELS, MAX_RATE, MIN_RATE, missing_bytes
from madrigal.errors import UserError

Wave = NDArray[np.float32]

PIECE = 1 << 16
"""Samples, of all channels, that are worked on at once: so many that the work per piece does not count, and no more."""

FORMATS = {".wav": "WAV", ".flac": "FLAC"}
"""What a decompressed file can be: formats that keep the number of samples exactly."""

_UNKNOWN_LENGTH = 1 << 62  # libsndfile's answer for a FLAC file that was written to a pipe is about twice this.
_WAV_LIMIT = (1 << 32) - 4096  # Sizes in a WAV header have 32 bits; RF64 is the same with 64.


class Resampler:
    """Turns pieces [n, channels] at one rate into pieces at another; as they are where the rates are the same."""

    def __init__(self, from_rate: int, to_rate: int, channels: int) -> None:
        self._stream = soxr.ResampleStream(from_rate, to_rate, channels) if from_rate != to_rate else None
        self._nothing = np.zeros((0, channels), np.float32)

    def push(self, piece: Wave) -> Wave:
        return piece if self._stream is None else self._stream.resample_chunk(np.ascontiguousarray(piece))

    def flush(self) -> Wave:
        return self._nothing if self._stream is None else self._stream.resample_chunk(self._nothing, last=True)


class WaveReader:
    """Decodes a sound file in one pass. `total` is what its header promises, or 0; `samples` counts what was read."""

    def __init__(self, path: Path) -> None:
        self.path, self.samples = path, 0
        self._file = open_audio(path)
        # soundfile seeks after each read, which fails at the end of a FLAC file that does not know its length.
        self._file.seekable = lambda: False
        file = self._file
        info = AudioInfo(file.frames, file.samplerate, file.channels, file.format, file.subtype)
        self.sample_rate, self.channels = info.sample_rate, info.channels
        self.total = info.frames if info.frames < _UNKNOWN_LENGTH else 0
        # The header of a lossy file is an estimate; more than this is missing only where the file was cut off.
        self._slack = max(4096, self.total // 20) if info.lossy else 0
        if not MIN_RATE <= self.sample_rate <= MAX_RATE:
            raise self._unusable(f"its sample rate of {self.sample_rate} Hz is outside of {MIN_RATE} to {MAX_RATE} Hz")
        if self.channels > MAX_CHANNELS:
            raise self._unusable(f"it has {self.channels} channels, and only mono and stereo can be coded")
        if missing := missing_bytes(path, info):
            raise self._unusable(f"it was cut off, {missing} bytes before the end that its header names")

    def close(self) -> None:
        self._file.close()

    def pieces(self, sample_rate: int) -> Iterator[Wave]:
        """The whole file at `sample_rate`, ceil(samples * sample_rate / the file's rate) samples in all."""
        resampler, given = Resampler(self.sample_rate, sample_rate, self.channels), 0
        # As many as make one piece of the result, within bounds where the file's rate is far above the codec's.
        size = max(1, min(PIECE * self.sample_rate // sample_rate, 16 * PIECE) // self.channels)
        while len(piece := self._read(size)):
            self.samples += len(piece)
            resampled = resampler.push(piece)
            given += len(resampled)
            if len(resampled):
                yield resampled
        self._check_end()
        wanted = -(-self.samples * sample_rate // self.sample_rate) - given
        rest = resampler.flush()[:wanted]
        if wanted:
            yield np.pad(rest, ((0, wanted - len(rest)), (0, 0)))

    def _read(self, size: int) -> Wave:
        try:
            piece: Wave = self._file.read(size, dtype="float32", always_2d=True)
        except (soundfile.SoundFileError, OSError) as error:
            raise self._unusable(f"its data is damaged {self._place()} ({words(error)})") from error
        if not np.isfinite(piece).all():
            raise self._unusable(f"it holds samples that are not finite numbers {self._place()}")
        return piece

    def _check_end(self) -> None:
        if not self.samples:
            raise self._unusable("it holds no samples")
        if self.samples < self.total - self._slack:
            raise self._unusable(f"it ends {self.total - self.samples} samples before its header says")

    def _place(self) -> str:
        return f"after {self.samples / self.sample_rate:.1f} s"

    def _unusable(self, reason: str) -> DecodeError:
        return DecodeError.of(self.path, reason)


class WaveWriter:
    """Writes pieces [n, channels] at `from_rate` as a sound file of exactly `samples` samples at `sample_rate`.

    The ending of `path` says the format, with 16 bits a sample. Beyond ±1 it clips.
    """

    def __init__(
        self, file: BinaryIO, path: Path, *, from_rate: int, sample_rate: int, channels: int, samples: int
    ) -> None:
        self.path, self._left, self._channels = path, samples, channels
        self._resampler = Resampler(from_rate, sample_rate, channels)
        self._callbacks = _Callbacks(file)
        form = output_format(path)
        if form == "WAV" and 2 * channels * samples > _WAV_LIMIT:
            form = "RF64"
        try:
            self._file = soundfile.SoundFile(self._callbacks, "w", sample_rate, channels, "PCM_16", format=form)
        except (soundfile.SoundFileError, ValueError) as error:
            reason = self._callbacks.error or error
            raise UserError(f"{path} could not be written: {words(reason)}; give another file name.") from error

    def write(self, piece: Wave) -> None:
        """Append a piece; what goes beyond the length is left out."""
        self._write(self._resampler.push(piece))

    def finish(self) -> None:
        """Write what the resampler held back, fill up to the length, and complete the header."""
        self._write(self._resampler.flush())
        self._write(np.zeros((self._left, self._channels), np.float32))
        self._checked(self._file.close)

    def close(self) -> None:
        """Let go of the file, finished or not."""
        with suppress(soundfile.SoundFileError):
            self._file.close()

    def _write(self, piece: Wave) -> None:
        piece = piece[: self._left]
        if not np.isfinite(piece).all():
            raise UserError(f"{self.path} was not written: the codec gave samples that are not finite numbers.")
        self._left -= len(piece)
        self._checked(lambda: self._file.write(piece))

    def _checked(self, action: Callable[[], None]) -> None:
        try:
            action()
        except (soundfile.SoundFileError, AssertionError) as error:
            # soundfile asserts that all was written, so a full disk shows itself like this.
            raise self._callbacks.error or OSError(words(error)) from error
        if self._callbacks.error is not None:
            raise self._callbacks.error


class _Callbacks:
    """A binary file as libsndfile uses it. An exception would be lost on the way through C, so `error` keeps it."""

    def __init__(self, file: BinaryIO) -> None:
        self.tell, self._file = file.tell, file
        self.error: OSError | None = None

    def seek(self, offset: int, whence: int = 0) -> None:
        self._kept(lambda: self._file.seek(offset, whence))

    def write(self, data: bytes) -> int:
        return self._kept(lambda: self._file.write(data))

    def _kept(self, action: Callable[[], int]) -> int:
        try:
            return action()
        except OSError as error:
            self.error = self.error or error
            return 0


def output_format(path: Path) -> str:
    """libsndfile's name of the format that the ending of `path` stands for."""
    try:
        return FORMATS[path.suffix.lower()]
    except KeyError:
        endings = " or ".join(FORMATS)
        raise UserError(f"{path} has no ending that can be written; give a name that ends in {endings}.") from None
