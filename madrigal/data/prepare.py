"""From a folder of recordings or pictures to a manifest, with a list of everything that cannot be used and why."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

from madrigal.data.audio import AudioInfo
from madrigal.data.images import inspect_picture
from madrigal.data.inspection import Check, Rejection, default_workers, inspect
from madrigal.data.layouts import IMAGE_FORMATS, Candidate, candidates, picture_candidates
from madrigal.data.manifest import (
    MANIFEST,
    REJECTED,
    Entry,
    Listing,
    Manifest,
    PictureEntry,
    PictureManifest,
    write_lines,
)
from madrigal.errors import UserError

Progress = Callable[[int, int], object]


@dataclass(frozen=True, slots=True)
class Rejected:
    """A file that cannot be used: the reason, to count by, and the detail about this one."""

    path: str
    reason: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What `prepare` found, and where it wrote it."""

    manifest: Listing[Any]
    rejected: list[Rejected]
    manifest_path: Path
    rejected_path: Path

    @property
    def reasons(self) -> dict[str, int]:
        """How many files were rejected for each reason, the most frequent first."""
        return dict(Counter(item.reason for item in self.rejected).most_common())

    @property
    def summary(self) -> str:
        """What was found and what was rejected for which reason, to be shown."""
        found = f"{self.manifest.told} -> {self.manifest_path}"
        if not self.rejected:
            return found
        listed = ", ".join(f"{count} {reason}" for reason, count in self.reasons.items())
        return f"{found}\n{len(self.rejected)} rejected ({listed}): see {self.rejected_path}"


def prepare(
    folder: str | Path,
    out: str | Path,
    *,
    workers: int | None = None,
    min_seconds: float = 0.1,
    progress: Progress | None = None,
    check: Check = "doubtful",
) -> Prepared:
    """Look at every recording below `folder` and write `manifest.jsonl` and `rejected.jsonl` into `out`.

    Nothing is written into `folder`. `progress` is called with (files done, files in all). `check="full"` decodes
    every file to its end, which finds damage in the middle of a FLAC file too.
    """
    folder, out = _checked(Path(folder), Path(out), "recordings")
    if check not in get_args(Check):
        raise UserError(f"check is {check!r}; give 'doubtful' or 'full'.")
    if min_seconds < 0:
        raise UserError(f"min_seconds is {min_seconds}; give 0 or more.")
    found = candidates(folder)
    if not found:
        raise UserError(f"{folder} holds no audio files (wav, flac, ogg, mp3, opus); give another folder.")
    look = partial(inspect, min_seconds=min_seconds, check=check)
    return written(folder, out, found, look, _entry, Manifest, workers=workers, progress=progress)


def prepare_pictures(
    folder: str | Path, out: str | Path, *, workers: int | None = None, progress: Progress | None = None
) -> Prepared:
    """Decode every picture below `folder` and write `manifest.jsonl` and `rejected.jsonl` into `out`."""
    folder, out = _checked(Path(folder), Path(out), "pictures")
    found = picture_candidates(folder)
    if not found:
        raise UserError(f"{folder} holds no pictures ({', '.join(IMAGE_FORMATS)}); give another folder.")
    return written(
        folder, out, found, inspect_picture, _picture_entry, PictureManifest, workers=workers, progress=progress
    )


def written(
    folder: Path,
    out: Path,
    found: list[Candidate],
    look: Callable[[Path], Any],
    entry: Callable[[str, Candidate, Any], Any],
    kind: type[Listing[Any]],
    *,
    workers: int | None,
    progress: Progress | None,
) -> Prepared:
    """Look at all that was found, and write what can be used and what cannot."""
    entries: list[Any] = []
    rejected: list[Rejected] = []
    results = _look_at_all(found, look, workers or default_workers())
    for done, (item, result) in enumerate(zip(found, results), start=1):
        path = _name(item.path, out)
        if isinstance(result, Rejection):
            rejected.append(Rejected(path, result.reason, result.detail))
        else:
            entries.append(entry(path, item, result))
        if progress:
            progress(done, len(found))
    manifest = kind(out, entries)
    prepared = Prepared(manifest, rejected, out / MANIFEST, out / REJECTED)
    write_lines(prepared.rejected_path, ({"path": r.path, "reason": r.reason, "detail": r.detail} for r in rejected))
    if not entries:
        counts = ", ".join(f"{count} {reason}" for reason, count in prepared.reasons.items())
        raise UserError(
            f"None of the {len(rejected)} files in {folder} can be used ({counts}); see {prepared.rejected_path}."
        )
    manifest.write(prepared.manifest_path)
    return prepared


def _checked(folder: Path, out: Path, what: str) -> tuple[Path, Path]:
    if not folder.exists():
        raise UserError(f"There is no folder {folder}; give the folder that holds the {what}.")
    if not folder.is_dir():
        raise UserError(f"{folder} is a file; give the folder that holds the {what}.")
    if out.exists() and not out.is_dir():
        raise UserError(f"{out} is a file; give a folder to write the manifest into.")
    folder, out = folder.resolve(), out.resolve()
    if out.is_relative_to(folder):
        raise UserError(f"{out} lies in {folder}, where nothing may be changed; give a folder outside of it.")
    return folder, out


def _look_at_all(found: list[Candidate], look: Callable[[Path], Any], workers: int) -> Iterator[Any]:
    pool = ThreadPoolExecutor(workers)
    try:
        yield from pool.map(partial(_look, look), found)
    finally:
        # Whoever interrupts does not want to wait for the files that are still to come.
        pool.shutdown(cancel_futures=True)


def _look(look: Callable[[Path], Any], item: Candidate) -> Any:
    try:
        return look(item.path)
    except Rejection as rejection:
        return rejection
    except (OSError, UserError) as error:
        return Rejection("unreadable", str(error))


def _name(path: Path, out: Path) -> str:
    """Relative where the recordings lie below `out`, so that both can be moved together, and else absolute."""
    return os.path.relpath(path, out) if path.is_relative_to(out) else str(path)


def _entry(path: str, item: Candidate, info: AudioInfo) -> Entry:
    return Entry(
        path=path,
        # Microseconds are enough to get the number of samples back, and people can read them.
        duration=round(info.duration, 6),
        sample_rate=info.sample_rate,
        channels=info.channels,
        text=item.text,
        speaker=item.speaker,
        licence=item.licence,
    )


def _picture_entry(path: str, item: Candidate, size: tuple[int, int]) -> PictureEntry:
    width, height = size
    return PictureEntry(path=path, width=width, height=height, text=item.text, licence=item.licence)
