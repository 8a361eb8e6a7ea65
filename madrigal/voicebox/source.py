"""Recordings with their symbols in time: crops of sound, the symbols that sound in them, and ids at frame rate.

An item of `AlignedDataset`, and what `collate_aligned` makes of several:

    audio      float32 [1, frames * hop]     [batch, 1, samples]; `lengths` [batch] in samples
    ids        int64 [frames]                [batch, frames], padded with -1; `ids_lengths`
    symbols    int64 [symbols]               [batch, symbols], padded with -1; `symbols_lengths`
    durations  int64 [symbols]               [batch, symbols], padded with 0
    speaker    str                           a list
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from pydantic import Field

from madrigal.data.audio import read
from madrigal.data.collate import collate, join_tokens
from madrigal.data.failures import DecodeError, FileDataset
from madrigal.data.manifest import Entry, Manifest
from madrigal.data.source import Source, manifest_of
from madrigal.errors import UserError
from madrigal.voicebox.alignments import AnyAlignments
from madrigal.voicebox.expand import crop, expand
from madrigal.voicebox.finding import find_alignments

Say = Callable[[str], object]
ROWS = ("ids", "symbols", "durations")


class AlignedSource(Source):
    """Recordings, and what `madrigal align` has found in them."""

    alignments: Path = Field(description="a folder of `madrigal align`, or of semantic tokens")
    max_length_seconds: float | None = Field(None, gt=0, description="length of a crop; none takes whole recordings")
    min_confidence: float = Field(0.0, ge=0, le=1, description="recordings aligned with less are left out")

    def datasets(
        self,
        grid: tuple[int, int] | None,
        *,
        audio: bool = True,
        prepared_in: Path,
        anew: bool = False,
        say: Say | None = None,
    ) -> tuple[AlignedDataset, AlignedDataset | None]:
        """The training set, and the validation set where one is named.

        `grid` is the sample rate and hop of the frames that are wanted; None takes those of the alignments.
        """

        def dataset(path: Path, name: str) -> AlignedDataset:
            manifest = manifest_of(path, prepared_in / name, anew=anew, say=say)
            found = AlignedDataset(
                manifest,
                find_alignments(self.alignments, manifest, grid),
                max_seconds=self.max_length_seconds,
                min_confidence=self.min_confidence,
                audio=audio,
                rejected_path=prepared_in / name / "rejected.jsonl",
            )
            if found.left_out and say is not None:
                say(f"{len(found.left_out)} of {len(manifest)} recordings of {path} are left out ({_counted(found)})")
            return found

        return dataset(self.path, "train"), dataset(self.valid_path, "valid") if self.valid_path else None


def _counted(dataset: AlignedDataset) -> str:
    reasons = list(dataset.left_out.values())
    return ", ".join(f"{reasons.count(reason)}: {reason}" for reason in dict.fromkeys(reasons))


class AlignedDataset(FileDataset):
    """The aligned recordings of a manifest, as the items that this module describes.

    A recording longer than `max_seconds` is cropped at a frame, at a random place with `random_crop` and at its start
    without; the symbols that sound in the crop come with the frames that are inside. Without `audio` only symbols,
    durations and `fields` of the manifest come. `left_out` says which recordings are not here and why.
    """

    def __init__(
        self,
        manifest: Manifest,
        alignments: AnyAlignments,
        *,
        max_seconds: float | None = None,
        min_confidence: float = 0.0,
        audio: bool = True,
        random_crop: bool = True,
        fields: Sequence[str] = ("speaker",),
        rejected_path: Path | None = None,
    ) -> None:
        self.alignments, self.info = alignments, alignments.info
        self.audio, self.random_crop, self.fields = audio, random_crop, tuple(fields)
        self.left_out: dict[str, str] = {}
        self.entries = [entry for entry in manifest if self._is_usable(entry, min_confidence)]
        if not self.entries:
            raise UserError(f"None of the {len(manifest)} recordings of {manifest.root} can be used: align it again.")
        super().__init__([manifest.resolve(entry) for entry in self.entries], rejected_path)
        self.max_frames = None if max_seconds is None else max(1, int(max_seconds * self.info.frame_rate))

    def _is_usable(self, entry: Entry, min_confidence: float) -> bool:
        if entry.path in self.alignments.failed:
            self.left_out[entry.path] = self.alignments.failed[entry.path]
        elif self.alignments.confidence(entry.path) < min_confidence:
            self.left_out[entry.path] = f"aligned with a confidence below {min_confidence:g}"
        else:
            seconds = self.alignments.frames(entry.path) / self.info.frame_rate
            # Another manifest may have another recording of the same relative name.
            if abs(seconds - entry.duration) > 0.2 + 0.05 * entry.duration:
                raise UserError(
                    f"The alignment of {entry.path} covers {seconds:.2f} seconds, and the recording has "
                    f"{entry.duration:.2f}: it is of another recording of that name; align this manifest."
                )
        return entry.path not in self.left_out

    def for_evaluation(self) -> AlignedDataset:
        """The same recordings without augmentation, of which there is none."""
        return self

    def frames(self, index: int) -> int:
        """Length of the item after cropping."""
        frames = self.alignments.frames(self.entries[index].path)
        return min(frames, self.max_frames or frames)

    def seconds(self, index: int) -> float:
        """Length of the item after cropping, for batches by seconds."""
        return self.frames(index) / self.info.frame_rate

    def tokens(self, index: int) -> int:
        """Symbols of the whole recording, for batches by tokens."""
        return self.alignments.size(self.entries[index].path)

    def load(self, index: int, rng: np.random.Generator) -> dict[str, Any]:
        entry = self.entries[index]
        symbols, durations = self.alignments.row(entry.path)
        frames, size = int(durations.sum()), self.frames(index)
        start = int(rng.integers(frames - size + 1)) if self.random_crop and size < frames else 0
        symbols, durations = crop(symbols, durations, start, start + size)
        item: dict[str, Any] = {"symbols": symbols, "durations": durations}
        if self.audio:
            item["audio"] = self._wave(index, start, size)
            item["ids"] = expand(symbols[None], durations[None])[0]
        item.update((field, self._field(entry, field)) for field in self.fields)
        return item

    def _wave(self, index: int, start: int, size: int) -> torch.Tensor:
        hop, path = self.info.hop, self.files[index]
        wave = read(path, start=start * hop, frames=size * hop, sample_rate=self.info.sample_rate, channels=1)
        missing = size * hop - wave.shape[-1]
        if missing > self.info.sample_rate // 5:
            raise DecodeError.of(path, "it is shorter than it was when it was aligned")
        return F.pad(wave, (0, missing))

    def _field(self, entry: Entry, field: str) -> str:
        value = getattr(entry, field, None)
        return "" if value is None else str(value)


def collate_aligned(items: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Items to a batch; padding is as this module says."""
    batch = collate([{key: value for key, value in item.items() if key not in ROWS} for item in items])
    for key in ROWS:
        has = [key in item for item in items]
        if any(has) and not all(has):
            raise UserError(f'Some items of a batch have "{key}" and others have none: give them to all or to none.')
        if all(has):
            batch[key], lengths = join_tokens(key, [item[key] for item in items])
            if key == "durations":
                batch[key] = batch[key].clamp(min=0)
            else:
                batch[f"{key}_lengths"] = lengths
    return batch
