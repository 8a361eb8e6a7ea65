"""A frozen part takes no gradient, is in no optimizer, stays in eval mode, and is in no checkpoint."""

from __future__ import annotations

from pathlib import Path

import torch
from toys import GanTrainer, ToyGan, make, saved_state

from madrigal.engine.feed import Batch
from madrigal.engine.trainer import Terms


class Listening(GanTrainer):
    """Notes the modes of the frozen part and of the rest while a loss is computed."""

    def loss(self, turn: str, batch: Batch) -> Terms:
        self.modes = {name: module.training for name, module in self.model.named_modules()}
        return super().loss(turn, batch)


def test_it_is_in_no_optimizer_and_takes_no_gradient(tmp_path: Path) -> None:
    trainer = make(GanTrainer, tmp_path)
    ears = {id(p) for p in trainer.model.ears.parameters()}
    held = [p for t in trainer.turn_states for g in t.optimizer.param_groups for p in g["params"]]
    assert ears
    assert not ears & {id(p) for p in held}
    before = {n: t.clone() for n, t in trainer.model.ears.state_dict().items()}
    for _ in range(4):
        trainer.train_step()
    assert all(not p.requires_grad and p.grad is None for p in trainer.model.ears.parameters())
    assert all(torch.equal(t, before[n]) for n, t in trainer.model.ears.state_dict().items())


def test_it_stays_in_eval_mode_while_the_rest_trains(tmp_path: Path) -> None:
    trainer = make(Listening, tmp_path)
    for _ in range(3):
        trainer.train_step()
        trainer.validation()
        assert trainer.modes["generator.1"]
        assert not any(mode for name, mode in trainer.modes.items() if name.startswith("ears"))


def test_it_is_in_no_checkpoint_and_not_averaged(tmp_path: Path) -> None:
    trainer = make(GanTrainer, tmp_path / "run")
    trainer.train_step()
    trainer.save(tmp_path / "checkpoint")
    names = saved_state(tmp_path / "checkpoint").keys()
    assert any(name.startswith("ema/") for name in names)
    assert not any("ears" in name for name in names)


def test_a_checkpoint_leaves_the_frozen_part_of_the_one_who_loads_it(tmp_path: Path) -> None:
    trainer = make(GanTrainer, tmp_path / "a")
    trainer.train_step()
    trainer.save(tmp_path / "checkpoint")
    model = ToyGan()
    torch.nn.init.ones_(model.ears[0].weight)
    for restore in (True, False):
        other = make(GanTrainer, tmp_path / f"b{restore}", model=model)
        other.load(tmp_path / "checkpoint", restore_optimizer=restore)
        assert torch.equal(model.ears[0].weight, torch.ones(4, 8))
        with other.ema.swapped():
            assert torch.equal(model.ears[0].weight, torch.ones(4, 8))
