"""Alignments on disk: the symbols of every recording of a manifest and how many frames each lasts, mapped into memory.

A folder align-FINGERPRINT-MANIFEST holds `alignments.json`, which says what the symbols mean, and for each shard an
array int32 [symbols, 2] with symbols and durations of its recordings one after another (`shard-00000.npy`) and the
list of these recordings (`shard-00000.json`). `aligning.py` writes them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from madrigal.data.manifest import Entry
from madrigal.data.tokens import checksum, digest, shard_file
from madrigal.errors import UserError
from madrigal.voicebox.symbols import SymbolSpec

ALIGNMENTS = "alignments.json"
Model = TypeVar("Model", bound=BaseModel)


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


class AlignedEntry(BaseModel):
    """One recording of a shard: where its symbols lie, how many frames they last, or why it has none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    start: int = Field(0, ge=0)
    symbols: int = Field(0, ge=0)
    frames: int = Field(0, ge=0)
    confidence: float = Field(0.0, ge=0, le=1)
    reason: str | None = None


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


class Alignments:
    """The alignments of a manifest's recordings; `row(path)` gives symbols and durations."""

    def __init__(self, folder: Path, info: AlignmentSet) -> None:
        self.folder, self.info = folder, info
        self.failed: dict[str, str] = {}
        self._places: dict[str, tuple[int, AlignedEntry]] = {}
        self._checksums: list[str] = []
        self._maps: dict[int, np.ndarray] = {}
        for number in range(info.shards):
            shard = read_json(shard_file(folder, number, "json"), AlignedShard)
            self._checksums.append(shard.crc32)
            for entry in shard.entries:
                if entry.reason is None:
                    self._places[entry.path] = (number, entry)
                else:
                    self.failed[entry.path] = entry.reason

    @classmethod
    def open(cls, folder: str | Path) -> Alignments:
        """The alignments of a folder that `madrigal align` has finished."""
        folder = Path(folder)
        if not (folder / ALIGNMENTS).is_file():
            raise UserError(
                f"{folder} holds no finished alignments: start `madrigal align` again, it goes on where it was."
                if folder.is_dir()
                else f"There are no alignments at {folder}; make them with `madrigal align RUN MANIFEST -o {folder}`."
            )
        return cls(folder, read_json(folder / ALIGNMENTS, AlignmentSet))

    @property
    def paths(self) -> list[str]:
        """The recordings that are aligned, in the manifest's order."""
        return list(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, path: str) -> bool:
        return path in self._places

    def knows(self, path: str) -> bool:
        """Whether it was tried to align the recording."""
        return path in self._places or path in self.failed

    def row(self, path: str) -> Timed:
        number, entry = self._place(path)
        both = self._map(number)[entry.start : entry.start + entry.symbols].astype(np.int64)
        symbols, durations = torch.from_numpy(both).unbind(1)
        return Timed(symbols.contiguous(), durations.contiguous())

    def frames(self, path: str) -> int:
        return self._place(path)[1].frames

    def size(self, path: str) -> int:
        return self._place(path)[1].symbols

    def confidence(self, path: str) -> float:
        return self._place(path)[1].confidence

    def _place(self, path: str) -> tuple[int, AlignedEntry]:
        if path in self._places:
            return self._places[path]
        if path in self.failed:
            raise UserError(f"The recording {path} has no alignment in {self.folder}: {self.failed[path]}.")
        raise UserError(f"{self.folder} knows no recording {path}; align the manifest that names it.")

    def _map(self, number: int) -> np.ndarray:
        if number not in self._maps:
            file = shard_file(self.folder, number, "npy")
            try:
                if checksum(file.read_bytes()) != self._checksums[number]:
                    raise ValueError("its checksum differs")
                self._maps[number] = np.load(file, mmap_mode="r", allow_pickle=False)
            except (OSError, ValueError) as error:
                raise damaged(file, error) from error
        return self._maps[number]

    def __getstate__(self) -> dict[str, Any]:
        # A map sent to another process would arrive as a copy of the whole shard.
        return {**self.__dict__, "_maps": {}}


def texts_digest(entries: Sequence[Entry]) -> str:
    """Sixteen hex digits that change with the recordings, their order and their texts."""
    texts = json.dumps([digest(entries), *(entry.text for entry in entries)])
    return hashlib.sha256(texts.encode()).hexdigest()[:16]


def read_json(file: Path, kind: type[Model]) -> Model:
    """One of the JSON files of a folder of alignments, checked."""
    try:
        return kind.model_validate(json.loads(file.read_bytes()))
    except (OSError, ValueError, ValidationError) as error:
        raise damaged(file, error) from error


def damaged(file: Path, error: Exception) -> UserError:
    """The sentence about a file of a folder of alignments that cannot be used."""
    reason = error.strerror if isinstance(error, OSError) else str(error).splitlines()[0]
    return UserError(f"The alignments in {file} are damaged ({reason}); align again, only this file is made anew.")
