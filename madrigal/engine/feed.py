"""Where a step's micro-batches come from.

A feed answers "the micro-batches of step n" for any n. Over a dataset that is a matter of arithmetic, since
the order is a function of (seed, step); over a loader of the user's own, batches are drawn in turn and those
of the steps before a resume are passed over.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import torch
from torch.utils.data import Dataset, Subset

from madrigal.data.collate import collate
from madrigal.data.loader import make_loader
from madrigal.data.sampler import BucketEvaluationSampler, BucketSampler, EvaluationSampler, StepSampler
from madrigal.data.split import split
from madrigal.engine.budget import budget_of
from madrigal.engine.distribution import Ranks
from madrigal.engine.plan import Plan
from madrigal.engine.randomness import kept_randomness, seed_everything, seed_for
from madrigal.errors import UserError

Batch = dict[str, Any]
Collate = Callable[[list[Any]], Batch]


class Feed(Protocol):
    """Gives the micro-batches of one step on this rank."""

    def micro_batches(self, step: int) -> list[Batch]: ...

    def global_micro_batches(self, step: int) -> list[Batch]:
        """Those of all ranks, in their order."""
        ...


class DatasetFeed:
    """A dataset in an order of ours; a stream has an order of its own.

    A micro-batch holds the plan's `batch_size` items, or as many of like length as its budget of seconds or tokens has
    room for.
    """

    def __init__(
        self, dataset: Dataset[Any], plan: Plan, ranks: Ranks, *, stream: int = 0, collate: Collate = collate
    ) -> None:
        self.size = len(dataset)  # type: ignore[arg-type]
        self._dataset, self._plan, self._ranks, self._stream = dataset, plan, ranks, stream
        self._collate = collate
        self._budget = budget_of(plan, dataset)
        self._next: int | None = None
        self._iterator: Iterator[Batch] = iter(())

    def micro_batches(self, step: int) -> list[Batch]:
        if step != self._next:
            self._iterator = self._start(step, self._ranks.rank, self._ranks.world, self._plan.dl_num_workers)
        self._next = step + 1
        batches = [next(self._iterator) for _ in range(self._plan.grad_accum_every)]
        return [to_device(batch, self._ranks.device) for batch in batches]

    def global_micro_batches(self, step: int) -> list[Batch]:
        # One process that accumulates over all ranks' micro-batches draws exactly what the ranks draw.
        count = self._plan.grad_accum_every * self._ranks.world
        iterator = self._start(step, 0, 1, 0, accumulation=count)
        return [to_device(next(iterator), self._ranks.device) for _ in range(count)]

    @property
    def epoch(self) -> float:
        """Micro-batches, over all ranks, that go once through the data."""
        sampler = self._sampler()
        return sampler.batches_per_epoch if isinstance(sampler, BucketSampler) else self.size / sampler.batch_size

    def _sampler(self, **layout: int) -> StepSampler | BucketSampler:
        options: Any = {"seed": self._plan.seed, "stream": self._stream, **layout}
        if self._budget is not None:
            return BucketSampler(self._budget.lengths, self._budget.size, **options)
        return StepSampler(self.size, self._plan.batch_size, **options)

    def _start(
        self, step: int, rank: int, world: int, workers: int, accumulation: int | None = None
    ) -> Iterator[Batch]:
        accumulation = accumulation or self._plan.grad_accum_every
        sampler = self._sampler(accumulation=accumulation, world=world, rank=rank, start_step=step)
        pin = self._ranks.device.type == "cuda"
        return iter(make_loader(self._dataset, sampler, num_workers=workers, collate=self._collate, pin_memory=pin))


class LoaderFeed:
    """A loader that the user brings; it is gone through again and again.

    While it draws a batch the global generators are seeded by the batch's number, so what it shuffles by them
    is shuffled the same way after a resume.
    """

    def __init__(self, loader: Iterable[Any], plan: Plan, ranks: Ranks, *, stream: int = 0) -> None:
        self._loader, self._plan, self._ranks, self._stream = loader, plan, ranks, stream
        self._iterator = self._endless()
        self._next = 0

    def micro_batches(self, step: int) -> list[Batch]:
        if step < self._next:
            self._iterator, self._next = self._endless(), 0
        for _ in range((step - self._next) * self._plan.grad_accum_every):
            next(self._iterator)
        self._next = step + 1
        return [
            to_device(as_batch(next(self._iterator)), self._ranks.device) for _ in range(self._plan.grad_accum_every)
        ]

    def global_micro_batches(self, step: int) -> list[Batch]:
        # Nobody can ask a foreign loader for another rank's share: the first batches of this rank stand in.
        batches = self.micro_batches(step)
        self._iterator, self._next = self._endless(), 0
        return batches

    def _endless(self) -> Iterator[Any]:
        iterator: Iterator[Any] = iter(())
        for number in itertools.count():
            with kept_randomness():
                seed_everything(self._plan.seed, self._stream, number)
                batch = next(iterator, None)
                if batch is None:
                    iterator = iter(self._loader)
                    batch = next(iterator, None)
            if batch is None:
                raise UserError("The given train_dataloader yields no batch: its dataset may be smaller than a batch.")
            if number % self._ranks.world == self._ranks.rank:
                yield batch


def as_batch(batch: Any) -> Batch:
    """A foreign loader's batch as a dict: a bare tensor [batch, samples] or [batch, channels, samples] is audio."""
    if isinstance(batch, dict):
        return batch
    if isinstance(batch, (list, tuple)) and len(batch) == 1:
        batch = batch[0]
    if isinstance(batch, torch.Tensor):
        audio = batch[:, None] if batch.ndim == 2 else batch
        lengths = torch.full((audio.shape[0],), audio.shape[-1], dtype=torch.long)
        return {"audio": audio, "lengths": lengths}
    raise UserError(
        f"A batch from the given loader is a {type(batch).__name__}; it should be a dict of tensors or one tensor."
    )


