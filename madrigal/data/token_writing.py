"""Writes the shards of `tokens.py` so that a kill at any instant costs one shard's work and changes no byte.

Which recordings a shard holds follows from the manifest alone. A shard's array is written beside its place and
renamed, then its list: the list says that the shard is done. When all are done `tokens.json` says so of the folder.
"""

from __future__ import annotations

import io
import json
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from pydantic import BaseModel

from madrigal.data.failures import DecodeError
from madrigal.data.manifest import Entry, Manifest
from madrigal.data.shards import ShardEntry, checksum, finished_list, shard_file
from madrigal.data.tokens import TOKENS, WORDS, Shard, TokenInfo, TokenSet, digest
from madrigal.errors import UserError

# A shard is closed when it has so many seconds of audio or so many recordings: small enough to be lost by a kill and
# to be shared out among workers, large enough that a thousand hours are some thousand files.
SHARD_SECONDS = 600.0
SHARD_ENTRIES = 1000

TokensOf = Callable[[Entry], np.ndarray]


def cut(manifest: Manifest) -> list[Sequence[Entry]]:
    """The recordings of each shard, in the manifest's order."""
    shards: list[Sequence[Entry]] = []
    first, seconds = 0, 0.0
    for number, entry in enumerate(manifest, start=1):
        seconds += entry.duration
        if seconds >= SHARD_SECONDS or number - first >= SHARD_ENTRIES or number == len(manifest):
            shards.append(manifest.entries[first:number])
            first, seconds = number, 0.0
    return shards


def write_shard(folder: Path, number: int, info: TokenInfo, entries: Sequence[Entry], tokens_of: TokensOf) -> Shard:
    """Tokenize the recordings of one shard and write it; one that raises DecodeError is listed with its reason."""
    listed: list[ShardEntry] = []
    arrays = [np.zeros(info.shape(0), info.dtype)]
    start = 0
    for entry in entries:
        try:
            tokens = _checked(tokens_of(entry), info, entry.path)
        except DecodeError as error:
            listed.append(ShardEntry(path=entry.path, reason=error.reason))
            continue
        arrays.append(tokens)
        listed.append(ShardEntry(path=entry.path, start=start, frames=len(tokens)))
        start += len(tokens)
    data = io.BytesIO()
    np.save(data, np.concatenate(arrays), allow_pickle=False)
    shard = Shard(recordings=digest(entries), crc32=checksum(data.getvalue()), entries=listed)
    write_whole(shard_file(folder, number, "npy"), data.getvalue())
    write_whole(shard_file(folder, number, "json"), _json(shard))
    return shard


def finished_shard(folder: Path, number: int, entries: Sequence[Entry]) -> Shard | None:
    """The list of a shard that is there for these recordings, whole and undamaged, or else None."""
    return finished_list(folder, number, Shard, digest(entries), WORDS)


def open_folder(out: Path, info: TokenInfo, manifest: Manifest) -> Path:
    """The folder below `out` for these tokens of this manifest, made where it is missing.

    Every manifest has its own, so that training and test sets, or a corpus that has grown, never mix.
    """
    folder = out / f"{info.kind}-{info.fingerprint}-{digest(manifest.entries)}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritten(folder, error) from error
    return folder


def remove_remains(folder: Path) -> None:
    """Remove what killed writers have left; nobody may be writing now."""
    for remains in folder.glob(".*.partial"):
        remains.unlink(missing_ok=True)


def close_folder(folder: Path, info: TokenInfo, manifest: Manifest, shards: Sequence[Shard]) -> TokenSet:
    """Write `tokens.json`, now that every shard is there."""
    entries = [entry for shard in shards for entry in shard.entries]
    whole = TokenSet(
        **info.model_dump(),
        manifest=digest(manifest.entries),
        entries=len(entries),
        failed=sum(entry.reason is not None for entry in entries),
        frames=sum(entry.frames for entry in entries),
        shards=len(shards),
    )
    write_whole(folder / TOKENS, _json(whole))
    return whole


def _checked(tokens: np.ndarray, info: TokenInfo, path: str) -> np.ndarray:
    """As the shard's type. An id that does not fit would wrap around to another one without a word."""
    if tokens.shape != info.shape(len(tokens)):
        raise UserError(
            f"The {info.kind} tokenizer gave {list(tokens.shape)} tokens for {path}, "
            f"but says that they have the shape {list(info.shape(len(tokens)))}."
        )
    if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < info.codebook_size:
        raise UserError(
            f"The {info.kind} tokenizer gave ids from {tokens.min()} to {tokens.max()} for {path}, "
            f"but says that it has {info.codebook_size} of them."
        )
    return tokens.astype(info.dtype)


def _json(model: BaseModel) -> bytes:
    # ASCII: the name of a file that is no valid UTF-8 can only be carried by escapes.
    return (json.dumps(model.model_dump(exclude_none=True), indent=1) + "\n").encode("ascii")


def write_whole(file: Path, data: bytes) -> None:
    """The whole file or nothing: beside its place, synced, renamed."""
    try:
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.", suffix=".partial")
        try:
            with os.fdopen(handle, "wb") as out:
                out.write(data)
                out.flush()
                os.fsync(out.fileno())
            os.chmod(name, 0o644)
            os.replace(name, file)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise _unwritten(file, error) from error


def _unwritten(file: Path, error: OSError) -> UserError:
    return UserError(f"{file} could not be written: {error.strerror or error}.")
