"""The bridge from a sampler of draws to torch's DataLoader, the same for any number of workers."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset

from madrigal.data.collate import collate as collate_items
from madrigal.data.failures import FileDataset
from madrigal.data.sampler import Draw
from madrigal.errors import UserError


class Drawn(Dataset[Any]):
    """Loads a Draw from any map-style dataset so that the item depends on the draw alone.

    A dataset with `draw(index, rng)` gets a generator seeded by the draw. A foreign one, which can only use
    the global generators of Python, numpy and torch, finds them seeded by the draw; they are put back after.
    Subsets and concatenations are looked through, so that the parts of a split keep their dataset's `draw`, and a
    damaged file is replaced by another of the same part: never by one of the validation items.
    """

    def __init__(self, dataset: Any) -> None:
        self.datasets, self._which, self._where = _flatten(dataset)
        self._parts = [self._where[self._which == number] for number in range(len(self.datasets))]

    def __len__(self) -> int:
        return len(self._where)

    def __getitem__(self, draw: Draw) -> Any:
        which, index = int(self._which[draw.index]), int(self._where[draw.index])
        dataset = self.datasets[which]
        if isinstance(dataset, FileDataset):
            return dataset.draw(index, np.random.default_rng(draw.seed), among=self._parts[which])
        if hasattr(dataset, "draw"):
            return dataset.draw(index, np.random.default_rng(draw.seed))
        with seeded(draw.seed):
            return dataset[index]

    def __getitems__(self, draws: Sequence[Draw]) -> list[Any]:
        try:
            return [self[draw] for draw in draws]
        except UserError as error:
            return [_Mistake(str(error))]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """The global generators of Python, numpy and torch (CPU) seeded inside, as they were before outside."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=[]):
            random.seed(seed)
            np.random.seed(seed % 2**32)
            torch.random.default_generator.manual_seed(seed)
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def make_loader(
    dataset: Any,
    batch_sampler: Iterable[list[Draw]],
    *,
    num_workers: int = 0,
    collate: Callable[[list[Any]], Any] = collate_items,
    pin_memory: bool = False,
) -> DataLoader[Any]:
    """A DataLoader over the batches of `batch_sampler`; workers change the speed and nothing else."""
    return _Loader(
        Drawn(dataset),
        batch_sampler=batch_sampler,
        num_workers=num_workers,
        collate_fn=_Collate(collate),
        pin_memory=pin_memory,
        persistent_workers=num_workers > 0,
        worker_init_fn=_outlive_signals,
        # A generator of its own, or starting an iterator would move the global one that training uses.
        generator=torch.Generator(),
    )


# Ctrl-C and SIGTERM reach the whole process group, but the trainer decides when its workers may go.
_STOPPING = (signal.SIGINT, signal.SIGTERM)


def _outlive_signals(worker: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "sigwaitinfo"):
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        threading.Thread(target=_heed_the_trainer, daemon=True).start()


def _heed_the_trainer() -> None:
    """SIGTERM from the trainer itself is how Python ends a worker; it would wait for ever for one that outlived it."""
    while signal.sigwaitinfo([signal.SIGTERM]).si_pid != os.getppid():
        pass
    os._exit(0)


@contextmanager
def _signals_held() -> Iterator[None]:
    """Hold signals back while workers start, or one might come before the worker ignores it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


class _Mistake(NamedTuple):
    """A UserError on its way out of a worker; torch would wrap it in a traceback."""

    sentence: str


class _Collate:
    """Collation that lets mistakes through and reports its own; a class, so that workers can receive it."""

    def __init__(self, collate: Callable[[list[Any]], Any]) -> None:
        self.collate = collate

    def __call__(self, items: list[Any]) -> Any:
        if isinstance(items[0], _Mistake):
            return items[0]
        try:
            return self.collate(items)
        except UserError as error:
            return _Mistake(str(error))


class _Loader(DataLoader[Any]):
    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        with _signals_held():
            batches = super().__iter__()
        for batch in batches:
            if isinstance(batch, _Mistake):
                raise UserError(batch.sentence)
            yield batch


def _flatten(dataset: Any) -> tuple[list[Any], np.ndarray, np.ndarray]:
    """The datasets below subsets and concatenations, and for each item which of them holds it, and where."""
    if type(dataset) is Subset:
        datasets, which, where = _flatten(dataset.dataset)
        chosen = np.asarray(dataset.indices, dtype=np.int64)
        return datasets, which[chosen], where[chosen]
    if type(dataset) is ConcatDataset:
        parts = [_flatten(part) for part in dataset.datasets]
        firsts = np.cumsum([0, *(len(datasets) for datasets, _, _ in parts)])
        which = np.concatenate([part[1] + first for part, first in zip(parts, firsts)])
        return [d for part in parts for d in part[0]], which, np.concatenate([part[2] for part in parts])
    return [dataset], np.zeros(len(dataset), np.int64), np.arange(len(dataset))