def batch_size(batch: Batch) -> int:
    return len(next(iter(batch.values())))


def to_device(batch: Batch, device: torch.device) -> Batch:
    return {
        key: value.to(device, non_blocking=True) if isinstance(value, torch.Tensor) else value
        for key, value in batch.items()
    }


class TrainingData:
    """The training set as feeds, and the validation set: given, or split off with a seed."""

    def __init__(
        self,
        plan: Plan,
        ranks: Ranks,
        collate: Collate,
        *,
        dataset: Any = None,
        val_dataset: Any = None,
        train_dataloader: Any = None,
        val_dataloader: Any = None,
    ) -> None:
        if (dataset is None) == (train_dataloader is None):
            raise UserError("Give the trainer its data: a folder, a dataset or a train_dataloader, and only one.")
        self._plan, self._ranks, self._collate = plan, ranks, collate
        no_validation = val_dataset is None and val_dataloader is None
        if dataset is not None and no_validation and plan.valid_frac > 0 and len(dataset) > 1:
            train, valid = split(len(dataset), plan.valid_frac, plan.random_split_seed)
            # What is held out is seen as it is, without the augmentation that training asks for.
            held_out = dataset.for_evaluation() if hasattr(dataset, "for_evaluation") else dataset
            dataset, val_dataset = Subset(dataset, train), Subset(held_out, valid)
        by_budget = plan.seconds_per_batch is not None or plan.tokens_per_batch is not None
        if dataset is None and by_budget:
            raise UserError("A train_dataloader makes its own batches: leave out seconds_per_batch, tokens_per_batch.")
        if dataset is not None and not by_budget and len(dataset) < plan.batch_size:
            raise UserError(
                f"The training set holds {len(dataset)} items, fewer than batch_size {plan.batch_size}: "
                "lower batch_size, add data, or lower valid_frac."
            )
        self.train, self.train_is_loader = (train_dataloader, True) if dataset is None else (dataset, False)
        self.valid, self.valid_is_loader = (val_dataloader, True) if val_dataset is None else (val_dataset, False)
        self._valid_budget = None if val_dataset is None else budget_of(plan, val_dataset)
        self._feeds: dict[str, Feed] = {}
        if by_budget:
            self.feed("all turns")  # a budget that cannot hold the data is told now, not at the first step

    def feed(self, stream: str) -> Feed:
        """The feed of one stream; each stream goes through the data in an order of its own."""
        if stream not in self._feeds:
            # By name: which feed is asked for first depends on the step that a run is resumed at.
            options: Any = {"plan": self._plan, "ranks": self._ranks, "stream": seed_for(stream)}
            if self.train_is_loader:
                self._feeds[stream] = LoaderFeed(self.train, **options)
            else:
                self._feeds[stream] = DatasetFeed(self.train, **options, collate=self._collate)
        return self._feeds[stream]

    def close(self) -> None:
        """Let the loaders' processes go; a feed that is asked for again starts where it should."""
        self._feeds.clear()

    def num_train_steps(self) -> int:
        """The length of the run in steps, whether the plan gives steps or epochs."""
        if self._plan.num_train_steps is not None:
            return self._plan.num_train_steps
        assert self._plan.num_train_epochs is not None
        first = self.feed("all turns")
        micro_batches = first.epoch if isinstance(first, DatasetFeed) else len(self.train)
        per_step = self._plan.grad_accum_every * self._ranks.world
        return max(1, round(self._plan.num_train_epochs * micro_batches / per_step))

    def validation_batches(self) -> Iterator[Batch]:
        """The whole validation set once, this rank's share of it; the same crops every time."""
        if self.valid is None:
            return iter(())
        sampler: Any = None
        share = {"world": self._ranks.world, "rank": self._ranks.rank}
        if self._valid_budget is not None:
            sampler = BucketEvaluationSampler(self._valid_budget.lengths, self._valid_budget.size, **share)
        elif not self.valid_is_loader:
            sampler = EvaluationSampler(len(self.valid), self._plan.batch_size, **share)
        return self._evaluation_batches(self.valid, sampler)

    def sample_batch(self) -> Batch | None:
        """The first `num_samples` items of the validation set, as one batch."""
        if self.valid is None or self._plan.num_samples == 0:
            return None
        if self.valid_is_loader:
            batch = next(self._evaluation_batches(self.valid, None))
            return {key: value[: self._plan.num_samples] for key, value in batch.items()}
        count = min(self._plan.num_samples, len(self.valid))
        sampler = EvaluationSampler(count, count, world=1, rank=0)
        return next(self._evaluation_batches(self.valid, sampler))

    def _evaluation_batches(self, source: Any, sampler: Any) -> Iterator[Batch]:
        loader = source if sampler is None else make_loader(source, sampler, collate=self._collate)
        for number, batch in enumerate(loader):
            if sampler is not None or number % self._ranks.world == self._ranks.rank:
                yield to_device(as_batch(batch), self._ranks.device)
