"""Folders of shards, mapped into memory: what something made of every recording of a manifest.

A shard is an array with what belongs to its recordings, one after another (`shard-00000.npy`), and the list of these
recordings (`shard-00000.json`). Tokens and alignments lie on disk like this.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from madrigal.errors import UserError

# A map holds a file open, and a process may have about a thousand of these.
_MAX_OPEN = 128

Model = TypeVar("Model", bound=BaseModel)


class Words(NamedTuple):
    """How sentences speak of a kind of shards: what they hold, the verb that makes them, and its whole command."""

    what: str
    verb: str
    command: str


class ShardEntry(BaseModel):
    """One recording of a shard: where its frames lie, or the reason why it has none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    start: int = Field(0, ge=0)
    frames: int = Field(0, ge=0)
    reason: str | None = None


class AnySet(Protocol):
    """What all shards of a folder have in common."""

    @property
    def shards(self) -> int: ...


Info = TypeVar("Info", bound=AnySet)
EntryKind = TypeVar("EntryKind", bound=ShardEntry)


class Shards(Generic[Info, EntryKind]):
    """The finished shards of a folder.

    `paths` are the recordings that have something, in the manifest's order and as the manifest names them; `failed`
    says why the others have nothing. A shard's array is checked when it is first mapped.
    """

    words: ClassVar[Words]
    set_file: ClassVar[str]
    """The file that is written when the last shard is there."""
    kinds: ClassVar[tuple[type[BaseModel], type[BaseModel]]]
    """What that file holds, and what the list of a shard holds."""

    def __init__(self, folder: Path, info: Info) -> None:
        self.folder, self.info = folder, info
        self.failed: dict[str, str] = {}
        self._places: dict[str, tuple[int, EntryKind]] = {}
        self._checksums: list[str] = []
        self._checked: set[int] = set()
        self._maps: OrderedDict[int, np.ndarray] = OrderedDict()
        for number in range(info.shards):
            shard: Any = read_json(shard_file(folder, number, "json"), self.kinds[1], self.words)
            self._checksums.append(shard.crc32)
            for entry in shard.entries:
                if entry.reason is None:
                    self._places[entry.path] = number, entry
                else:
                    self.failed[entry.path] = entry.reason

    @classmethod
    def open(cls, folder: str | Path) -> Self:
        """Those of a folder that was finished."""
        folder, (what, verb, command) = Path(folder), cls.words
        if not (folder / cls.set_file).is_file():
            raise UserError(
                f"{folder} holds no finished {what}: start `madrigal {verb}` again, it goes on where it was."
                if folder.is_dir()
                else f"There are no {what} at {folder}; make them with `{command}`."
            )
        info: Any = read_json(folder / cls.set_file, cls.kinds[0], cls.words)
        return cls(folder, info)

    @property
    def paths(self) -> list[str]:
        return list(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, path: str) -> bool:
        return path in self._places

    @property
    def reasons(self) -> dict[str, int]:
        """How many recordings have nothing for each reason, the most frequent first."""
        return dict(Counter(self.failed.values()).most_common())

    def summary(self, found: str) -> str:
        """What was `found`, where it is, and what could not be had, to be shown."""
        found = f"{found} -> {self.folder}"
        if not self.failed:
            return found
        listed = ", ".join(f"{count}: {reason}" for reason, count in self.reasons.items())
        return f"{found}\n{len(self.failed)} files have no {self.words.what} ({listed}): see the shards' lists"

    def knows(self, path: str) -> bool:
        """Whether it was tried to make something of the recording."""
        return path in self._places or path in self.failed

    def frames(self, path: str) -> int:
        """Length of a recording in frames."""
        return self._place(path)[1].frames

    def fits(self, array: np.ndarray) -> bool:
        """Whether an array is of the shape and type that the shards of this kind have."""
        raise NotImplementedError

    def _place(self, path: str) -> tuple[int, EntryKind]:
        if path in self._places:
            return self._places[path]
        if path in self.failed:
            raise UserError(f"The recording {path} has no {self.words.what} in {self.folder}: {self.failed[path]}.")
        raise UserError(f"{self.folder} knows no recording {path}; {self.words.verb} the manifest that names it.")

    def _map(self, number: int) -> np.ndarray:
        if number in self._maps:
            self._maps.move_to_end(number)
            return self._maps[number]
        file = shard_file(self.folder, number, "npy")
        try:
            if number not in self._checked and checksum(file.read_bytes()) != self._checksums[number]:
                raise ValueError("its checksum differs")
            array: np.ndarray = np.load(file, mmap_mode="r", allow_pickle=False)
            if not self.fits(array):
                raise ValueError(f"it holds {array.dtype} {list(array.shape)}")
        except (OSError, ValueError) as error:
            raise damaged(file, error, self.words) from error
        self._checked.add(number)
        self._maps[number] = array
        if len(self._maps) > _MAX_OPEN:
            self._maps.popitem(last=False)
        return array

    def __getstate__(self) -> dict[str, Any]:
        # A map sent to another process would arrive as a copy of the whole shard.
        return {**self.__dict__, "_maps": OrderedDict()}


def shard_file(folder: Path, number: int, ending: str) -> Path:
    """Where the array ("npy") or the list ("json") of a shard lies."""
    return folder / f"shard-{number:05d}.{ending}"


def finished_list(folder: Path, number: int, kind: type[Model], recordings: str, words: Words) -> Model | None:
    """The list of a shard that is there for the recordings of this digest, whole and undamaged, or else None."""
    try:
        shard: Any = read_json(shard_file(folder, number, "json"), kind, words)
        data = shard_file(folder, number, "npy").read_bytes()
    except (OSError, UserError):
        return None
    return shard if (shard.recordings, shard.crc32) == (recordings, checksum(data)) else None


def checksum(data: bytes) -> str:
    """Eight hex digits of a file's bytes."""
    return f"{zlib.crc32(data):08x}"


def read_json(file: Path, kind: type[Model], words: Words) -> Model:
    """One of the JSON files of a folder of shards, checked."""
    try:
        return kind.model_validate(json.loads(file.read_bytes()))
    except (OSError, ValueError, ValidationError) as error:
        raise damaged(file, error, words) from error


def damaged(file: Path, error: Exception, words: Words) -> UserError:
    """The sentence about a file of a folder of shards that cannot be used."""
    if isinstance(error, OSError):
        reason = error.strerror or str(error)
    elif isinstance(error, ValidationError):
        first = error.errors()[0]
        reason = f"{'.'.join(map(str, first['loc']))}: {first['msg'].lower()}"
    else:
        reason = str(error)
    what, verb, _ = words
    return UserError(f"The {what} in {file} are damaged ({reason}); {verb} again, only this file is made anew.")
