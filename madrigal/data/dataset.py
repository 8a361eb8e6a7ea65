"""Crops of recordings, at one sample rate or several, as training wants them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from math import gcd, lcm
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from madrigal.data.audio import probe, read_rates, resampled_length
from madrigal.data.failures import DecodeError, FileDataset
from madrigal.data.layouts import FORMATS, find_files, has_ending
from madrigal.data.manifest import MANIFEST, Entry, Manifest
from madrigal.errors import UserError


class SoundDataset(FileDataset):
    """Crops from a plain folder of audio, a prepared folder, a manifest file or a Manifest.

    An item is {"audio": float32 [channels, samples]} at the first rate of `target_sample_hz`, with "audio_24000"
    and so on for further rates, all of the same span of time. `fields` adds strings: "path", and what the
    manifest has, such as "text" or "speaker" ("" where it has none). The field "reaches_end" adds a bool: the crop
    holds the true end of the recording, up to less than one multiple. Random crops then are the last of their
    recording as often as cutting it into pieces would give it, or hardly any end would ever be seen.

    `max_length` counts samples at the first rate. A longer file is cropped, at a random place with `random_crop`
    and at its start without; a shorter one comes whole, and collation pads it. The end is cut so that each rate
    has a multiple of its `seq_len_multiple_of`. A gain is drawn from the range `gain_db`, and lowered where the
    crop would clip.
    """

    def __init__(
        self,
        folder: str | Path | Manifest,
        target_sample_hz: int | tuple[int, ...],
        *,
        max_length: int | None = None,
        seq_len_multiple_of: int | tuple[int | None, ...] | None = None,
        exts: Sequence[str] | None = None,
        channels: int | None = 1,
        random_crop: bool = True,
        gain_db: tuple[float, float] = (0.0, 0.0),
        fields: Sequence[str] = (),
        rejected_path: str | Path | None = None,
    ) -> None:
        files, self.entries = _recordings(folder, exts)
        super().__init__(files, rejected_path)
        self.target_sample_hz = _rates(target_sample_hz)
        self.multiples = _multiples(seq_len_multiple_of, len(self.target_sample_hz))
        self.max_length = _whole_length(max_length, self.multiples[0])
        if channels not in (None, 1, 2):
            raise UserError(f"channels is {channels}; give 1 for mono, 2 for stereo or none to keep the file's.")
        if not gain_db[0] <= gain_db[1]:
            raise UserError(f"gain_db is {gain_db}; give the lower end of the range first.")
        self.channels, self.random_crop, self.gain_db = channels, random_crop, (gain_db[0], gain_db[1])
        self.fields = tuple(fields)
        self._lengths: dict[int, int] = {}

    def for_evaluation(self) -> SoundDataset:
        """The same recordings without augmentation."""
        plain = copy.copy(self)
        plain.gain_db = (0.0, 0.0)
        return plain

    def seconds(self, index: int) -> float:
        """Length of the item after cropping, from the manifest or the file's header; for length buckets."""
        length = self._length(index)
        return min(length, self.max_length or length) / self.target_sample_hz[0]

    def load(self, index: int, rng: np.random.Generator) -> dict[str, Any]:
        """Decode the crop that `rng` chooses and no more of the file."""
        path, length = self.files[index], self._length(index)
        start, frames = self._crop(length, rng)
        waves = read_rates(path, self.target_sample_hz, start=start, frames=frames, channels=self.channels)
        samples = waves[0].shape[-1]
        # A lossy file may lack a block at its end, but what lacks more has changed since it was prepared.
        if samples == 0 or samples < frames - self.target_sample_hz[0] // 5:
            raise DecodeError.of(path, "it is shorter than it was when its length was noted")
        gain = self._gain(waves, rng)
        item: dict[str, Any] = {}
        for rate, wave in zip(self.target_sample_hz, self._curtail(waves)):
            item[f"audio_{rate}" if item else "audio"] = wave * gain
        # What came out shorter than asked for ended there, whatever the header says.
        end = start + samples if samples < frames else length
        is_end = start + item["audio"].shape[-1] > end - self.multiples[0]
        item.update((field, is_end if field == "reaches_end" else self._field(index, field)) for field in self.fields)
        return item

    def _crop(self, length: int, rng: np.random.Generator) -> tuple[int, int]:
        """Where to begin and how much to read, at the first rate."""
        frames = min(length, self.max_length or length)
        if not self.random_crop or frames == length:
            return 0, frames
        # Begin where samples of all rates fall together, or the rates would be shifted against each other.
        grid = self.target_sample_hz[0] // gcd(*self.target_sample_hz)
        if "reaches_end" in self.fields and rng.integers(-(-length // frames)) == 0:
            start = -(-(length - frames) // grid) * grid
            return start, length - start
        return int(rng.integers((length - frames) // grid + 1)) * grid, frames

    def _gain(self, waves: list[Tensor], rng: np.random.Generator) -> float:
        if self.gain_db == (0, 0):
            return 1.0
        gain = 10 ** (float(rng.uniform(*self.gain_db)) / 20)
        peak = max(float(wave.abs().max()) for wave in waves)
        return min(gain, max(1.0, 1 / peak)) if peak > 0 else gain

    def _curtail(self, waves: list[Tensor]) -> list[Tensor]:
        """Cut the ends to multiples: all rates at the same time if that costs less than a quarter, or else alone."""
        first, samples = self.target_sample_hz[0], waves[0].shape[-1]
        unit = lcm(*(m * first // gcd(m * first, rate) for rate, m in zip(self.target_sample_hz, self.multiples)))
        common = samples // unit * unit
        if 4 * common >= 3 * samples:
            return [wave[:, : common * rate // first] for rate, wave in zip(self.target_sample_hz, waves)]
        # What is shorter than one multiple stays whole, for a wave must not be empty.
        ends = [wave.shape[-1] // m * m or wave.shape[-1] for wave, m in zip(waves, self.multiples)]
        return [wave[:, :end] for wave, end in zip(waves, ends)]

    def _length(self, index: int) -> int:
        """Samples of the whole file at the first rate."""
        entry = self.entries[index]
        if entry is not None:
            return resampled_length(entry.frames, entry.sample_rate, self.target_sample_hz[0])
        if index not in self._lengths:
            info = probe(self.files[index])
            self._lengths[index] = resampled_length(info.frames, info.sample_rate, self.target_sample_hz[0])
        return self._lengths[index]

    def _field(self, index: int, field: str) -> str:
        if field == "path":
            return str(self.files[index])
        value = getattr(self.entries[index], field, None)
        return "" if value is None else str(value)


def _recordings(folder: str | Path | Manifest, exts: Sequence[str] | None) -> tuple[list[Path], Sequence[Entry | None]]:
    """The files, and what the manifest says about each (None without a manifest)."""
    if isinstance(folder, Manifest):
        manifest = folder
    else:
        path = Path(folder)
        if not path.exists():
            raise UserError(f"There is no folder or manifest {path}; give the folder that holds the audio.")
        if path.is_dir() and not (path / MANIFEST).is_file():
            files = find_files(path, exts or FORMATS)
            return _some(files, path, exts), [None] * len(files)
        manifest = Manifest.load(path)
    entries = [entry for entry in manifest if exts is None or has_ending(entry.path, exts)]
    return _some([manifest.resolve(entry) for entry in entries], manifest.root, exts), entries


def _some(files: list[Path], folder: Path, exts: Sequence[str] | None) -> list[Path]:
    if not files:
        raise UserError(f"{folder} holds no audio files ({', '.join(exts or FORMATS)}); give another folder.")
    return files


def _rates(given: int | tuple[int, ...]) -> tuple[int, ...]:
    rates = tuple(given) if isinstance(given, tuple | list) else (given,)
    if not rates or len(set(rates)) < len(rates) or any(rate != int(rate) or rate < 1 for rate in rates):
        raise UserError(f"target_sample_hz is {given}; give one rate in Hz, or several different ones.")
    return tuple(int(rate) for rate in rates)


def _multiples(given: int | tuple[int | None, ...] | None, count: int) -> tuple[int, ...]:
    values = tuple(given) if isinstance(given, tuple | list) else (given,) * count
    if len(values) != count or any(value is not None and value < 1 for value in values):
        raise UserError(f"seq_len_multiple_of is {given}; give one positive number, or one for each rate.")
    return tuple(value or 1 for value in values)


def _whole_length(max_length: float | None, multiple: int) -> int | None:
    """A maximal length in whole multiples, at least one; seconds times a rate may come as a float."""
    if max_length is None:
        return None
    if max_length < 1:
        raise UserError(f"max_length is {max_length}; give a number of samples above zero, or none for all.")
    return max(1, int(max_length) // multiple) * multiple
