"""Recordings that are mended in one place and left alone everywhere else, sample for sample.

Samples stay in the numbers of their file, whole ones in a file of whole numbers: what is not replaced is never
computed. A mend fades in and out inside the part that it replaces.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import soundfile
import torch
from torch import Tensor

from madrigal.data.audio import mix_channels, open_audio, resample, whole_file, words
from madrigal.data.failures import DecodeError
from madrigal.errors import UserError

FADE_SECONDS = 0.005
"""So long does a mend take to come and to go: too short to be heard twice, long enough not to click."""
LEVEL_SECONDS = 0.5
"""So much beside a hole says how loud each channel is."""
# What libsndfile reads each of these into without a loss; all else is a lossy format, and is floating point.
_WHOLE = {"PCM_16": "int16", "PCM_S8": "int16", "PCM_U8": "int16", "PCM_24": "int32", "PCM_32": "int32"}
_EXACT = {**_WHOLE, "FLOAT": "float32", "DOUBLE": "float64"}
# Ways to keep samples of each kind, the best first; those of a lossy file are rounded far below what it has lost.
_HELD_BY = {
    "PCM_16": ("PCM_16", "PCM_24"),
    "PCM_S8": ("PCM_S8", "PCM_16"),
    "PCM_U8": ("PCM_U8", "PCM_16"),
    "PCM_24": ("PCM_24", "PCM_32"),
    "PCM_32": ("PCM_32",),
    "FLOAT": ("FLOAT", "DOUBLE"),
    "DOUBLE": ("DOUBLE",),
}
_LOSSY = ("OGG", "MP3")


@dataclass(frozen=True)
class Sound:
    """A recording as its file has it: data [samples, channels] in the file's own numbers."""

    data: np.ndarray
    rate: int
    subtype: str

    @classmethod
    def read(cls, path: str | Path) -> Self:
        with open_audio(path) as file:
            return cls.of(file, path)

    @classmethod
    def of(cls, file: soundfile.SoundFile, name: str | Path) -> Self:
        """All of an open file; `name` is what an error calls it."""
        kind = _EXACT.get(file.subtype, "float32")
        try:
            data = file.read(dtype=kind, always_2d=True)
        except soundfile.SoundFileError as error:
            raise DecodeError.of(name, f"its data is damaged ({words(error)})") from error
        if not len(data):
            raise DecodeError.of(name, "it holds no sound")
        if not np.isfinite(data).all():
            raise DecodeError.of(name, "it holds samples that are not finite numbers")
        return cls(data, file.samplerate, file.subtype)

    @property
    def seconds(self) -> float:
        return len(self.data) / self.rate

    @property
    def scale(self) -> float:
        """What a sample of 1.0 is in the file's numbers."""
        return float(-int(np.iinfo(self.data.dtype).min)) if self.data.dtype.kind == "i" else 1.0

    def wave(self) -> Tensor:
        """float32 [channels, samples]."""
        return torch.from_numpy((self.data.T / self.scale).astype(np.float32))

    def mono(self, rate: int) -> Tensor:
        """float32 [samples] at another rate, all channels mixed."""
        return resample(mix_channels(self.wave(), 1), self.rate, rate)[0]

    def write(self, path: str | Path) -> None:
        """The ending of `path` says the format; the samples are those of `data`, unless the format is a lossy one."""
        path = Path(path)
        subtype = self.check_target(path)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(path) as place:
                soundfile.write(place, self.data, self.rate, subtype=subtype, format=_container(path))
        except (soundfile.SoundFileError, OSError, TypeError, ValueError) as error:
            raise UserError(f"{path} could not be written ({words(error)}); name a .wav or .flac file.") from error

    def check_target(self, path: Path) -> str | None:
        """How the samples are kept in such a file (None: as it always does); one that would change them is refused."""
        container = _container(path)
        if container not in soundfile.available_formats():
            raise UserError(f"{path} could not be written, for its ending is no format: name a .wav or .flac file.")
        if container in _LOSSY:
            return "OPUS" if path.suffix.lower() == ".opus" else None
        wished = _HELD_BY.get(self.subtype, ("FLOAT", "PCM_24"))
        found = next((one for one in wished if soundfile.check_format(container, one)), None)
        if found is None and self.subtype in _EXACT:
            raise UserError(
                f"{path} cannot hold the samples of this recording ({self.subtype}) as they are: name a .wav file."
            )
        return found


def _container(path: Path) -> str:
    """libsndfile's name of the format that an ending stands for."""
    name = path.suffix[1:].upper()
    return "OGG" if name == "OPUS" else name


@dataclass(frozen=True)
class Mend:
    """A new sound [samples] in -1 … 1, at the recording's rate, for its samples `start` … `stop` - 1."""

    start: int
    stop: int
    wave: np.ndarray


