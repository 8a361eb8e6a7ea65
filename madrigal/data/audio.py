"""Audio files: look at a header, decode a crop, write. A wave is float32 [channels, samples]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from math import gcd
from pathlib import Path

import numpy as np
import soundfile
import soxr
import torch
from torch import Tensor
from torch.nn import functional

from madrigal.data.failures import DecodeError
from madrigal.errors import UserError

__all__ = [
    "NOT_AUDIO",
    "AudioInfo",
    "DecodeError",
    "container_of",
    "mix_channels",
    "open_audio",
    "probe",
    "read",
    "read_rates",
    "resample",
    "resampled_length",
    "whole_file",
    "words",
    "write",
]

# Context on each side of a resampled crop, in samples of the lower rate. The filter of soxr's HQ setting fits in
# 128: the crop then differs from a crop of the resampled file by less than -120 dB.
_MARGIN = 128
# A lossy decoder needs to run in after a seek (Vorbis gets its first block wrong; a block has at most 8192).
_RUN_IN = 8192
# The header of a lossy file may promise a few samples more than there are.
_LOSSY_SLACK = 4096
_LOSSY = frozenset({"VORBIS", "OPUS", "MPEG_LAYER_I", "MPEG_LAYER_II", "MPEG_LAYER_III"})
_CONTAINERS = {".opus": ("OGG", "OPUS"), ".ogg": ("OGG", "VORBIS")}
NOT_AUDIO = "its content is not audio"
_ERRORS = (soundfile.SoundFileError, OSError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class AudioInfo:
    """What a header says: samples per channel, rate in Hz, channels, and libsndfile's names of the format."""

    frames: int
    sample_rate: int
    channels: int
    format: str = ""
    subtype: str = ""

    @property
    def duration(self) -> float:
        """Seconds."""
        return self.frames / self.sample_rate

    @property
    def lossy(self) -> bool:
        """Whether the number of frames is a promise that only decoding can confirm."""
        return self.subtype in _LOSSY


def probe(path: str | Path) -> AudioInfo:
    """Read the header of an audio file."""
    with open_audio(path) as file:
        return _info(file)


def read(
    path: str | Path,
    *,
    start: int = 0,
    frames: int | None = None,
    sample_rate: int | None = None,
    channels: int | None = None,
) -> Tensor:
    """Decode only a crop: float32 [channels, samples].

    `start` and `frames` count samples at `sample_rate` (the file's own where None). Without `frames` it reads to
    the end; a crop that reaches past the end is shorter. `channels` 1 or 2 mixes, None leaves them as they are.
    """
    return read_rates(path, (sample_rate,), start=start, frames=frames, channels=channels)[0]


def read_rates(
    path: str | Path,
    sample_rates: Sequence[int | None],
    *,
    start: int = 0,
    frames: int | None = None,
    channels: int | None = None,
) -> list[Tensor]:
    """Decode one crop once and give it at several rates, all of the same span of time.

    `start` and `frames` count samples at the first of `sample_rates`, as in `read`.
    """
    with open_audio(path) as file:
        info = _info(file)
        if channels not in (None, 1, info.channels) and info.channels != 1:
            raise DecodeError.of(path, f"its {info.channels} channels cannot be mixed to {channels}")
        rates = [rate or info.sample_rate for rate in sample_rates]
        spans = [_Span.of(info, start, frames, rates[0], rate) for rate in rates]
        first, last = min(span.first for span in spans), max(span.last for span in spans)
        wave = mix_channels(_decode(file, info, path, first, last), channels)
    return [span.cut(wave[:, span.first - first : span.last - first]) for span in spans]


def resample(wave: Tensor, from_rate: int, to_rate: int) -> Tensor:
    """[..., samples] at one rate to [..., resampled_length(samples, …)] at another."""
    if from_rate == to_rate:
        return wave
    *lead, samples = wave.shape
    size = resampled_length(samples, from_rate, to_rate)
    if wave.numel() == 0 or size == 0:
        return wave.new_zeros(*lead, size)
    columns = wave.detach().to("cpu", torch.float32).reshape(-1, samples).T.contiguous().numpy()
    rows = torch.from_numpy(soxr.resample(columns, from_rate, to_rate)).T[:, :size]
    return functional.pad(rows, (0, size - rows.shape[-1])).reshape(*lead, size).to(wave.device)


def resampled_length(frames: int, from_rate: int, to_rate: int) -> int:
    """Samples at `to_rate` of a wave of `frames` samples at `from_rate` (rounded, halves up)."""
    return (2 * frames * to_rate + from_rate) // (2 * from_rate)


def mix_channels(wave: Tensor, channels: int | None) -> Tensor:
    """[c, samples] to [channels, samples]: the mean for mono, copies of mono for more, None changes nothing."""
    if channels is None or wave.shape[0] == channels:
        return wave
    if channels == 1:
        return wave.mean(dim=0, keepdim=True)
    if wave.shape[0] == 1:
        return wave.repeat(channels, 1)
    raise UserError(f"A wave of {wave.shape[0]} channels cannot be mixed to {channels}; give mono or stereo.")


