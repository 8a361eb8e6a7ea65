"""The list of a dataset's recordings or pictures, one JSON object a line, that a person can read and edit."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from madrigal.errors import UserError

MANIFEST = "manifest.jsonl"
REJECTED = "rejected.jsonl"


class Entry(BaseModel):
    """One recording: where it is, how long it is in seconds, and what is said in it and by whom, if known."""

    model_config = ConfigDict(frozen=True, extra="allow")

    path: str
    duration: float = Field(gt=0)
    sample_rate: int = Field(gt=0)
    channels: int = Field(gt=0)
    text: str | None = None
    speaker: str | None = None
    licence: str | None = None

    @property
    def frames(self) -> int:
        """Samples per channel in the file."""
        return round(self.duration * self.sample_rate)


class PictureEntry(BaseModel):
    """One picture: where it is, its size in pixels as it is looked at (upright), and its caption, if known."""

    model_config = ConfigDict(frozen=True, extra="allow")

    path: str
    width: int = Field(gt=0)
    height: int = Field(gt=0)
    text: str | None = None
    licence: str | None = None


AnyEntry = TypeVar("AnyEntry", Entry, PictureEntry)


class Listing(Generic[AnyEntry]):
    """Entries and the folder that their relative paths start from."""

    kind: ClassVar[type[BaseModel]]

    def __init__(self, root: str | Path, entries: Iterable[AnyEntry]) -> None:
        self.root = Path(root)
        self.entries: Sequence[AnyEntry] = tuple(entries)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a manifest file, or the `manifest.jsonl` of a folder."""
        path = Path(path)
        file = path / MANIFEST if path.is_dir() else path
        if not file.is_file():
            raise UserError(f"There is no manifest at {file}; make one with `madrigal prepare FOLDER`.")
        return cls(file.parent, [_entry(cls.kind, record, place) for place, record in read_lines(file)])

    def write(self, path: str | Path) -> Path:
        """Write to a file, or as `manifest.jsonl` into a folder: the whole of it or nothing."""
        path = Path(path)
        file = path / MANIFEST if path.is_dir() else path
        write_lines(file, (entry.model_dump(exclude_none=True) for entry in self.entries))
        return file

    @property
    def told(self) -> str:
        """How much it is, to be shown."""
        raise NotImplementedError

    def resolve(self, entry: AnyEntry) -> Path:
        """Where the entry's file is."""
        return self.root / entry.path

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[AnyEntry]:
        return iter(self.entries)


class Manifest(Listing[Entry]):
    """A list of recordings."""

    kind = Entry

    @property
    def seconds(self) -> float:
        """Length of all recordings together."""
        return sum(entry.duration for entry in self.entries)

    @property
    def told(self) -> str:
        return f"{len(self)} files, {self.seconds / 3600:.2f} hours"


class PictureManifest(Listing[PictureEntry]):
    """A list of pictures."""

    kind = PictureEntry

    @property
    def told(self) -> str:
        return f"{len(self)} pictures, {sum(entry.text is not None for entry in self)} with captions"


def read_lines(file: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The JSON objects of a file with a place ("file, line 3") to name in errors."""
    try:
        lines = file.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{file} cannot be read as text: name a folder of files, or a manifest of it.") from error
    except OSError as error:
        raise UserError(f"{file} cannot be read as text: {error}.") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        place = f"{file}, line {number}"
        try:
            record = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{place} is not JSON ({error.msg}); mend or delete the line.") from error
        if not isinstance(record, dict):
            raise UserError(f"{place} is not a JSON object; mend or delete the line.")
        yield place, record


def write_lines(file: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write JSON objects, one a line: beside the file first, then renamed over it."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as out:
                for record in records:
                    out.write(_line(record))
                out.flush()
                os.fsync(out.fileno())
            os.chmod(name, 0o644)
            os.replace(name, file)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise UserError(f"{file} could not be written: {error.strerror or error}.") from error


def _line(record: Mapping[str, Any]) -> str:
    line = json.dumps(record, ensure_ascii=False)
    try:
        line.encode()
    except UnicodeEncodeError:
        # A file name that is no valid UTF-8: only escapes can carry it.
        line = json.dumps(record)
    return line + "\n"


def _entry(kind: type[BaseModel], record: dict[str, Any], place: str) -> Any:
    try:
        return kind.model_validate(record)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise UserError(f"{place}: the field {field} is wrong ({first['msg'].lower()}).") from error
