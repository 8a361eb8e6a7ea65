"""Batches by a budget of seconds or tokens: like lengths together, and still a pure function of (seed, step)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, Dataset, Subset
from toys import Measured, RegressionTrainer, assert_identical, make, waves, whole_state

from madrigal.data.collate import collate
from madrigal.engine.budget import lengths_of
from madrigal.engine.distribution import Ranks
from madrigal.engine.feed import Batch, DatasetFeed, TrainingData
from madrigal.engine.plan import Plan
from madrigal.errors import UserError

BUDGET = {"seconds_per_batch": 3.0, "valid_frac": 0}
ALONE = Ranks(0, 1, torch.device("cpu"))


class Ragged(Dataset[Tensor]):
    """Waves of 1 to 40 samples, a tenth of a second each, that hold their own number."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Tensor:
        return torch.full((1 + index,), float(index))

    def seconds(self, index: int) -> float:
        return (1 + index) / 10


def plan(**options: Any) -> Plan:
    return Plan(**{"num_train_steps": 10, "seconds_per_batch": 4.0, **options})


def feed(ranks: Ranks = ALONE, **options: Any) -> DatasetFeed:
    return DatasetFeed(Ragged(), plan(**options), ranks)


def items(batch: Batch) -> list[int]:
    return batch["audio"][:, 0, 0].int().tolist()


def drawn(source: DatasetFeed, steps: range) -> list[list[int]]:
    return [items(batch) for step in steps for batch in source.micro_batches(step)]


# Training.


def test_no_micro_batch_costs_more_than_the_budget_and_short_items_share_one() -> None:
    source = feed()
    batches = [source.micro_batches(step)[0] for step in range(int(source.epoch))]
    assert all(batch["audio"].shape[0] * batch["audio"].shape[-1] <= 40 for batch in batches)
    assert max(len(items(batch)) for batch in batches) > 4
    assert sorted(index for batch in batches for index in items(batch)) == list(range(40))


def test_the_order_is_a_function_of_seed_and_step_alone() -> None:
    whole = drawn(feed(), range(60))
    assert drawn(feed(), range(37, 60)) == whole[37:]
    assert drawn(feed(seed=1), range(60)) != whole
    epoch = int(feed().epoch)
    assert whole[:epoch] != whole[epoch : 2 * epoch]


@pytest.mark.parametrize("accumulation", [1, 3])
def test_two_ranks_draw_what_one_draws_with_twice_the_accumulation(accumulation: int) -> None:
    ranks = [feed(Ranks(rank, 2, torch.device("cpu")), grad_accum_every=accumulation) for rank in (0, 1)]
    alone = feed(grad_accum_every=2 * accumulation)
    for step in range(7):
        first, second = (drawn(source, range(step, step + 1)) for source in ranks)
        together = [batch for pair in zip(first, second, strict=True) for batch in pair]
        assert together == drawn(alone, range(step, step + 1))
        assert [items(batch) for batch in ranks[1].global_micro_batches(step)] == together


@pytest.mark.parametrize("unit", ["seconds", "tokens"])
def test_a_run_by_a_budget_that_is_resumed_ends_like_an_unbroken_one(tmp_path: Path, unit: str) -> None:
    options = {f"{unit}_per_batch": 3 if unit == "seconds" else 30, "dataset": Measured(30), "num_train_steps": 9}
    unbroken = make(RegressionTrainer, tmp_path / "a", **options)
    for _ in range(9):
        unbroken.train_step()
        if unbroken.step == 4:
            unbroken.save(tmp_path / "middle")
    resumed = make(RegressionTrainer, tmp_path / "b", **options)
    resumed.load(tmp_path / "middle")
    for _ in range(5):
        resumed.train_step()
    assert_identical(whole_state(resumed), whole_state(unbroken))
    assert len({len(batch) for batch in unbroken.seen}) > 1


def test_an_epoch_is_as_many_steps_as_the_budget_makes_of_it(tmp_path: Path) -> None:
    trainer = make(RegressionTrainer, tmp_path, dataset=Measured(30), num_train_epochs=2, **BUDGET)
    trainer.train()
    rows = [tuple(row) for batch in trainer.seen for row in batch.tolist()]
    assert len(rows) == 60
    assert all(rows.count(row) == 2 for row in set(rows))


def test_lengths_are_found_below_subsets_and_concatenations() -> None:
    both = ConcatDataset([Measured(4), Subset(Measured(10), [9, 2])])
    expected = [Measured(10).seconds(index) for index in (0, 1, 2, 3, 9, 2)]
    assert lengths_of(both, "seconds").tolist() == expected
    assert lengths_of(Subset(both, [5, 0]), "seconds").tolist() == [expected[5], expected[0]]


# Validation.


def test_validation_sees_every_item_once_over_the_ranks_and_within_the_budget() -> None:
    seen = []
    for rank in (0, 1):
        ranks = Ranks(rank, 2, torch.device("cpu"))
        data = TrainingData(plan(), ranks, collate, dataset=Ragged(), val_dataset=Ragged())
        for batch in data.validation_batches():
            assert batch["audio"].shape[0] * batch["audio"].shape[-1] <= 40
            seen += items(batch)
    assert sorted(seen) == list(range(40))


def test_validation_by_a_budget_gives_the_figures_of_validation_by_items(tmp_path: Path) -> None:
    valid = Measured(17)
    by_items = make(RegressionTrainer, tmp_path / "a", val_dataset=valid).validation()
    by_budget = make(RegressionTrainer, tmp_path / "b", dataset=Measured(9), val_dataset=valid, **BUDGET).validation()
    assert by_budget == pytest.approx(by_items, rel=1e-5)


# Mistakes.


def test_an_item_longer_than_the_budget_is_told_before_training(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"longest item has 4 seconds, more than plan\.seconds_per_batch 2: raise it"):
        TrainingData(plan(seconds_per_batch=2.0, valid_frac=0), ALONE, collate, dataset=Ragged())
    short = Subset(Ragged(), range(20))
    with pytest.raises(UserError, match="longest item has 4 seconds"):
        TrainingData(plan(seconds_per_batch=2.0), ALONE, collate, dataset=short, val_dataset=Ragged())


@pytest.mark.parametrize("unit", ["seconds", "tokens"])
def test_a_dataset_without_lengths_is_told_in_a_sentence(tmp_path: Path, unit: str) -> None:
    with pytest.raises(UserError, match=rf"list has no {unit}\(index\): set plan\.batch_size instead"):
        make(RegressionTrainer, tmp_path, dataset=waves(), **{f"{unit}_per_batch": 3})


def test_a_given_loader_makes_its_own_batches(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="makes its own batches: leave out seconds_per_batch"):
        make(RegressionTrainer, tmp_path, train_dataloader=DataLoader(waves()), **BUDGET)


def test_there_is_one_budget() -> None:
    with pytest.raises(ValidationError, match="either seconds_per_batch or tokens_per_batch"):
        plan(tokens_per_batch=3)