def write(path: str | Path, wave: Tensor, sample_rate: int, subtype: str | None = None) -> None:
    """Write [channels, samples] or [samples]; the ending of `path` says the format. Beyond ±1 it clips."""
    path = Path(path)
    data = wave.detach().to("cpu", torch.float32)
    if data.dim() not in (1, 2) or data.numel() == 0:
        raise UserError(f"{path} was not written: {list(data.shape)} is no shape [channels, samples].")
    if not bool(torch.isfinite(data).all()):
        raise UserError(f"{path} was not written: the wave holds samples that are not finite numbers.")
    container, default = container_of(path)
    try:
        frames = data.reshape(-1, data.shape[-1]).T.numpy()
        with whole_file(path) as place:
            soundfile.write(place, frames, sample_rate, subtype=subtype or default, format=container)
    except _ERRORS as error:
        raise UserError(f"{path} could not be written: {words(error)}.") from error


def container_of(path: Path) -> tuple[str | None, str | None]:
    """Format and way of coding where libsndfile does not know them by the ending."""
    return _CONTAINERS.get(path.suffix.lower(), (None, None))


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A place beside `path` to write to, which gets its name when all is written; until then stays what was there."""
    place = path.with_name(f"{path.stem}.unfinished{path.suffix}")
    try:
        yield place
        place.replace(path)
    except BaseException:
        # A folder that is none cannot be looked into either.
        with suppress(OSError):
            place.unlink()
        raise


def open_audio(path: str | Path) -> soundfile.SoundFile:
    """Open for decoding; the error says what is wrong with the file."""
    path = Path(path)
    try:
        if path.stat().st_size == 0:
            raise DecodeError.of(path, "it is empty")
        return soundfile.SoundFile(path)
    except FileNotFoundError as error:
        raise DecodeError.of(path, "there is no such file") from error
    except _ERRORS as error:
        raise DecodeError.of(path, NOT_AUDIO if _is_unknown(error) else words(error)) from error


def words(error: Exception) -> str:
    """What an error of libsndfile or the system says, without prefix and full stop."""
    text = getattr(error, "error_string", "") or getattr(error, "strerror", "") or str(error)
    return " ".join(text.split()).removeprefix("Error : ").rstrip(".") or type(error).__name__


@dataclass(frozen=True, slots=True)
class _Span:
    """Where a crop lies: in frames first…last of the file and, once these are resampled, `size` after `skip`."""

    first: int
    last: int
    skip: int
    size: int
    from_rate: int
    to_rate: int

    @classmethod
    def of(cls, info: AudioInfo, start: int, frames: int | None, unit: int, rate: int) -> _Span:
        """The span at `rate` of a crop whose `start` and `frames` are counted at the rate `unit`."""
        native = info.sample_rate
        end = resampled_length(info.frames, native, rate)
        begin = min(start * rate // unit, end)
        stop = end if frames is None else min(begin + resampled_length(frames, unit, rate), end)
        source, target = native // gcd(native, rate), rate // gcd(native, rate)
        margin = 0 if native == rate else -(-_MARGIN * native // min(native, rate))
        # Start where a sample of the file and one of the result fall together, or all would be shifted.
        first = max(0, begin * source // target - margin) // source * source
        last = max(first, min(info.frames, -(-stop * source // target) + margin))
        return cls(first, last, begin - first // source * target, stop - begin, native, rate)

    def cut(self, wave: Tensor) -> Tensor:
        """The crop, from the decoded frames first…last."""
        return resample(wave, self.from_rate, self.to_rate)[:, self.skip : self.skip + self.size]


def _is_unknown(error: Exception) -> bool:
    # 1 is libsndfile's "format not recognised", 7 its misleading "no regular file" for an MP3 without any frame.
    return isinstance(error, soundfile.LibsndfileError) and error.code in (1, 7)


def _info(file: soundfile.SoundFile) -> AudioInfo:
    return AudioInfo(file.frames, file.samplerate, file.channels, file.format, file.subtype)


def _decode(file: soundfile.SoundFile, info: AudioInfo, path: str | Path, first: int, last: int) -> Tensor:
    """Frames first…last of an open file, checked: float32 [channels, last - first]."""
    run_in = min(first, _RUN_IN) if info.lossy else 0
    try:
        file.seek(first - run_in)
        block = file.read(last - first + run_in, dtype="float32", always_2d=True)[run_in:]
    except _ERRORS as error:
        raise DecodeError.of(path, f"its data is damaged ({words(error)})") from error
    missing = last - first - len(block)
    if missing > (_LOSSY_SLACK if info.lossy else 0):
        raise DecodeError.of(path, f"it ends {missing} samples before its header says")
    if not np.isfinite(block).all():
        raise DecodeError.of(path, "it holds samples that are not finite numbers")
    return torch.from_numpy(np.ascontiguousarray(block.T))