def mended(sound: Sound, mends: Sequence[Mend]) -> Sound:
    """The recording with new sound in some places, which may be longer or shorter than what was there."""
    parts, last = [], 0
    for mend in sorted(mends, key=lambda each: each.start):
        if not last <= mend.start <= mend.stop <= len(sound.data):
            raise ValueError(f"The mend {mend.start}…{mend.stop} lies outside the recording or in another mend.")
        new = mend.wave[:, None] * _levels(sound, mend)[None]
        old = sound.data[mend.start : mend.stop] / sound.scale
        parts += [sound.data[last : mend.start], _in_numbers(blended(old, new, sound.rate), sound)]
        last = mend.stop
    return Sound(np.concatenate([*parts, sound.data[last:]]), sound.rate, sound.subtype)


def blended(old: np.ndarray, new: np.ndarray, rate: int, seconds: float = FADE_SECONDS) -> np.ndarray:
    """`new` [samples, channels], which fades in from the first samples of `old` and out to its last ones."""
    size = min(round(seconds * rate), len(old) // 2, len(new) // 2)
    result = new.copy()
    if size:
        ramp = np.sin(np.pi / 2 * (np.arange(size) + 0.5) / size)[:, None] ** 2
        result[:size] = old[:size] + ramp * (new[:size] - old[:size])
        result[-size:] = old[-size:] + ramp[::-1] * (new[-size:] - old[-size:])
    return result


def _levels(sound: Sound, mend: Mend) -> np.ndarray:
    """How loud each channel is beside their mix around the mend, [channels]: a voice on the left stays there."""
    channels, near = sound.data.shape[1], round(LEVEL_SECONDS * sound.rate)
    before = sound.data[max(0, mend.start - near) : mend.start]
    around = np.concatenate([before, sound.data[mend.stop : mend.stop + near]]) / sound.scale
    mix = around.mean(1)
    power = float(mix @ mix)
    if channels == 1 or power < 1e-9 * max(1, len(mix)):
        return np.ones(channels)
    return np.asarray(around.T @ mix / power)


def _in_numbers(data: np.ndarray, sound: Sound) -> np.ndarray:
    kind = sound.data.dtype
    if kind.kind == "f":
        return data.astype(kind)
    limits = np.iinfo(kind)
    step = 256 if sound.subtype in ("PCM_24", "PCM_S8", "PCM_U8") else 1  # bits that the file does not keep
    whole = np.round(data * sound.scale / step) * step
    return np.clip(whole, limits.min, limits.max // step * step).astype(kind)


Span = tuple[float, float]
"""From and to, in seconds."""


def spans_of(text: str, option: str) -> list[Span]:
    """'1.2-1.9, 3-3.5' -> [(1.2, 1.9), (3.0, 3.5)], in order."""
    found = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*s?\s*[-–]\s*(\d+(?:\.\d*)?|\.\d+)\s*s?\s*", part)
        if match is None or float(match[1]) >= float(match[2]):
            raise UserError(f"{option} is {text!r}; write seconds from and to, such as 1.2-1.9 or 1.2-1.9,3-3.5.")
        found.append((float(match[1]), float(match[2])))
    return sorted(found)


def check_spans(spans: Sequence[Span], seconds: float, name: str) -> None:
    """They lie in a recording of so many seconds, one after another, and leave something of it."""
    for number, (start, stop) in enumerate(spans):
        if stop > seconds + 1e-3:
            raise UserError(f"{start:g}-{stop:g} lies beyond the end of {name}, which has {seconds:.2f} seconds.")
        if number and start < spans[number - 1][1]:
            raise UserError(f"The spans {spans[number - 1]} and {spans[number]} overlap: write them as one.")
    if not leaves_something(spans, seconds):
        raise UserError(f"Nothing of {name} would be left to go by: name shorter spans.")


def leaves_something(spans: Sequence[Span], seconds: float) -> bool:
    """Whether there is something beside them in a recording of so many seconds."""
    return sum(stop - start for start, stop in spans) <= seconds - 0.2


def samples_of(span: Span, sound: Sound) -> tuple[int, int]:
    """The first sample of a span and the one behind its last."""
    return round(span[0] * sound.rate), min(round(span[1] * sound.rate), len(sound.data))


def frames_of(start: int, stop: int, *, rate: int, sample_rate: int, hop: int, reach: int) -> tuple[int, int]:
    """Frames of `hop` at `sample_rate` that touch samples start … stop-1 at `rate`, and `reach` more on each side."""
    first = math.floor(start * sample_rate / (rate * hop)) - reach
    last = math.ceil(stop * sample_rate / (rate * hop)) + reach
    return max(0, first), last


def cut_out(wave: Tensor, *, first_frame: int, start: int, samples: int, rate: int, sample_rate: int, hop: int) -> Any:
    """`samples` at `rate` from sample `start` on, numpy [samples], of a wave at `sample_rate`, which begins at a frame.

    What it lacks at its end is silence.
    """
    heard = resample(wave, sample_rate, rate)
    begin = start - round(first_frame * hop * rate / sample_rate)
    piece = heard[max(0, begin) : max(0, begin) + samples].double().numpy()
    return np.pad(piece, (0, samples - len(piece)))
