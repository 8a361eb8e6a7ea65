"""Which items a step sees, as a pure function of (seed, step): there is no sampler state to save.

Every draw of the run has a position. A position belongs to an epoch, an epoch has its own permutation of the
items, and the position also gives the seed of the crop and augmentation. So a run can start at any step at
once, and two ranks see together what one rank with twice the accumulation sees.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from torch.utils.data import Sampler

from madrigal.errors import UserError

_MASK = 2**64 - 1


class Draw(NamedTuple):
    """One item to load: its index in the dataset and the seed of everything random about loading it."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody asks of a Draw
    seed: int


def mix(*numbers: int) -> int:
    """Hash integers to 64 bits (splitmix64), the same in every process, Python and platform."""
    state = 0
    for number in numbers:
        state = (state + (number & _MASK) + 0x9E3779B97F4A7C15) & _MASK
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
        state ^= state >> 31
    return state


def permutation(num_items: int, *key: int) -> np.ndarray:
    """A random order of `num_items` that depends on `key` alone.

    It sorts raw 64-bit numbers because numpy promises that bit generators never change, while the shuffling
    methods of its Generator may.
    """
    return np.argsort(np.random.PCG64(mix(*key)).random_raw(num_items), kind="stable")


class EndlessSampler(Sampler[list[Draw]]):
    """Batch sampler for training: this rank's micro-batches from `start_step` on, without an end, as lists of Draw.

    Micro-batch `micro` of a step on a rank is number j = micro * world + rank of that step.
    """

    def __init__(
        self,
        num_items: int,
        *,
        accumulation: int = 1,
        world: int = 1,
        rank: int = 0,
        seed: int = 0,
        start_step: int = 0,
        stream: int = 0,
    ) -> None:
        _check_layout(num_items, accumulation, world, rank)
        self.num_items = num_items
        self.accumulation, self.world, self.rank = accumulation, world, rank
        self.seed, self.start_step, self.stream = seed, start_step, stream

    def micro_batch(self, step: int, micro: int) -> list[Draw]:
        """Micro-batch `micro` (0 … accumulation - 1) of `step` on this rank."""
        return self._batch((step * self.accumulation + micro) * self.world + self.rank)

    def _batch(self, number: int) -> list[Draw]:
        """The micro-batch that has this number in the whole run."""
        raise NotImplementedError

    def __iter__(self) -> Iterator[list[Draw]]:
        step = self.start_step
        while True:
            for micro in range(self.accumulation):
                yield self.micro_batch(step, micro)
            step += 1


