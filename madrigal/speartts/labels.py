"""The folder of a back-translation: what was read of every recording, and what passed.

    settings.json       what reads, and what is read: a folder never mixes two readings
    read/…              what was read of each part of the recordings, written when that part is done
    manifest.jsonl      the recordings that passed, with `text` and `confidence`
    rejected.jsonl      the others, with the reason
    KIND-…-…/           the semantic tokens of those that passed, as `madrigal tokenize` writes them

All files are written beside their places and renamed: a kill at any instant costs one part, and changes no byte.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from madrigal.data.manifest import MANIFEST, REJECTED, Entry, Manifest, read_lines, write_lines
from madrigal.data.token_writing import close_folder, cut, finished_shard, open_folder, remove_remains, write_shard
from madrigal.data.tokens import TOKENS, TokenInfo, digest
from madrigal.errors import UserError

SETTINGS, READ = "settings.json", "read"


class OtherLabels(UserError):
    """A folder holds what was read with other settings; `difference` says which, without advice."""

    def __init__(self, folder: Path, difference: str) -> None:
        self.difference = f"holds what was read with another {difference}"
        super().__init__(f"{folder} {self.difference}: name another folder, or replace it with --overwrite.")


class Label(BaseModel):
    """What was read of one recording, and how sure the reader was: the geometric mean of its tokens' probabilities."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    text: str | None = None
    text_ids: list[int] | None = Field(None, description="where what was read is no text that could be read again")
    phonemes: str | None = Field(None, description="what such ids say, for people")
    confidence: float | None = None
    ended: bool = Field(True, description="false where the reader was stopped before it came to an end")
    reason: str | None = Field(None, description="why nothing was read")

    def rejected_for(self, threshold: float) -> str | None:
        """Why it does not pass, or None where it does; a threshold of 0 lets everything pass that was read."""
        if self.reason is not None:
            return self.reason
        if not self.ended and threshold > 0:
            return "the text has no end"
        assert self.confidence is not None
        return None if self.confidence >= threshold else f"the confidence is below {threshold:g}"


class Settings(BaseModel):
    """What decides over every label, and the threshold, which decides over what passes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal[1] = 1
    model: str = Field(description="fingerprint of the model that reads")
    tokenizer: str = Field(description="fingerprint of what made the semantic tokens")
    recordings: str = Field(description="digest of the recordings")
    text: str | None = Field(None, description="fingerprint of the text tokenizer that ids in the labels are of")
    beam_size: int | None = Field(description="of the decoder's search; null: the CTC head reads")
    batch_size: int
    threshold: float


class LabelFolder:
    """The labels of a manifest's recordings, part by part, and the files that come of them."""

    def __init__(self, folder: str | Path, manifest: Manifest, info: TokenInfo) -> None:
        self.folder, self.manifest, self.info = Path(folder).resolve(), manifest, info
        self.parts = cut(manifest)

    def missing(self) -> list[int]:
        """The numbers of the parts that are still to be read."""
        return [number for number in range(len(self.parts)) if self._labels(number) is None]

    def write_part(self, number: int, labels: Sequence[Label]) -> None:
        write_part(self.folder, number, self.parts[number], labels)

    def _labels(self, number: int) -> list[Label] | None:
        """The labels of a part that is there as a whole, or None."""
        file = part_file(self.folder, number)
        if not file.is_file():
            return None
        try:
            (_, head), *lines = read_lines(file)
            labels = [Label.model_validate(line) for _, line in lines]
        except (UserError, ValueError):
            return None
        entries = self.parts[number]
        whole = head == {"recordings": digest(entries)} and [x.path for x in labels] == [e.path for e in entries]
        return labels if whole else None

    def close(self, ids_of: Callable[[str], np.ndarray], threshold: float) -> Manifest:
        """The manifest of what passed, with its tokens; `ids_of` gives those of a recording of the source."""
        labels = {label.path: label for number in range(len(self.parts)) for label in self._labels(number) or []}
        passed: list[Entry] = []
        rejected: list[dict[str, Any]] = []
        source: dict[str, str] = {}
        for entry in self.manifest:
            label = labels[entry.path]
            name = name_from(self.manifest.resolve(entry), self.folder)
            reason, source[name] = label.rejected_for(threshold), entry.path
            said = label.model_dump(exclude_none=True, exclude={"path", "ended", "reason"})
            if reason is None:
                # A text that the recording had was not read by anybody here.
                known = entry.model_dump(exclude_none=True, exclude={"text", "text_ids", "phonemes"})
                passed.append(Entry(**{**known, **said, "path": name}))
            else:
                rejected.append({"path": name, "duration": entry.duration, **said, "reason": reason})
        write_lines(self.folder / REJECTED, rejected)
        if not passed:
            raise UserError(_nothing_passed(self.folder, labels.values(), threshold))
        manifest = Manifest(self.folder, passed)
        self._write_tokens(manifest, lambda entry: ids_of(source[entry.path]))
        # Last: a folder with a manifest is complete.
        manifest.write(self.folder / MANIFEST)
        return manifest

    def _write_tokens(self, manifest: Manifest, ids_of: Callable[[Entry], np.ndarray]) -> None:
        folder = open_folder(self.folder, self.info, manifest)
        remove_remains(folder)
        shards = []
        for number, entries in enumerate(cut(manifest)):
            there = finished_shard(folder, number, entries)
            shards.append(there or write_shard(folder, number, self.info, entries, ids_of))
        close_folder(folder, self.info, manifest, shards)


