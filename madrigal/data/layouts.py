"""How corpora lie in folders, and where each keeps its text and speakers.

Every known kind of list is read wherever it lies in the tree, and every audio file counts whether or not a
list names it. So a folder need not say what it is, and no recording in it is dropped in silence.
"""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from madrigal.data.manifest import read_lines
from madrigal.errors import UserError

FORMATS = ("wav", "flac", "ogg", "mp3", "opus")
# Audio too; what libsndfile cannot open of these is rejected by name instead of being passed over.
OTHER_FORMATS = ("oga", "aif", "aiff", "au", "caf", "w64", "m4a", "aac", "wma", "webm", "mka", "amr", "ape", "wv")

IMAGE_FORMATS = ("jpg", "jpeg", "png", "webp", "bmp")

_PATH = ("file_name", "audio_filepath", "filename", "path")
_TEXT = ("text", "transcription", "transcript", "sentence", "normalized_text", "caption")
_SPEAKER = ("speaker", "speaker_id", "client_id")
_LICENCE = ("licence", "license")
_BESIDE = (".normalized.txt", ".txt", ".lab")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A recording (or image) that a folder offers, with what its layout says about it."""

    path: Path
    text: str | None = None
    speaker: str | None = None
    licence: str | None = None


def candidates(folder: Path) -> list[Candidate]:
    """Every recording of the folder, and those that a list names but that are missing, sorted by path.

    Known are plain trees, LJSpeech `metadata.csv`, audiofolder `metadata.csv` or `.jsonl`, NeMo `.json` or
    `.jsonl`, LibriSpeech `.trans.txt`, `.normalized.txt`, `.txt` or `.lab` beside a file, VCTK's tree of texts,
    and speakers from folder names as in VCTK, LibriTTS and LibriSpeech.
    """
    listed = {item.path: item for item in read_lists(folder)}
    paths = listed.keys() | set(find_files(folder, FORMATS + OTHER_FORMATS))
    return [_complete(listed.get(path, Candidate(path)), folder) for path in sorted(paths)]


def picture_candidates(folder: Path) -> list[Candidate]:
    """Every picture of the folder, and those that a list names but that are missing, sorted by path.

    Captions come from imagefolder `metadata.csv` or `.jsonl`, or from a `.txt` beside a picture.
    """
    listed = {item.path: item for item in read_lists(folder)}
    known = {path for path in listed if has_ending(path, IMAGE_FORMATS) or not path.is_file()}
    paths = known | set(find_files(folder, IMAGE_FORMATS))
    items = [listed.get(path, Candidate(path)) for path in sorted(paths)]
    return [replace(i, text=i.text if i.text is not None else text_beside(i.path)) for i in items]


def holds_pictures(folder: Path) -> bool:
    """Whether a folder is one of pictures: with recordings in it, they are covers and the like."""
    return not find_files(folder, FORMATS + OTHER_FORMATS) and bool(find_files(folder, IMAGE_FORMATS))


def has_ending(name: str | Path, exts: Sequence[str]) -> bool:
    """Whether a name ends with one of `exts` ("wav" or ".wav"), in upper or lower case."""
    return str(name).lower().endswith(tuple("." + ext.lower().lstrip(".") for ext in exts))


def find_files(folder: Path, exts: Sequence[str]) -> list[Path]:
    """All files below `folder` with one of the endings, sorted; hidden files and folders are left out."""
    found: list[Path] = []
    seen: set[str] = set()
    for parent, folders, names in os.walk(folder, followlinks=True, onerror=_refuse):
        if (real := os.path.realpath(parent)) in seen:  # a link may lead back up the tree
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [name for name in folders if not name.startswith(".")]
        found.extend(Path(parent, n) for n in names if not n.startswith(".") and has_ending(n, exts))
    return sorted(found)


def read_lists(folder: Path) -> Iterator[Candidate]:
    """What the lists in a tree say; also used for images, whose captions lie in the same kinds of list."""
    for file in find_files(folder, ("csv", "jsonl", "json", "trans.txt")):
        if has_ending(file, ("trans.txt",)):
            yield from _librispeech(file)
        elif file.name.lower() == "metadata.csv":
            yield from _metadata_csv(file)
        elif has_ending(file, ("jsonl", "json")) and _is_json_list(file):
            for place, record in read_lines(file):
                yield _from_record(file.parent, record, place)


def text_beside(path: Path) -> str | None:
    """The text in a file of the same name beside this one, or in VCTK's parallel tree `txt`."""
    places = [path.with_name(path.stem + ending) for ending in _BESIDE]
    if len(path.parents) > 2:
        # wav48_silence_trimmed/p225/p225_001_mic1.flac has its text in txt/p225/p225_001.txt
        name = re.sub(r"_mic\d$", "", path.stem) + ".txt"
        places.append(path.parents[2] / "txt" / path.parent.name / name)
    return next((" ".join(_text(place).split()) for place in places if place.is_file()), None)


