"""What happens when a file goes bad in the middle of training: it is noted, replaced, and training goes on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from madrigal.errors import UserError

# So many bad files in a row are no bad files, but a disk that is gone.
_MAX_IN_A_ROW = 32


class DecodeError(UserError):
    """A file that cannot be decoded; `path` names it and `reason` says in a few words why."""

    def __init__(self, message: str, path: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.path, self.reason = path, reason or message

    @classmethod
    def of(cls, path: str | Path, reason: str) -> DecodeError:
        """The error with its sentence made from the path and the reason."""
        return cls(f"The file {path} cannot be used: {reason}.", str(path), reason)


class FileDataset(Dataset[dict[str, Any]]):
    """Items loaded from `files` by `load(index, rng)`, which raises DecodeError for a damaged one.

    A damaged file is noted once in `failed` (path to reason) and, where given, in the file `rejected_path`; an
    item chosen by the same generator takes its place. Workers have a `failed` each and share the file.
    """

    def __init__(self, files: Sequence[Path], rejected_path: str | Path | None = None) -> None:
        self.files = list(files)
        self.rejected_path = Path(rejected_path) if rejected_path else None
        self.failed: dict[str, str] = {}

    def load(self, index: int, rng: np.random.Generator) -> dict[str, Any]:
        """The item from file `index`; everything random about it comes from `rng`."""
        raise NotImplementedError

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> dict[str, Any]:
        index = range(len(self))[index]
        return self.draw(index, np.random.default_rng(index))

    def draw(
        self, index: int, rng: np.random.Generator, among: Sequence[int] | np.ndarray | None = None
    ) -> dict[str, Any]:
        """Item `index`, or if it is damaged another in its place (of `among`, where given), by `rng` alone."""
        index = range(len(self))[index]
        pool = range(len(self)) if among is None else among
        for _ in range(_MAX_IN_A_ROW):
            try:
                return self.load(index, rng)
            except DecodeError as error:
                self._note(self.files[index], error.reason)
                last = error
            index = int(pool[int(rng.integers(len(pool)))])
        raise UserError(f"{_MAX_IN_A_ROW} files in a row could not be decoded; the last: {last}")

    def _note(self, path: Path, reason: str) -> None:
        if str(path) in self.failed:
            return
        self.failed[str(path)] = reason
        if self.rejected_path is not None:
            note_rejected(self.rejected_path, path, reason)


def note_rejected(list_of_them: Path, path: Path, reason: str) -> None:
    """Add a damaged file to a list of such files, once."""
    record = {"path": str(path), "reason": reason}
    try:
        list_of_them.parent.mkdir(parents=True, exist_ok=True)
        with list_of_them.open("a+", encoding="utf-8") as file:
            file.seek(0)
            # Another worker or an earlier run may have met the file already.
            if json.dumps(str(path)) not in file.read():
                file.write(json.dumps(record) + "\n")
    except OSError:
        # A full or read-only disk must not end a training run that can do without this note.
        return
