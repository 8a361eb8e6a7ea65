"""One worker of `tokenize`: loads the tokenizers once and makes shards, in this process, a spawned one or a Ray actor.

Recordings are tokenized one at a time and on one thread, so that their tokens cannot depend on who their neighbours
were or how many workers there are.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
import torch

from madrigal.data.audio import read
from madrigal.data.failures import DecodeError
from madrigal.data.manifest import Entry
from madrigal.data.token_writing import write_shard
from madrigal.data.tokens import TokenInfo
from madrigal.errors import UserError

Given = Any
"""A name (shipped, a run, a folder, on the hub) or a tokenizer or codec itself."""


class Job(TypedDict):
    """A shard to make, in plain values that travel everywhere."""

    which: int  # of the tokenizers
    number: int  # of the shard
    entries: str  # JSON: path, duration, rate and channels of each


TOO_SHORT = "it is too short for one token"


class TokenMaker:
    """A semantic tokenizer or a codec as a function from a file to ids [time] or codes [frames, quantizers].

    What has quantizers is a codec. Both need `target_sample_hz`, `frame_rate`, `codebook_size`, `fingerprint()` and
    `tokenize`.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        levels, groups = getattr(model, "num_quantizers", 0), getattr(model, "rq_groups", 1)
        self.is_codec = levels > 0
        self.channels = getattr(model, "channels", 1) if self.is_codec else 1
        self.info = TokenInfo(
            kind=_kind(model),
            fingerprint=model.fingerprint(),
            frame_rate=model.frame_rate,
            codebook_size=model.codebook_size,
            quantizers=levels * groups,
            groups=groups,
        )

    @classmethod
    def of(cls, given: Given) -> TokenMaker:
        """Of a name, or of a model that is there already."""
        return cls(load(given) if isinstance(given, str | Path) else given)

    def wave(self, path: Path) -> torch.Tensor:
        """The whole recording [channels, samples] as the model wants it."""
        wave = read(path, sample_rate=self.model.target_sample_hz, channels=self.channels)
        if wave.shape[-1] == 0:
            raise DecodeError.of(path, "it holds no sound")
        return wave

    @torch.no_grad()
    def __call__(self, path: Path) -> np.ndarray:
        wave = self.wave(path)
        if self.is_codec:
            tokens = self.model.tokenize(wave[None])[0]
        else:
            ids, lengths = self.model.tokenize(wave)
            tokens = ids[0, : int(lengths[0])]
        if len(tokens) == 0:
            raise DecodeError.of(path, TOO_SHORT)
        return np.asarray(tokens.cpu().numpy())


class ShardMaker:
    """Makes the shards of one manifest that it is given jobs for."""

    def __init__(self, given: Sequence[Given], folders: Sequence[Path], root: Path) -> None:
        from madrigal.engine.machine import prepare_process

        prepare_process()
        self._given, self._folders, self._root = given, folders, root
        self._makers: dict[int, TokenMaker] = {}

    def __call__(self, job: Job, is_over: Callable[[], bool] | None = None) -> None:
        """Make one shard; where `is_over` says so between two recordings, leave it unmade."""
        which, entries = job["which"], entries_of(job)
        make = self._maker(which)

        def tokens_of(entry: Entry) -> np.ndarray:
            if is_over is not None and is_over():
                raise KeyboardInterrupt
            return make(self._root / entry.path)

        with one_thread():
            write_shard(self._folders[which], job["number"], make.info, entries, tokens_of)

    def _maker(self, which: int) -> TokenMaker:
        if which not in self._makers:
            maker, folder = TokenMaker.of(self._given[which]), self._folders[which]
            if f"-{maker.info.fingerprint}-" not in folder.name:
                raise UserError(f"{self._given[which]} has changed while it was used: wait for its training to end.")
            self._makers[which] = maker
        return self._makers[which]


def job_of(which: int, number: int, entries: Sequence[Entry]) -> Job:
    """Shard `number` of tokenizer `which` as a job."""
    needed = [[entry.path, entry.duration, entry.sample_rate, entry.channels] for entry in entries]
    return {"which": which, "number": number, "entries": json.dumps(needed)}


def entries_of(job: Job) -> list[Entry]:
    """The recordings of a job."""
    names = ("path", "duration", "sample_rate", "channels")
    return [Entry(**dict(zip(names, values))) for values in json.loads(job["entries"])]


def load(name: str | Path) -> Any:
    """A codec, a semantic tokenizer or an audio conditioner, whichever the name means."""
    from madrigal.tokenizers.loading import is_conditioner, load_codec, load_conditioner, load_tokenizer

    if is_conditioner(name):
        return load_conditioner(name)
    try:
        return load_codec(name)
    except UserError as no_codec:
        try:
            return load_tokenizer(name)
        except UserError as no_tokenizer:
            if str(no_codec) == str(no_tokenizer):
                raise
            reasons = f"{str(no_tokenizer).rstrip('.')}; {str(no_codec).rstrip('.')}"
            raise UserError(f"{name} is neither a tokenizer nor a codec that can be used ({reasons}).") from no_codec


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums on several threads are added in another order, which may tip a close choice between two codes."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _kind(model: Any) -> str:
    """In the words of its config, or its class."""
    config = getattr(model, "config", None)
    return str(getattr(model, "kind", None) or getattr(config, "kind", None) or type(model).__name__.lower())