def _metadata_csv(file: Path) -> Iterator[Candidate]:
    text = _text(file)
    header = text.split("\n", 1)[0]
    separator = next((mark for mark in ("|", "\t", ";") if mark in header), ",")
    if not set(_PATH).isdisjoint(next(csv.reader([header], delimiter=separator), [])):
        rows = csv.DictReader(io.StringIO(text, newline=""), delimiter=separator)
        try:
            yield from (_from_record(file.parent, row, f"{file}, line {rows.line_num}") for row in rows)
        except csv.Error as error:
            raise UserError(f"{file}, line {rows.line_num} is not CSV: {error}.") from error
    elif separator == "|":
        # LJSpeech: id|text as written|text with numbers and abbreviations spoken out
        for name, *texts in (line.split("|") for line in text.splitlines() if line.strip()):
            yield Candidate(_ljspeech_path(file.parent, name), text=texts[-1].strip() if texts else None)


def _ljspeech_path(folder: Path, name: str) -> Path:
    guesses = [folder / part / f"{name}.{ext}" for part in ("wavs", "wav", "") for ext in FORMATS]
    return next((path for path in (*guesses, folder / "wavs" / name, folder / name) if path.is_file()), guesses[0])


def _librispeech(file: Path) -> Iterator[Candidate]:
    for line in _text(file).splitlines():
        name, _, text = line.partition(" ")
        path = file.parent / f"{name}.flac"
        if name:
            yield Candidate(path if path.is_file() else path.with_suffix(".wav"), text=text.strip())


def _is_json_list(file: Path) -> bool:
    """By the first line, for other JSON may lie about in the folder."""
    try:
        with file.open("rb") as stream:
            record = json.loads(stream.readline(1_000_000))
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}.") from error
    except ValueError:
        return False
    return isinstance(record, dict) and any(key in record for key in ("audio_filepath", "file_name"))


def _from_record(folder: Path, record: Mapping[str, Any], place: str) -> Candidate:
    path = _first(record, _PATH)
    if path is None:
        raise UserError(f"{place} names no file; mend or delete the line.")
    whole = Path(os.path.normpath(folder / path))
    return Candidate(whole, _first(record, _TEXT), _first(record, _SPEAKER), _first(record, _LICENCE))


def _first(record: Mapping[str, Any], names: Sequence[str]) -> str | None:
    value = next((record[name] for name in names if record.get(name) not in (None, "")), None)
    # JSON can hold half a character, which no file can.
    return None if value is None else str(value).strip().encode(errors="replace").decode()


def _complete(item: Candidate, folder: Path) -> Candidate:
    """Add what files beside the recording and the folders above it say."""
    text = item.text if item.text is not None else text_beside(item.path)
    return replace(item, text=text, speaker=item.speaker or _speaker_above(item.path, folder))


def _speaker_above(path: Path, folder: Path) -> str | None:
    """The uppermost folder whose name begins the file's: 84/121123/84_121123_7_1.wav, p225/p225_001.flac."""
    if not path.is_relative_to(folder):
        return None
    names = path.relative_to(folder).parent.parts
    return next((name for name in names if path.stem.startswith((f"{name}_", f"{name}-"))), None)


def _text(file: Path) -> str:
    """UTF-8, or Latin-1 where it is not: old corpora have both."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise UserError(f"{file} cannot be read: {error.strerror}.") from error
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _refuse(error: OSError) -> None:
    raise UserError(f"The folder {error.filename} cannot be listed: {error.strerror}.") from error
