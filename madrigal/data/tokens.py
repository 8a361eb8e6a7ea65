"""Tokens on disk: what a tokenizer made of every recording of a manifest, in shards that are mapped into memory.

A folder KIND-FINGERPRINT-MANIFEST holds `tokens.json`, which says what the ids mean, and for each shard an array with
the tokens of its recordings one after another (`shard-00000.npy`) and the list of these recordings
(`shard-00000.json`). `token_writing.py` writes them; docs/tokens.md describes them.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections import OrderedDict
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from madrigal.data.manifest import Entry, Manifest
from madrigal.errors import UserError

PAD = -1
"""What fills a batch behind the end of a row of tokens. It is no id: lengths or a mask always come with it."""

TOKENS = "tokens.json"
# A map holds a file open, and a process may have about a thousand of these.
_MAX_OPEN = 128

Model = TypeVar("Model", bound=BaseModel)


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


class ShardEntry(BaseModel):
    """One recording of a shard: where its frames lie, or the reason why it has none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    start: int = Field(0, ge=0)
    frames: int = Field(0, ge=0)
    reason: str | None = None


class Shard(BaseModel):
    """The content of `shard-00000.json`: the recordings in the manifest's order, and the checksum of the array."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    recordings: str = Field(description="digest of the recordings that the shard is for")
    crc32: str = Field(description="checksum of the array's file")
    entries: list[ShardEntry]


class _Place(NamedTuple):
    shard: int
    start: int
    frames: int


class TokenShards:
    """The tokens of a manifest's recordings: `tokens(path)` gives ids [time] or codes [frames, quantizers].

    `paths` are the recordings that have tokens, in the manifest's order and as the manifest names them; `failed`
    says why the others have none. A shard's array is checked when it is first mapped.
    """

    def __init__(self, folder: Path, info: TokenSet) -> None:
        self.folder, self.info = folder, info
        self.failed: dict[str, str] = {}
        self._places: dict[str, _Place] = {}
        self._checksums: list[str] = []
        self._checked: set[int] = set()
        self._maps: OrderedDict[int, np.ndarray] = OrderedDict()
        for number in range(info.shards):
            shard = read_json(shard_file(folder, number, "json"), Shard)
            self._checksums.append(shard.crc32)
            for entry in shard.entries:
                if entry.reason is None:
                    self._places[entry.path] = _Place(number, entry.start, entry.frames)
                else:
                    self.failed[entry.path] = entry.reason

    @classmethod
    def open(cls, folder: str | Path) -> TokenShards:
        """The shards of a folder that tokenizing has finished."""
        folder = Path(folder)
        if not (folder / TOKENS).is_file():
            raise UserError(
                f"{folder} holds no finished tokens: start `madrigal tokenize` again, it goes on where it was."
                if folder.is_dir()
                else f"There are no tokens at {folder}; make them with `madrigal tokenize MANIFEST --with TOKENIZER`."
            )
        return cls(folder, read_json(folder / TOKENS, TokenSet))

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
                if wanted <= shards._places.keys() | shards.failed.keys():
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

    @property
    def paths(self) -> list[str]:
        return list(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, path: str) -> bool:
        return path in self._places

    def frames(self, path: str) -> int:
        """Length of a recording in frames."""
        return self._place(path).frames

    def tokens(self, path: str, start: int = 0, stop: int | None = None) -> np.ndarray:
        """Frames start…stop of a recording as int64 [time] or [frames, quantizers]; no more is read from the disk."""
        place = self._place(path)
        stop = place.frames if stop is None else min(stop, place.frames)
        array = self._map(place.shard)
        return array[place.start + start : place.start + max(start, stop)].astype(np.int64)

    def _place(self, path: str) -> _Place:
        if path in self._places:
            return self._places[path]
        if path in self.failed:
            raise UserError(f"The recording {path} has no tokens in {self.folder}: {self.failed[path]}.")
        raise UserError(f"{self.folder} knows no recording {path}; tokenize the manifest that names it.")

    def _map(self, number: int) -> np.ndarray:
        if number in self._maps:
            self._maps.move_to_end(number)
            return self._maps[number]
        file = shard_file(self.folder, number, "npy")
        try:
            if number not in self._checked and checksum(file.read_bytes()) != self._checksums[number]:
                raise ValueError("its checksum differs")
            array: np.ndarray = np.load(file, mmap_mode="r", allow_pickle=False)
            if array.shape[1:] != self.info.shape(0)[1:] or array.dtype != self.info.dtype:
                raise ValueError(f"it holds {array.dtype} {list(array.shape)}")
        except (OSError, ValueError) as error:
            raise damaged(file, error) from error
        self._checked.add(number)
        self._maps[number] = array
        if len(self._maps) > _MAX_OPEN:
            self._maps.popitem(last=False)
        return array

    def __getstate__(self) -> dict[str, Any]:
        # A map sent to another process would arrive as a copy of the whole shard.
        return {**self.__dict__, "_maps": OrderedDict()}


def digest(entries: Sequence[Entry]) -> str:
    """Sixteen hex digits that change with the recordings and their order, but not with texts or speakers."""
    lines = [json.dumps([entry.path, entry.duration, entry.sample_rate, entry.channels]) for entry in entries]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def shard_file(folder: Path, number: int, ending: str) -> Path:
    """Where the array ("npy") or the list ("json") of a shard lies."""
    return folder / f"shard-{number:05d}.{ending}"


def checksum(data: bytes) -> str:
    """Eight hex digits of a file's bytes."""
    return f"{zlib.crc32(data):08x}"


def read_json(file: Path, kind: type[Model]) -> Model:
    """One of the JSON files of a folder of tokens, checked."""
    try:
        return kind.model_validate(json.loads(file.read_bytes()))
    except (OSError, ValueError, ValidationError) as error:
        raise damaged(file, error) from error


def damaged(file: Path, error: Exception) -> UserError:
    """The sentence about a file of a folder of tokens that cannot be used."""
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
    elif isinstance(error, ValidationError):
        first = error.errors()[0]
        reason = f"{'.'.join(map(str, first['loc']))}: {first['msg'].lower()}"
    else:
        reason = str(error)
    return UserError(f"The tokens in {file} are damaged ({reason}); tokenize again, only this file is made anew.")
