"""Where batches come from: datasets in an order of ours, loaders of the user's own."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from toys import GanTrainer, RegressionTrainer, assert_identical, make, waves, whole_state

from madrigal.engine.feed import as_batch
from madrigal.errors import UserError


class Noisy(Dataset[Tensor]):
    """A foreign dataset that augments by torch's global generator."""

    def __len__(self) -> int:
        return 20

    def __getitem__(self, index: int) -> Tensor:
        return torch.full((8,), float(index)) / 20 + 0.01 * torch.rand(8)


def taken(trainer: RegressionTrainer, steps: int) -> Tensor:
    for _ in range(steps):
        trainer.train_step()
    return torch.cat(trainer.seen)


def test_an_epoch_holds_every_item_once_and_the_next_has_another_order(tmp_path: Path) -> None:
    trainer = make(RegressionTrainer, tmp_path, dataset=waves(12), valid_frac=0, batch_size=4)
    first, second = taken(trainer, 6).split(12)
    assert {tuple(row) for row in first.tolist()} == {tuple(row) for row in second.tolist()}
    assert len({tuple(row) for row in first.tolist()}) == 12
    assert not torch.equal(first, second)


@pytest.mark.parametrize("workers", [0, 1])
def test_order_and_augmentation_depend_on_seed_and_step_alone(tmp_path: Path, workers: int) -> None:
    options = {"dataset": Noisy(), "valid_frac": 0}
    whole = taken(make(RegressionTrainer, tmp_path / "a", **options), 8)
    torch.manual_seed(7)
    later = make(RegressionTrainer, tmp_path / "b", dl_num_workers=workers, **options)
    later.step = 5
    assert torch.equal(taken(later, 3), whole[5 * 4 :])
    later.data.close()
    assert not torch.equal(taken(make(RegressionTrainer, tmp_path / "c", seed=1, **options), 8), whole)


def test_the_loaders_processes_go_when_training_ends(tmp_path: Path) -> None:
    others = multiprocessing.active_children()
    trainer = make(RegressionTrainer, tmp_path, dl_num_workers=1, num_train_steps=2)
    trainer.train_step()
    assert len(multiprocessing.active_children()) == len(others) + 1
    trainer.train()
    assert multiprocessing.active_children() == others


def test_training_by_epochs_goes_through_the_data_so_often(tmp_path: Path) -> None:
    options = {"num_train_epochs": 3, "valid_frac": 0, "dataset": waves(16), "batch_size": 4}
    trainer = make(RegressionTrainer, tmp_path / "set", **options)
    trainer.train()
    assert trainer.step == 12
    rows = [tuple(row) for batch in trainer.seen for row in batch.tolist()]
    assert all(rows.count(row) == 3 for row in set(rows))
    loader = DataLoader(waves(16), batch_size=4)
    given = make(RegressionTrainer, tmp_path / "loader", num_train_epochs=3, train_dataloader=loader)
    assert given.num_train_steps == 12


def test_a_given_loader_is_gone_through_again_and_again(tmp_path: Path) -> None:
    items = waves(6)
    trainer = make(RegressionTrainer, tmp_path, train_dataloader=DataLoader(items, batch_size=3), grad_accum_every=2)
    rows = taken(trainer, 2)
    assert torch.equal(rows, torch.stack(items + items))


def test_a_given_loader_that_shuffles_is_resumed_where_it_was(tmp_path: Path) -> None:
    def started(name: str) -> RegressionTrainer:
        loader = DataLoader(Noisy(), batch_size=4, shuffle=True)
        return make(RegressionTrainer, tmp_path / name, train_dataloader=loader)

    unbroken = started("a")
    for _ in range(12):
        unbroken.train_step()
        if unbroken.step == 7:
            unbroken.save(tmp_path / "middle")
    torch.manual_seed(5)
    resumed = started("b")
    resumed.load(tmp_path / "middle")
    assert torch.equal(taken(resumed, 5), torch.cat(unbroken.seen)[7 * 4 :])
    assert_identical(whole_state(resumed), whole_state(unbroken))


def test_a_given_loader_does_not_move_the_generators_of_training(tmp_path: Path) -> None:
    trainer = make(RegressionTrainer, tmp_path, train_dataloader=DataLoader(Noisy(), batch_size=4, shuffle=True))
    torch.manual_seed(3)
    before = torch.get_rng_state()
    trainer.data.feed("all turns").micro_batches(0)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_given_loader_serves_a_gan_with_turns_of_their_own(tmp_path: Path) -> None:
    class Apart(GanTrainer):
        turns_share_batch = False

    trainer = make(Apart, tmp_path, train_dataloader=DataLoader(waves(20), batch_size=4), num_train_steps=4)
    trainer.train()
    assert trainer.step == 4


def test_a_foreign_batch_becomes_a_dict() -> None:
    flat, channelled = torch.rand(3, 8), torch.rand(3, 2, 8)
    assert as_batch({"audio": flat}) == {"audio": flat}
    assert as_batch(flat)["audio"].shape == (3, 1, 8)
    assert as_batch([channelled])["audio"].shape == (3, 2, 8)
    assert as_batch(flat)["lengths"].tolist() == [8, 8, 8]
    with pytest.raises(UserError, match="is a str; it should be a dict of tensors or one tensor"):
        as_batch("batch")


def test_an_empty_loader_is_told_in_a_sentence(tmp_path: Path) -> None:
    loader = DataLoader(waves(3), batch_size=4, drop_last=True)
    with pytest.raises(UserError, match="yields no batch"):
        make(RegressionTrainer, tmp_path, train_dataloader=loader).train_step()


@pytest.mark.parametrize("given", [{}, {"dataset": [], "train_dataloader": []}])
def test_data_are_given_once(tmp_path: Path, given: dict[str, list[Tensor]]) -> None:
    with pytest.raises(UserError, match="and only one"):
        RegressionTrainer(torch.nn.Linear(1, 1), plan=_plan(), results_folder=tmp_path, **given)


def test_a_batch_larger_than_the_set_is_told_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds 5 items, fewer than batch_size 8: lower batch_size, add data"):
        make(RegressionTrainer, tmp_path, dataset=waves(6), batch_size=8)


def _plan() -> object:
    from madrigal.engine.plan import Plan

    return Plan(num_train_steps=1)
