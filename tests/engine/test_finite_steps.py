"""Precision, the loss scale, and steps that are not finite."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from toys import GanTrainer, RegressionTrainer, assert_identical, make, saved_state, whole_state

from madrigal.engine.feed import Batch
from madrigal.engine.precision import Precision
from madrigal.engine.trainer import Figures, Terms
from madrigal.errors import UserError

NAN, INFINITE = float("nan"), float("inf")


@pytest.mark.parametrize("value", [NAN, INFINITE])
def test_a_step_that_is_not_finite_is_skipped_and_counted(tmp_path: Path, value: float) -> None:
    trainer = make(RegressionTrainer, tmp_path, use_ema=False)
    trainer.train_step()
    before = whole_state(trainer)
    trainer.poison = {1: value}
    figures = trainer.train_step()
    assert figures["skipped"] == 1.0
    assert trainer.step == 2
    assert_identical(whole_state(trainer), before)
    trainer.train_step()
    assert trainer.turn_states[0].skipped_in_a_row == 0
    assert torch.isfinite(trainer.model.line.weight).all()
    assert not torch.equal(trainer.model.line.weight, before["model/line.weight"])


def test_a_gradient_that_is_not_finite_is_skipped_though_the_loss_is(tmp_path: Path) -> None:
    class Steep(RegressionTrainer):
        def loss(self, turn: str, batch: Batch) -> Terms:
            return {"root": (self.model.line.weight * 0).sum().sqrt()}

    trainer = make(Steep, tmp_path)
    figures = trainer.train_step()
    assert figures["loss"] == 0.0
    assert figures["skipped"] == 1.0
    assert torch.isfinite(trainer.model.line.weight).all()


def test_a_skipped_turn_touches_no_other_turn(tmp_path: Path) -> None:
    class BadCritic(GanTrainer):
        def loss(self, turn: str, batch: Batch) -> Terms:
            terms = super().loss(turn, batch)
            return {n: t * (NAN if turn == "critic" and self.step == 3 else 1.0) for n, t in terms.items()}

    trainer = make(BadCritic, tmp_path)
    for _ in range(3):
        trainer.train_step()
    before = whole_state(trainer)
    trainer.train_step()
    moved = {name for name, t in whole_state(trainer).items() if not torch.equal(t, before[name])}
    assert not any("critic" in name for name in moved if not name.startswith("ema/"))
    assert {"model/generator.0.weight", "model/judge.0.weight"} <= moved
    assert [turn.skipped for turn in trainer.turn_states] == [0, 1, 0]


def test_after_too_many_in_a_row_training_stops_and_the_last_good_checkpoint_stays(tmp_path: Path) -> None:
    trainer = make(RegressionTrainer, tmp_path, num_train_steps=50, max_skipped_steps=3)
    trainer.poison = {4: NAN, 5: NAN, **dict.fromkeys(range(9, 50), NAN)}
    with pytest.raises(UserError) as stop:
        trainer.train()
    sentence = str(stop.value)
    assert "at step 11" in sentence
    assert "3 times in a row" in sentence
    good = tmp_path / "checkpoints" / "step-00000008"
    assert str(good) in sentence
    assert "\n" not in sentence
    assert sorted(p.name for p in good.parent.iterdir()) == ["step-00000004", "step-00000008"]
    assert all(torch.isfinite(t).all() for t in saved_state(good).values())
    resumed = make(RegressionTrainer, tmp_path, num_train_steps=12, resume=True)
    assert resumed.step == 8
    resumed.train()


def test_amid_skipped_steps_nothing_is_saved_and_nothing_is_the_best(tmp_path: Path) -> None:
    class Improving(RegressionTrainer):
        def validate(self, batch: Batch) -> Terms:
            return {"score": torch.tensor(-float(self.step))}

    options = {"save_model_every": 2, "save_results_every": 2, "best_metric": "valid/score", "keep_checkpoints": 1}
    trainer = make(Improving, tmp_path, num_train_steps=9, use_ema=False, **options)
    trainer.poison = dict.fromkeys(range(4, 8), NAN)
    kept: list[list[str]] = []
    trainer.train(lambda _: kept.append(sorted(p.name for p in trainer.run.checkpoints.iterdir())))
    assert "step-00000004" in kept[-2]
    assert not any("step-00000006" in names or "step-00000008" in names for names in kept)
    assert trainer.best["step"] == 9


def test_weights_that_are_not_finite_never_take_a_good_checkpoints_place(tmp_path: Path) -> None:
    class Breaking(RegressionTrainer):
        def after_turn(self, turn: str, applied: bool) -> Figures:
            if self.step == 5:
                self.model.line.bias.data[0] = NAN
            return {}

    trainer = make(Breaking, tmp_path, keep_checkpoints=1, num_train_steps=6)
    with pytest.raises(
        UserError, match=r"the weights are not finite numbers; the last good checkpoint is .*step-00000004"
    ):
        trainer.train()
    assert all(torch.isfinite(t).all() for t in saved_state(tmp_path / "checkpoints" / "step-00000004").values())


def test_AT15_the_schedule_goes_on_after_a_skipped_step(tmp_path: Path) -> None:
    rates = []
    for name, poison in (("a", {}), ("b", {3: NAN})):
        trainer = make(RegressionTrainer, tmp_path / name)
        trainer.poison = poison
        rates.append([trainer.train_step()["lr"] for _ in range(8)])
    assert rates[0] == rates[1]


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_computes_in_it_and_learns(tmp_path: Path, precision: str) -> None:
    class Noting(RegressionTrainer):
        def loss(self, turn: str, batch: Batch) -> Terms:
            self.dtype = self.model(batch["audio"][:, 0]).dtype
            return super().loss(turn, batch)

    options = {"lr": 4e-2, "num_train_steps": 40, "batch_size": 8}
    full = make(RegressionTrainer, tmp_path / "full", **options)
    half = make(Noting, tmp_path / "half", mixed_precision=precision, **options)
    for _ in range(40):
        expected, figures = full.train_step(), half.train_step()
    assert half.dtype == {"bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    assert figures["loss"] == pytest.approx(expected["loss"], rel=0.05)
    assert half.model.line.weight.dtype == torch.float32
    assert half.validation()["valid/mse"] == pytest.approx(full.validation()["valid/mse"], rel=0.05)


@pytest.mark.parametrize("computes_in_it", [True, False])
def test_auto_is_bf16_where_the_machine_computes_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, computes_in_it: bool
) -> None:
    monkeypatch.setattr("madrigal.engine.precision.has_bf16", lambda device: computes_in_it)
    named = make(RegressionTrainer, tmp_path / "named", mixed_precision="bf16" if computes_in_it else "fp32")
    auto = make(RegressionTrainer, tmp_path / "auto", mixed_precision="auto")
    assert auto.recipe["plan"]["mixed_precision"] == named.plan.mixed_precision
    assert [auto.train_step()["loss"] for _ in range(3)] == [named.train_step()["loss"] for _ in range(3)]


def test_fp16_takes_the_scale_out_of_norm_and_step(tmp_path: Path) -> None:
    full, half = (make(RegressionTrainer, tmp_path / p, mixed_precision=p) for p in ("fp32", "fp16"))
    assert half.train_step()["grad_norm"] == pytest.approx(full.train_step()["grad_norm"], rel=0.02)
    assert half.turn_states[0].precision.scale == 2.0**16


def test_AT15_an_overflow_halves_the_scale_of_its_turn_alone(tmp_path: Path) -> None:
    class Overflowing(GanTrainer):
        def loss(self, turn: str, batch: Batch) -> Terms:
            terms = super().loss(turn, batch)
            return {n: t * (1e36 if turn == "critic" and self.step == 3 else 1.0) for n, t in terms.items()}

    trainer = make(Overflowing, tmp_path / "a", mixed_precision="fp16")
    for turn in trainer.turn_states:
        turn.precision.scale = 1024.0
    for _ in range(3):
        trainer.train_step()
    before = whole_state(trainer)
    figures = trainer.train_step()
    assert figures["critic/skipped"] == 1.0
    assert [turn.precision.scale for turn in trainer.turn_states] == [1024.0, 512.0, 1024.0]
    assert [turn.precision.good_steps for turn in trainer.turn_states] == [4, 0, 2]
    assert torch.equal(before["model/critic.0.weight"], trainer.model.critic[0].weight)
    assert not torch.equal(before["model/generator.0.weight"], trainer.model.generator[0].weight)
    # An overflow that a smaller scale can cure is no reason to stop.
    assert trainer.turn_states[1].skipped_in_a_row == 0

    trainer.save(tmp_path / "checkpoint")
    other = make(Overflowing, tmp_path / "b", mixed_precision="fp16")
    other.load(tmp_path / "checkpoint")
    assert [turn.state_dict() for turn in other.turn_states] == [turn.state_dict() for turn in trainer.turn_states]
    for run in (trainer, other):
        run.train_step()
    assert_identical(whole_state(other), whole_state(trainer))


def test_the_scale_grows_after_many_good_steps_and_never_falls_below_one() -> None:
    precision = Precision("fp16", "cpu")
    precision.growth_interval = 3
    assert [precision.update(True) for _ in range(6)] == [False] * 6
    assert precision.scale == 2.0**18
    assert all(precision.update(False) for _ in range(18))
    assert precision.scale == 1.0
    # Now the scale is not to blame, and the step counts towards stopping.
    assert not precision.update(False)
    assert precision.scale == 1.0


def test_fp16_that_is_never_finite_stops_in_the_end(tmp_path: Path) -> None:
    options = {"mixed_precision": "fp16", "max_skipped_steps": 2, "save_model_every": 99, "use_ema": False}
    trainer = make(RegressionTrainer, tmp_path, num_train_steps=99, **options)
    trainer.poison = dict.fromkeys(range(99), NAN)
    with pytest.raises(UserError, match="not finite 2 times in a row; no checkpoint was written yet"):
        trainer.train()
    assert trainer.step == 16 + 1
