"""Alignments on disk: the symbols of every recording of a manifest and how many frames each lasts, mapped into memory.

A folder align-FINGERPRINT-MANIFEST holds `alignments.json`, which says what the symbols mean, and for each shard an
array int32 [symbols, 2] with symbols and durations of its recordings one after another (`shard-00000.npy`) and the
list of these recordings (`shard-00000.json`). `aligning.py` writes them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from madrigal.data.manifest import Entry
from madrigal.data.shards import ShardEntry, Shards, Words
from madrigal.data.tokens import digest
from madrigal.voicebox.symbols import SymbolSpec

ALIGNMENTS = "alignments.json"
WORDS = Words("alignments", "align", "madrigal align RUN MANIFEST -o FOLDER")


class AlignmentInfo(BaseModel):
    """What the symbols and the frames of alignments mean."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fingerprint: str = Field(description="of the aligner, or of the tokenizer")
    symbols: SymbolSpec | None = Field(description="how text becomes symbols; null: they are semantic tokens")
    num_symbols: int = Field(ge=1, description="ids are below this")
    sample_rate: int = Field(ge=1, description="in Hz")
    hop: int = Field(ge=1, description="samples of a frame")

    @property
    def frame_rate(self) -> float:
        """Frames a second."""
        return self.sample_rate / self.hop


class AlignmentSet(AlignmentInfo):
    """The content of `alignments.json`, which is written when the last shard is there."""

    format: Literal[1] = 1
    manifest: str = Field(description="digest of the manifest's recordings and texts")
    entries: int = Field(ge=0, description="recordings, those that could not be aligned included")
    failed: int = Field(ge=0, description="recordings without an alignment; their shards say why")
    frames: int = Field(ge=0, description="frames of all recordings together")
    confidence: float = Field(ge=0, le=1, description="mean over the recordings")
    shards: int = Field(ge=0)


class AlignedEntry(ShardEntry):
    """One recording of a shard: where its symbols lie, how many frames they last, or why it has none."""

    symbols: int = Field(0, ge=0)
    confidence: float = Field(0.0, ge=0, le=1)


class AlignedShard(BaseModel):
    """The content of `shard-00000.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    recordings: str = Field(description="digest of the recordings and texts that the shard is for")
    crc32: str = Field(description="checksum of the array's file")
    entries: list[AlignedEntry]


class Timed(NamedTuple):
    """Symbols and durations of a recording, int64 [symbols] each."""

    symbols: Tensor
    durations: Tensor


class AnyAlignments(Protocol):
    """What a dataset asks of alignments; `failed` says why a recording has none."""

    @property
    def info(self) -> AlignmentInfo: ...

    @property
    def failed(self) -> dict[str, str]: ...

    def __contains__(self, path: str) -> bool: ...

    def row(self, path: str) -> Timed: ...

    def frames(self, path: str) -> int: ...

    def size(self, path: str) -> int:
        """Number of symbols."""
        ...

    def confidence(self, path: str) -> float: ...


class Alignments(Shards[AlignmentSet, AlignedEntry]):
    """The alignments of a manifest's recordings; `row(path)` gives symbols and durations."""

    words = WORDS
    set_file = ALIGNMENTS
    kinds = AlignmentSet, AlignedShard

    def row(self, path: str) -> Timed:
        number, entry = self._place(path)
        both = self._map(number)[entry.start : entry.start + entry.symbols].astype(np.int64)
        symbols, durations = torch.from_numpy(both).unbind(1)
        return Timed(symbols.contiguous(), durations.contiguous())

    def size(self, path: str) -> int:
        return self._place(path)[1].symbols

    def confidence(self, path: str) -> float:
        return self._place(path)[1].confidence

    def fits(self, array: np.ndarray) -> bool:
        return array.shape[1:] == (2,) and array.dtype == np.int32


def texts_digest(entries: Sequence[Entry]) -> str:
    """Sixteen hex digits that change with the recordings, their order and their texts."""
    texts = json.dumps([digest(entries), *(entry.text for entry in entries)])
    return hashlib.sha256(texts.encode()).hexdigest()[:16]
