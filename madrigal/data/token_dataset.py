"""Crops of tokenized recordings: semantic ids and acoustic codes of the same span of time."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import ceil, floor, gcd, lcm
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from madrigal.data.manifest import Entry, Manifest
from madrigal.data.tokens import TokenShards
from madrigal.errors import UserError

# Rates that never meet within so long (50 a second and 44100/512) start on the slower one's frames instead.
_LONGEST_GRID = Fraction(1, 2)


class TokenDataset(Dataset[dict[str, Any]]):
    """The recordings of a manifest as {"semantic": int64 [time], "acoustic": int64 [frames, quantizers]}.

    An item has what shards were given for, "reaches_end" (bool: the crop holds the true end of the recording), and
    `fields` of the manifest as strings ("" where it has none; "path" is the recording's name). Both streams of a
    recording longer than `max_seconds` are cropped to the same span, which begins where frames of both begin.

    With `random_crop` any place may be drawn, and the end as often as cutting the recording into pieces would
    give it: one crop of a recording three times too long is its last, so that a model gets to see how recordings end.
    Without `random_crop` it is the start. Recordings without tokens are in `left_out` with their reason.

    With `condition`, codes of what is heard from each second on, an item has its crop's "condition_ids" int64 [levels].
    """

    def __init__(
        self,
        manifest: Manifest,
        semantic: TokenShards | None = None,
        acoustic: TokenShards | None = None,
        *,
        condition: TokenShards | None = None,
        max_seconds: float | None = None,
        fields: Sequence[str] = ("text", "speaker"),
        random_crop: bool = True,
    ) -> None:
        streams = {"semantic": semantic, "acoustic": acoustic}
        self.streams = {name: shards for name, shards in streams.items() if shards is not None}
        if not self.streams:
            raise UserError("A dataset of tokens needs semantic or acoustic tokens; give one of them.")
        self.condition, self.fields, self.random_crop = condition, tuple(fields), random_crop
        self.left_out: dict[str, str] = {}
        self.root = manifest.root
        self.entries = [entry for entry in manifest if self._has_tokens(entry)]
        if not self.entries:
            raise UserError(f"None of the {len(manifest)} recordings of {manifest.root} has tokens; tokenize it again.")
        self.grid = shared_grid([shards.info.rate for shards in self.streams.values()])
        self.span = None if max_seconds is None else _whole_units(max_seconds, self.grid)

    def for_evaluation(self) -> TokenDataset:
        """The same recordings without augmentation, of which there is none."""
        return self

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, index: int) -> dict[str, Any]:
        index = range(len(self))[index]
        return self.draw(index, np.random.default_rng(index))

    def draw(self, index: int, rng: np.random.Generator) -> dict[str, Any]:
        """Item `index`, with the crop that `rng` chooses."""
        entry = self.entries[range(len(self))[index]]
        item: dict[str, Any] = {}
        begin, is_end = self._crop(entry, rng)
        for name, shards in self.streams.items():
            start, frames = self._frames(shards, begin), shards.frames(entry.path)
            stop = frames if self.span is None else min(frames, start + self._frames(shards, self.span))
            item[name] = torch.from_numpy(shards.tokens(entry.path, start, stop))
            is_end &= stop == frames
        item["reaches_end"] = is_end
        if self.condition is not None:
            item["condition_ids"] = torch.from_numpy(self._heard_from(self.condition, entry, begin))
        item.update((field, self._field(entry, field)) for field in self.fields)
        return item

    def tokens(self, index: int) -> int:
        """Ids in the item (each quantizer's counts), for length buckets."""
        path = self.entries[index].path
        return sum(
            min(shards.frames(path), shards.frames(path) if self.span is None else self._frames(shards, self.span))
            * max(1, shards.info.quantizers)
            for shards in self.streams.values()
        )

    def seconds(self, index: int) -> float:
        """Length of the item after cropping."""
        units = self._units(self.entries[index])
        return float(self.grid * (units if self.span is None else min(units, self.span)))

    def _crop(self, entry: Entry, rng: np.random.Generator) -> tuple[int, bool]:
        """Where to begin, in units of the grid, and whether the end is inside."""
        units = self._units(entry)
        if self.span is None or units <= self.span:
            return 0, True
        if not self.random_crop:
            return 0, False
        last = units - self.span
        start = last if rng.integers(-(-units // self.span)) == 0 else int(rng.integers(last + 1))
        return start, start == last

    def _units(self, entry: Entry) -> int:
        """Length in units of the grid; the last may be a part of one, and streams may differ there by a frame."""
        ends = [shards.frames(entry.path) / shards.info.rate for shards in self.streams.values()]
        # The longest stream counts, as long as the last crop has something of the shortest too.
        longest, shortest = ceil(max(ends) / self.grid), ceil(min(ends) / self.grid)
        return min(longest, shortest + (self.span or longest) - 1)

    def _frames(self, shards: TokenShards, units: int) -> int:
        return round(units * self.grid * shards.info.rate)

    def _heard_from(self, condition: TokenShards, entry: Entry, begin: int) -> np.ndarray:
        """Codes [levels] of the window that begins nearest to the crop."""
        frame = min(self._frames(condition, begin), condition.frames(entry.path) - 1)
        return np.asarray(condition.tokens(entry.path, frame, frame + 1)[0])

    def _has_tokens(self, entry: Entry) -> bool:
        given = {} if self.condition is None else {"condition": self.condition}
        for name, shards in {**self.streams, **given}.items():
            if entry.path in shards.failed:
                self.left_out[entry.path] = f"{name}: {shards.failed[entry.path]}"
                return False
            expected = entry.duration * shards.info.frame_rate
            # Another manifest may have another recording of the same relative name.
            if abs(shards.frames(entry.path) - expected) > 5 + 0.05 * expected:
                raise UserError(
                    f"{shards.folder} has {shards.frames(entry.path)} frames for {entry.path}, which do not fit its "
                    f"{entry.duration:g} seconds: they are of another recording of that name; tokenize this manifest."
                )
        return True

    def _field(self, entry: Entry, field: str) -> str:
        value = getattr(entry, field, None)
        return "" if value is None else str(value)


def shared_grid(rates: Sequence[Fraction]) -> Fraction:
    """The shortest time after which frames of all rates begin together again, or the slowest rate's frame."""
    periods = [1 / rate for rate in rates]
    together = Fraction(lcm(*(p.numerator for p in periods)), gcd(*(p.denominator for p in periods)))
    return together if together <= _LONGEST_GRID or len(periods) == 1 else max(periods)


def _whole_units(max_seconds: float, grid: Fraction) -> int:
    # 0.52 as a float is a little less than thirteen times a twenty-fifth of a second.
    units = floor(Fraction(max_seconds).limit_denominator(1_000_000) / grid)
    if units < 1:
        raise UserError(f"max_seconds is {max_seconds}; give at least {float(grid):g}, one frame of all streams.")
    return units
