"""Tokens on disk: what a tokenizer made of every recording of a manifest, in shards that are mapped into memory.

A folder KIND-FINGERPRINT-MANIFEST holds `tokens.json`, which says what the ids mean, and for each shard an array with
the tokens of its recordings one after another (`shard-00000.npy`) and the list of these recordings
(`shard-00000.json`). `token_writing.py` writes them; docs/tokens.md describes them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from madrigal.data.manifest import Entry, Manifest
from madrigal.data.shards import ShardEntry, Shards, Words
from madrigal.errors import UserError

PAD = -1
"""What fills a batch behind the end of a row of tokens. It is no id: lengths or a mask always come with it."""

TOKENS = "tokens.json"
WORDS = Words("tokens", "tokenize", "madrigal tokenize MANIFEST --with TOKENIZER")


class TokenInfo(BaseModel):
    """What the ids of a folder mean: semantic ids [time] where `quantizers` is 0, else codes [frames, quantizers]."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: str = Field(description="kind of the tokenizer or codec")
    fingerprint: str = Field(description="of its options and weights")
    frame_rate: float = Field(gt=0, description="frames (semantic: tokens) a second")
    codebook_size: int = Field(gt=0, description="ids are below this")
    quantizers: int = Field(0, ge=0, description="columns of the codes, level by level; 0 for semantic ids")
    groups: int = Field(1, gt=0, description="columns that belong to one level")

    @property
    def rate(self) -> Fraction:
        """Frames a second as the exact number that a sample rate divided by a hop is."""
        return Fraction(self.frame_rate).limit_denominator(100_000)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The smallest of two types that holds every id."""
        return np.dtype("<u2" if self.codebook_size <= 1 << 16 else "<u4")

    def shape(self, frames: int) -> tuple[int, ...]:
        """Of an array of so many frames."""
        return (frames, self.quantizers) if self.quantizers else (frames,)


class TokenSet(TokenInfo):
    """The content of `tokens.json`, which is written when the last shard is there."""

    format: Literal[1] = 1
    manifest: str = Field(description="digest of the manifest's recordings")
    entries: int = Field(ge=0, description="recordings, those without tokens included")
    failed: int = Field(ge=0, description="recordings without tokens; their shards say why")
    frames: int = Field(ge=0, description="frames of all recordings together")
    shards: int = Field(ge=0)


class Shard(BaseModel):
    """The content of `shard-00000.json`: the recordings in the manifest's order, and the checksum of the array."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    recordings: str = Field(description="digest of the recordings that the shard is for")
    crc32: str = Field(description="checksum of the array's file")
    entries: list[ShardEntry]


class TokenShards(Shards[TokenSet, ShardEntry]):
    """The tokens of a manifest's recordings: `tokens(path)` gives ids [time] or codes [frames, quantizers]."""

    words = WORDS
    set_file = TOKENS
    kinds = TokenSet, Shard

    @classmethod
    def find(cls, folder: str | Path, fingerprint: str, manifest: Manifest | None = None) -> TokenShards:
        """The shards below `folder` that the tokenizer or codec with this fingerprint made of a manifest.

        They may have been made of a larger manifest. Without a `manifest` there must be only one.
        """
        found = [path.parent for path in sorted(Path(folder).glob(f"*-{fingerprint}-*/{TOKENS}"))]
        if manifest is not None:
            own = [path for path in found if path.name.endswith(f"-{digest(manifest.entries)}")]
            wanted = {entry.path for entry in manifest}
            for path in own or found:
                shards = cls.open(path)
                if all(map(shards.knows, wanted)):
                    return shards
            found = []
        if len(found) > 1:
            raise UserError(f"{folder} holds tokens of several manifests; name one of its folders, as {found[0]}.")
        if not found:
            raise UserError(
                f"{folder} holds no finished tokens of {'this manifest by ' if manifest else ''}the tokenizer "
                f"{fingerprint}; make them with `madrigal tokenize MANIFEST --with TOKENIZER -o {folder}`."
            )
        return cls.open(found[0])

    def tokens(self, path: str, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Frames start…stop of a recording as int64 [time] or [frames, quantizers]; no more is read from the disk."""
        number, entry = self._place(path)
        stop = entry.frames if stop is None else min(stop, entry.frames)
        array = self._map(number)
        return array[entry.start + start : entry.start + max(start, stop)].astype(np.int64)

    def fits(self, array: np.ndarray) -> bool:
        return array.shape[1:] == self.info.shape(0)[1:] and array.dtype == self.info.dtype


def digest(entries: Sequence[Entry]) -> str:
    """Sixteen hex digits that change with the recordings and their order, but not with texts or speakers."""
    lines = [json.dumps([entry.path, entry.duration, entry.sample_rate, entry.channels]) for entry in entries]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