def begin(folder: str | Path, settings: Settings, *, overwrite: bool = False) -> None:
    """Make the folder, or go on with what these settings have begun in it; anything else in it is refused.

    With `overwrite` other labels are replaced, but no file that something else has written.
    """
    folder = Path(folder)
    there, parts = _settings(folder), sorted((folder / READ).glob("part-*.jsonl"))
    if there == settings:
        return
    if there is not None and not overwrite:
        raise OtherLabels(folder, _difference(there, settings))
    if there is None:
        _check_strangers(folder, own=bool(parts), overwrite=overwrite)
    # Another threshold needs no other reading; without settings nobody knows what has read the parts.
    if there is None or there.model_copy(update={"threshold": settings.threshold}) != settings:
        for file in parts:
            file.unlink()
    for name in (MANIFEST, REJECTED):
        (folder / name).unlink(missing_ok=True)
    for tokens in list(folder.glob(f"*-*-*/{TOKENS}")):
        shutil.rmtree(tokens.parent)  # of other recordings, or by another tokenizer
    write_lines(folder / SETTINGS, [settings.model_dump()])


def _check_strangers(folder: Path, *, own: bool, overwrite: bool) -> None:
    """Refuse a folder without settings that holds anything, or with `overwrite` one whose files would be lost."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; name a folder for the labels.")
    # A kill while the settings are written leaves a beginning of them.
    held = [p for p in sorted(folder.glob("*")) if not p.name.startswith(f".{SETTINGS}.")]
    if held and not overwrite:
        raise UserError(
            f"{folder} is not empty (it holds {held[0].name}), and no {SETTINGS} says which labels it holds: name "
            "another folder, or use --overwrite."
        )
    lost = [p for p in held if p.name in (SETTINGS, MANIFEST, REJECTED)]
    if lost and not own:
        raise UserError(
            f"{lost[0]} is there already, and is not known to be of labels: move it, or name another folder."
        )


def text_of_ids(folder: Path) -> str | None:
    """The fingerprint of the text tokenizer that ids in a folder's labels are of, as far as it is known."""
    settings = _settings(folder)
    return None if settings is None else settings.text


def _settings(folder: Path) -> Settings | None:
    file = folder / SETTINGS
    if not file.is_file():
        return None
    try:
        return Settings.model_validate(json.loads(file.read_text()))
    except (OSError, ValueError):
        return None


def part_file(folder: Path, number: int) -> Path:
    return folder / READ / f"part-{number:05d}.jsonl"


def write_part(folder: Path, number: int, entries: Sequence[Entry], labels: Sequence[Label]) -> None:
    """What was read of one part, all of it or nothing; its first line says which recordings it is of."""
    lines = [label.model_dump(exclude_none=True) for label in labels]
    write_lines(part_file(folder, number), [{"recordings": digest(entries)}, *lines])


def name_from(path: Path, folder: Path) -> str:
    """Relative where a recording lies below `folder`, so that both can be moved together, and else absolute."""
    path = Path(os.path.normpath(path.absolute()))
    return os.path.relpath(path, folder) if path.is_relative_to(folder) else str(path)


def _difference(there: Settings, here: Settings) -> str:
    """What differs first, in words."""
    differing = [name for name in Settings.model_fields if getattr(there, name) != getattr(here, name)]
    return {"recordings": "set of recordings", "beam_size": "beam"}.get(differing[0], differing[0].replace("_", " "))


def _nothing_passed(folder: Path, labels: Iterable[Label], threshold: float) -> str:
    read = [label for label in labels if label.reason is None and label.confidence is not None]
    sure = [label.confidence for label in read if label.ended and label.confidence is not None]
    if not read:
        return (
            f"Nothing could be read of any recording, and {folder / REJECTED} says why: train the reader for longer, "
            "or do without labels (read=null)."
        )
    if not sure:
        return (
            f"None of {len(read)} readings came to an end: train the reader for longer, or let them pass with a "
            "threshold of 0."
        )
    best = max(sure)
    return (
        f"No reading has a confidence of {threshold:g}, and the best has {best:.3f}: lower the threshold, or train the "
        "reader for longer."
    )