class StepSampler(EndlessSampler):
    """Batches of `batch_size` items; the next epoch's first items complete an epoch's last batch."""

    def __init__(self, num_items: int, batch_size: int, **layout: int) -> None:
        super().__init__(num_items, **layout)
        if batch_size < 1:
            raise UserError(f"The batch size is {batch_size}; give 1 or more.")
        self.batch_size = batch_size
        self._order: tuple[int, np.ndarray] | None = None

    @property
    def steps_per_epoch(self) -> int:
        """Steps until every item was seen at least once."""
        return -(-self.num_items // (self.batch_size * self.accumulation * self.world))

    def _batch(self, number: int) -> list[Draw]:
        first = number * self.batch_size
        return [self._draw(position) for position in range(first, first + self.batch_size)]

    def _draw(self, position: int) -> Draw:
        epoch, place = divmod(position, self.num_items)
        if self._order is None or self._order[0] != epoch:
            self._order = (epoch, permutation(self.num_items, self.seed, self.stream, epoch))
        return Draw(int(self._order[1][place]), mix(self.seed, self.stream, position))


class BucketSampler(EndlessSampler):
    """Fills batches with items of like length up to a budget, padding included.

    `lengths` and `budget` have the same unit (seconds, tokens). Items are sorted into `num_buckets` buckets
    of like length; a batch holds at most budget // longest-of-the-bucket items, so it never costs more than the
    budget. In an epoch every item comes exactly once and the number of batches is always the same, which makes a
    start at any step immediate.
    """

    def __init__(
        self, lengths: Sequence[float] | np.ndarray, budget: float, *, num_buckets: int = 8, **layout: int
    ) -> None:
        sizes = np.asarray(lengths, dtype=np.float64)
        super().__init__(len(sizes), **layout)
        if num_buckets < 1:
            raise UserError(f"The number of length buckets is {num_buckets}; give 1 or more.")
        _check_lengths(sizes, budget)
        by_length = np.argsort(sizes, kind="stable")
        self.buckets = [part for part in np.array_split(by_length, num_buckets) if len(part)]
        self.batch_sizes = [int(budget // sizes[bucket[-1]]) for bucket in self.buckets]
        self._batches: tuple[int, list[np.ndarray]] | None = None

    @property
    def batches_per_epoch(self) -> int:
        """Micro-batches in an epoch, over all ranks."""
        return sum(-(-len(bucket) // size) for bucket, size in zip(self.buckets, self.batch_sizes))

    @property
    def steps_per_epoch(self) -> int:
        """Steps until every item was seen at least once."""
        return -(-self.batches_per_epoch // (self.accumulation * self.world))

    def _batch(self, number: int) -> list[Draw]:
        epoch, place = divmod(number, self.batches_per_epoch)
        if self._batches is None or self._batches[0] != epoch:
            self._batches = (epoch, self._epoch(epoch))
        return [
            Draw(int(index), mix(self.seed, self.stream, epoch * self.num_items + int(index)))
            for index in self._batches[1][place]
        ]

    def _epoch(self, epoch: int) -> list[np.ndarray]:
        """All batches of an epoch: items shuffled within their bucket, then the batches shuffled."""
        batches: list[np.ndarray] = []
        for number, (bucket, size) in enumerate(zip(self.buckets, self.batch_sizes)):
            items = bucket[permutation(len(bucket), self.seed, self.stream, epoch, number)]
            # Near-equal parts instead of full batches and a small rest: the rest would weigh too much.
            batches.extend(np.array_split(items, -(-len(items) // size)))
        order = permutation(len(batches), self.seed, self.stream, epoch, len(self.buckets))
        return [batches[place] for place in order]


class EvaluationSampler(Sampler[list[Draw]]):
    """Batch sampler for validation: every item exactly once over the ranks, in order, never shuffled.

    Batch number b goes to rank b % world, so ranks may differ by one batch. The seed of a draw is its index:
    an item is the same in every validation.
    """

    def __init__(self, num_items: int, batch_size: int, *, world: int = 1, rank: int = 0) -> None:
        _check_layout(num_items, 1, world, rank)
        if batch_size < 1:
            raise UserError(f"The batch size is {batch_size}; give 1 or more.")
        self.num_items, self.batch_size, self.world, self.rank = num_items, batch_size, world, rank

    def __len__(self) -> int:
        return len(self._starts())

    def __iter__(self) -> Iterator[list[Draw]]:
        for start in self._starts():
            stop = min(start + self.batch_size, self.num_items)
            yield [Draw(index, index) for index in range(start, stop)]

    def _starts(self) -> range:
        return range(self.rank * self.batch_size, self.num_items, self.world * self.batch_size)


class BucketEvaluationSampler(Sampler[list[Draw]]):
    """Batch sampler for validation by a budget: every item exactly once over the ranks, short ones first.

    A batch holds as many neighbours in the order of length as the budget has room for, padding included. Batch
    number b goes to rank b % world, and the seed of a draw is its index, as in EvaluationSampler.
    """

    def __init__(self, lengths: Sequence[float] | np.ndarray, budget: float, *, world: int = 1, rank: int = 0) -> None:
        sizes = np.asarray(lengths, dtype=np.float64)
        _check_layout(len(sizes), 1, world, rank)
        _check_lengths(sizes, budget)
        batches: list[list[int]] = [[]]
        for index in np.argsort(sizes, kind="stable").tolist():
            if (len(batches[-1]) + 1) * sizes[index] > budget:
                batches.append([])
            batches[-1].append(index)
        self._batches = batches[rank::world]

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[list[Draw]]:
        for batch in self._batches:
            yield [Draw(index, index) for index in batch]


def _check_lengths(sizes: np.ndarray, budget: float) -> None:
    if not (sizes > 0).all():
        raise UserError("Every item needs a length above zero to be put into a length bucket.")
    if sizes.max() > budget:
        raise UserError(
            f"The longest item is {sizes.max():g} long but a batch may hold {budget:g}; "
            "raise the budget or set a maximal length."
        )


def _check_layout(num_items: int, accumulation: int, world: int, rank: int) -> None:
    if num_items < 1:
        raise UserError("The dataset is empty; give at least one item to draw from.")
    if accumulation < 1:
        raise UserError(f"The gradient accumulation is {accumulation}; give 1 or more.")
    if not 0 <= rank < world:
        raise UserError(f"Rank {rank} does not exist among {world} processes.")
