"""`tokenize`: the tokens of every recording of a manifest, by several workers or a cluster, resumable at any instant.

The manifest is cut into shards. Those that lie on the disk already, whole and undamaged, stay; the others are jobs,
and each is made by one worker. Who makes it does not change a byte of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from madrigal.data.failures import DecodeError
from madrigal.data.manifest import Entry, Manifest
from madrigal.data.token_writing import close_folder, cut, finished_shard, open_folder, remove_remains
from madrigal.data.tokens import TokenShards
from madrigal.errors import UserError
from madrigal.tokenizers.token_making import TOO_SHORT, Given, Job, ShardMaker, TokenMaker, job_of
from madrigal.tokenizers.tokenizing_workers import in_processes, on_ray

Progress = Callable[[int, int], object]


@dataclass(frozen=True, slots=True)
class Tokenized:
    """What `tokenize_manifest` has for one tokenizer, and how many of the shards it made just now."""

    shards: TokenShards
    written: int

    @property
    def figures(self) -> dict[str, Any]:
        """What `tokens.json` says, the reasons, and how many shards were written now."""
        return {**self.shards.info.model_dump(), "reasons": self.shards.reasons, "written": self.written}

    @property
    def summary(self) -> str:
        """What was made and what could not be, to be shown."""
        info = self.shards.info
        ids, hours = info.frames * max(1, info.quantizers), info.frames / info.frame_rate / 3600
        return self.shards.summary(f"{info.kind}: {len(self.shards)} files, {hours:.2f} hours, {ids} tokens")


def tokenize_manifest(
    manifest: Manifest,
    tokenizers: Sequence[Given],
    out: str | Path,
    *,
    workers: int = 1,
    ray: str | None = None,
    progress: Progress | None = None,
) -> list[Tokenized]:
    """Tokenize the recordings of `manifest` with each of `tokenizers` (names, or the models) into folders below `out`.

    Shards that are there are kept, so that the call goes on where another was killed. `workers` are processes;
    with `ray` ("local" or a cluster's address) they are actors of Ray Data, and `out` must be a folder that all
    machines share. `progress` is called with (recordings done, recordings in all).
    """
    if not len(manifest):
        raise UserError(f"The manifest in {manifest.root} names no recordings; prepare a folder that has some.")
    if not tokenizers:
        raise UserError("Name a tokenizer or codec to tokenize with.")
    if workers < 1:
        raise UserError(f"The number of workers is {workers}; give 1 or more.")
    root, cuts = manifest.root.resolve(), cut(manifest)
    with ExitStack() as locks:
        parts = [
            _Part(given, maker, open_folder(Path(out).resolve(), maker.info, manifest))
            for given, maker in _distinct(tokenizers)
        ]
        for part in parts:
            locks.enter_context(locked(part.folder))
            remove_remains(part.folder)
            part.missing = [n for n, entries in enumerate(cuts) if not part.has(n, entries, root)]
        jobs = [job_of(which, n, cuts[n]) for which, part in enumerate(parts) for n in part.missing]
        total = len(manifest) * len(parts)
        done = total - sum(len(cuts[job["number"]]) for job in jobs)
        with closing(_made(jobs, parts, root, workers, ray)) as numbers:
            for number in numbers:
                done += len(cuts[number])
                if progress:
                    progress(done, total)
        return [Tokenized(part.closed(manifest, cuts), written=len(part.missing)) for part in parts]


@dataclass(slots=True)
class _Part:
    """The work for one tokenizer: what was given, the folder of its shards, and the numbers of those to make."""

    given: Given
    maker: TokenMaker
    folder: Path
    missing: list[int] = field(default_factory=list)

    def has(self, number: int, entries: Sequence[Entry], root: Path) -> bool:
        """Whether a shard needs no work: it is there, and what had failed fails still (a disk may have come back)."""
        shard = finished_shard(self.folder, number, entries)
        if shard is None:
            return False
        failed = [entry for entry in shard.entries if entry.reason not in (None, TOO_SHORT)]
        return not any(self._can_read(root / entry.path) for entry in failed)

    def closed(self, manifest: Manifest, cuts: Sequence[Sequence[Entry]]) -> TokenShards:
        """All shards, checked once more."""
        shards = []
        for number, entries in enumerate(cuts):
            shard = finished_shard(self.folder, number, entries)
            if shard is None:
                raise UserError(
                    f"Shard {number} is not in {self.folder} although a worker has made it: "
                    "workers on other machines need --out on a disk that all machines share."
                )
            shards.append(shard)
        close_folder(self.folder, self.maker.info, manifest, shards)
        return TokenShards.open(self.folder)

    def _can_read(self, path: Path) -> bool:
        try:
            self.maker.wave(path)
        except DecodeError:
            return False
        return True


def _distinct(tokenizers: Sequence[Given]) -> list[tuple[Given, TokenMaker]]:
    """Each tokenizer once, by what it is, or two workers might write one file."""
    makers: dict[tuple[str, str], tuple[Given, TokenMaker]] = {}
    for given in tokenizers:
        known = _absolute(str(given)) if isinstance(given, str | Path) else given
        maker = TokenMaker.of(known)
        makers.setdefault((maker.info.kind, maker.info.fingerprint), (known, maker))
    return list(makers.values())


def _absolute(name: str) -> str:
    """Workers have working folders of their own. A name may end with a codec's bandwidth: codecs/encodec@6."""
    place, at, rate = (name, "", "") if Path(name).exists() else name.rpartition("@")
    return f"{Path(place).resolve()}{at}{rate}" if place and Path(place).exists() else name


def _made(
    jobs: Sequence[Job], parts: Sequence[_Part], root: Path, workers: int, ray: str | None
) -> Generator[int, None, None]:
    """Have the jobs done, by whatever means; gives the shard numbers as they are finished."""
    folders = [part.folder for part in parts]
    setting = ([part.given for part in parts], folders, root)
    if not jobs:
        return
    if ray is not None:
        yield from on_ray(jobs, setting, workers=workers, address=ray)
    elif workers > 1 and len(jobs) > 1:
        yield from in_processes(jobs, setting, workers=min(workers, len(jobs)))
    else:
        make = ShardMaker([part.maker.model for part in parts], folders, root)
        for job in jobs:
            make(job)
            yield job["number"]


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Only one process at a time looks for missing shards here, and cleans up behind killed ones."""
    try:
        import fcntl
    except ImportError:  # no such locks on Windows
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(f"Another process is writing tokens to {folder}; wait for it to end.") from error
        except OSError:
            pass  # a file system without locks
        yield
    finally:
        os.close(handle)
