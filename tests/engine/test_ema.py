"""The average of the weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from toys import GanTrainer, RegressionTrainer, ToyRegression, make

from madrigal.engine.ema import ExponentialMovingAverage


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(3))
        self.codebook = nn.Parameter(torch.zeros(2), requires_grad=False)
        self.register_buffer("count", torch.tensor(0))
        self.register_buffer("usage", torch.zeros(2))
        self.register_buffer("scratch", torch.zeros(2), persistent=False)

    def move(self, value: float) -> None:
        with torch.no_grad():
            for tensor in (self.weight, self.codebook, self.usage, self.scratch):
                tensor.fill_(value)
            self.count.fill_(int(value))


def test_start_cadence_and_beta() -> None:
    model = Counting()
    average = ExponentialMovingAverage({"": model}, beta=0.75, update_after_step=2, update_every=3)
    expected = 0.0
    for step in range(1, 13):
        model.move(float(step))
        average.update(step)
        if step <= 2:
            expected = float(step)
        elif step % 3 == 0:
            expected = 0.75 * expected + 0.25 * step
        state = average.state_dict()
        assert state["weight"].tolist() == pytest.approx([expected] * 3, rel=1e-6)
        assert state["codebook"].tolist() == pytest.approx([expected] * 2, rel=1e-6)


def test_what_came_before_its_start_is_not_taken_up_later() -> None:
    model = Counting()
    average = ExponentialMovingAverage({"": model}, beta=0.5, update_after_step=5, update_every=1)
    average.update(0)
    model.move(4.0)
    average.update(6)
    model.move(100.0)
    assert average.state_dict()["weight"].tolist() == [2.0] * 3


def test_buffers_are_copied_and_keep_their_type() -> None:
    model = Counting()
    average = ExponentialMovingAverage({"": model}, beta=0.5, update_after_step=0, update_every=2)
    model.move(7.0)
    average.update(1)
    assert average.state_dict()["count"] == 0
    average.update(2)
    state = average.state_dict()
    assert state["count"].dtype == torch.int64
    assert state["count"] == 7
    assert state["usage"].tolist() == [7.0, 7.0]
    assert state["weight"].tolist() == [3.5] * 3
    assert "scratch" not in state


def test_AT5_swapping_gives_back_both_sides_to_the_bit() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5))
    average = ExponentialMovingAverage({"": model}, beta=0.9, update_after_step=0, update_every=1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
    average.update(1)
    identity = [id(p) for p in model.parameters()]
    online = {n: t.clone() for n, t in model.state_dict().items()}
    averaged = {n: t.clone() for n, t in average.state_dict().items()}
    assert not torch.equal(online["0.weight"], averaged["0.weight"])
    with average.swapped():
        assert all(torch.equal(t, averaged[n]) for n, t in model.state_dict().items())
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), average.swapped():
            _ = 1 / 0
    assert all(torch.equal(t, online[n]) for n, t in model.state_dict().items())
    assert all(torch.equal(t, averaged[n]) for n, t in average.state_dict().items())
    assert identity == [id(p) for p in model.parameters()]


def test_a_tensor_with_two_names_is_averaged_once_and_saved_under_both() -> None:
    model = nn.ModuleDict({"encoder": nn.Linear(2, 2), "decoder": nn.Linear(2, 2)})
    model["decoder"].weight = model["encoder"].weight
    average = ExponentialMovingAverage({"": model}, beta=0.5, update_after_step=0, update_every=1)
    start = model["encoder"].weight.detach().clone()
    with torch.no_grad():
        model["encoder"].weight.add_(1.0)
    average.update(1)
    state = average.state_dict()
    assert state.keys() == model.state_dict().keys()
    for name in ("encoder.weight", "decoder.weight"):
        assert torch.allclose(state[name], start + 0.5)


def test_AT22_only_the_named_parts_are_averaged(tmp_path: Path) -> None:
    class WithoutDiscriminators(GanTrainer):
        def averaged(self) -> dict[str, nn.Module]:
            return {"generator": self.model.generator}

    trainer = make(WithoutDiscriminators, tmp_path)
    names = set(trainer.ema.state_dict())
    assert names == {name for name in trainer.model.state_dict() if name.startswith("generator.")}


def test_a_run_keeps_the_average_that_its_plan_asks_for(tmp_path: Path) -> None:
    trainer = make(RegressionTrainer, tmp_path, ema_beta=0.5, ema_update_after_step=2, ema_update_every=2, lr=0.1)
    expected = trainer.model.line.weight.detach().clone()
    for step in range(1, 9):
        trainer.train_step()
        online = trainer.model.line.weight.detach()
        if step <= 2:
            expected = online.clone()
        elif step % 2 == 0:
            expected = (expected + online) / 2
        assert torch.allclose(trainer.ema.state_dict()["line.weight"], expected, atol=1e-7)
    assert not torch.allclose(trainer.ema.state_dict()["line.weight"], trainer.model.line.weight, atol=1e-4)


def test_the_average_starts_from_what_the_first_step_set(tmp_path: Path) -> None:
    trainer = make(GanTrainer, tmp_path, ema_update_after_step=0, ema_update_every=10)
    trainer.train_step()
    codebook = trainer.ema.state_dict()["codebook"]
    assert codebook.abs().sum() > 0
    assert torch.allclose(codebook, trainer.model.codebook, atol=0.011)


def test_a_run_may_keep_no_average(tmp_path: Path) -> None:
    trainer = make(RegressionTrainer, tmp_path, use_ema=False, num_train_steps=3)
    trainer.train()
    assert trainer.ema is None
    newest = trainer.run.checkpoints / "step-00000003"
    assert not (newest / "ema.safetensors").exists()
    averaging = make(RegressionTrainer, tmp_path / "other", model=ToyRegression())
    averaging.load(newest)
    assert torch.equal(averaging.ema.state_dict()["line.weight"], trainer.model.line.weight)
