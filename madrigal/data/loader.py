"""The bridge from a sampler of draws to torch's DataLoader, the same for any number of workers."""

from __future__ import annotations

import random
import signal
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset

from madrigal.data.collate import collate as collate_items
from madrigal.data.sampler import Draw
from madrigal.errors import UserError


class Drawn(Dataset[Any]):
    """Loads a Draw from any map-style dataset so that the item depends on the draw alone.

    A dataset with `draw(index, rng)` gets a generator seeded by the draw. A foreign one, which can only use
    the global generators of Python, numpy and torch, finds them seeded by the draw; they are put back after.
    Subsets and concatenations are looked through, so the parts of a split keep their dataset's `draw`.
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __getitem__(self, draw: Draw) -> Any:
        dataset, index = _locate(self.dataset, draw.index)
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


def _outlive_signals(worker: int) -> None:
    """Ctrl-C and SIGTERM reach the whole process group; the trainer decides when its workers may go."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


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
        for batch in super().__iter__():
            if isinstance(batch, _Mistake):
                raise UserError(batch.sentence)
            yield batch


def _locate(dataset: Any, index: int) -> tuple[Any, int]:
    """The dataset at the bottom of subsets and concatenations, and the index in it."""
    while True:
        if type(dataset) is Subset:
            dataset, index = dataset.dataset, dataset.indices[index]
        elif type(dataset) is ConcatDataset:
            place = bisect_right(dataset.cumulative_sizes, index)
            index -= dataset.cumulative_sizes[place - 1] if place else 0
            dataset = dataset.datasets[place]
        else:
            return dataset, index
