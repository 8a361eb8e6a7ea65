"""The learning rate is a closed-form function of the global step."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from toys import GanTrainer, RegressionTrainer, make, waves

from madrigal.engine.plan import Plan
from madrigal.engine.schedule import learning_rate
from madrigal.engine.turn import Turn, TurnState

PEAK, END, START = 1e-2, 1e-4, 1e-3


def ramp_then(shape: str, step: int, total: int, warmup: int) -> float:
    """Written anew for the test: `warmup` steps up from START, the step after it at PEAK, the last at END."""
    if step < warmup:
        return START + (PEAK - START) / (warmup + 1) * (step + 1)
    way = (step - warmup) / (total - 1 - warmup)
    if shape == "constant":
        return PEAK
    if shape == "linear":
        return (1 - way) * PEAK + way * END
    return END + (PEAK - END) * math.cos(math.pi * way / 2) ** 2


@pytest.mark.parametrize("shape", ["constant", "linear", "cosine"])
@pytest.mark.parametrize("warmup", [0, 1, 5])
def test_X9_every_step_has_the_closed_forms_rate(shape: str, warmup: int) -> None:
    total = 40
    rates = [
        learning_rate(step, peak=PEAK, total_steps=total, warmup_steps=warmup, initial=START, final=END, schedule=shape)
        for step in range(total)
    ]
    assert rates == pytest.approx([ramp_then(shape, s, total, warmup) for s in range(total)], rel=1e-12)
    assert rates[warmup] == max(rates) == PEAK
    assert rates[-1] == (PEAK if shape == "constant" else END)


@pytest.mark.parametrize("accumulation", [1, 3])
def test_X8_a_run_trains_with_the_closed_forms_rate(tmp_path: Path, accumulation: int) -> None:
    options = {"lr": PEAK, "initial_lr": START, "final_lr": END, "warmup_steps": 3, "use_ema": False}
    trainer = make(RegressionTrainer, tmp_path, grad_accum_every=accumulation, **options)
    (turn,) = trainer.turn_states
    for step in range(12):
        figures = trainer.train_step()
        expected = pytest.approx(ramp_then("cosine", step, 12, 3), rel=1e-12)
        assert figures["lr"] == expected
        assert [group["lr"] for group in turn.optimizer.param_groups] == [expected] * 2


def test_AT16_a_run_without_warm_up_begins_at_the_peak(tmp_path: Path) -> None:
    assert make(RegressionTrainer, tmp_path, lr=PEAK, warmup_steps=0).train_step()["lr"] == PEAK


@pytest.mark.parametrize("total", [1, 3, 5, 6])
def test_a_run_that_ends_within_its_warm_up_still_rises(total: int) -> None:
    rates = [learning_rate(s, peak=1.0, total_steps=total, warmup_steps=5, schedule="cosine") for s in range(total)]
    assert rates[:5] == pytest.approx([(s + 1) / 6 for s in range(total)][:5])


@pytest.mark.parametrize("shape", ["linear", "cosine"])
def test_X9_peak_and_end_are_reached_to_the_bit(shape: str) -> None:
    for peak in (1e-2, 3e-4, 0.7):
        for final in (0.0, 1e-4, 1e-9, 0.7):
            options = {"peak": peak, "final": final, "total_steps": 37, "warmup_steps": 7, "schedule": shape}
            assert learning_rate(7, **options) == peak
            assert learning_rate(36, **options) == final


def test_after_the_end_the_rate_stays_at_the_end() -> None:
    assert learning_rate(999, peak=1.0, total_steps=10, final=0.25, schedule="cosine") == 0.25


def test_each_turn_has_a_schedule_of_its_own_from_its_own_start(tmp_path: Path) -> None:
    trainer = make(GanTrainer, tmp_path, num_train_steps=12, warmup_steps=2, lr=PEAK, use_ema=False)
    rates: dict[str, dict[int, float]] = {"generator": {}, "critic": {}, "judge": {}}
    for step in range(12):
        for name, value in trainer.train_step().items():
            turn, _, figure = name.partition("/")
            if figure == "lr":
                rates[turn][step] = value
    assert list(rates["generator"]) == list(range(12))
    assert list(rates["critic"]) == list(range(2, 12))
    assert list(rates["judge"]) == [0, 3, 6, 9]
    critic = [2e-3 * ((s + 1) / 3 if s < 2 else math.cos(math.pi * (s - 2) / 7 / 2) ** 2) for s in range(10)]
    assert list(rates["critic"].values()) == pytest.approx(critic, abs=1e-15)
    assert rates["judge"] == pytest.approx({0: PEAK / 3, 3: PEAK, 6: PEAK, 9: PEAK})


def test_a_custom_curve_gives_factors_of_the_peak(tmp_path: Path) -> None:
    trainer = make(RegressionTrainer, tmp_path, scheduler=lambda step: 1 / (1 + step), lr=PEAK, warmup_steps=2)
    rates = [trainer.train_step()["lr"] for _ in range(5)]
    top = PEAK / 3
    assert rates == pytest.approx([top / 3, top * 2 / 3, PEAK / 3, PEAK / 4, PEAK / 5])


def test_a_torch_scheduler_class_gives_the_rates_that_torch_gives(tmp_path: Path) -> None:
    kwargs = {"T_0": 4, "T_mult": 2, "eta_min": END}
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts
    plan = {"scheduler": scheduler, "scheduler_kwargs": kwargs, "warmup_steps": 0, "lr": PEAK}
    trainer = make(RegressionTrainer, tmp_path, **plan)
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=PEAK)
    reference = scheduler(optimizer, **kwargs)
    for _ in range(12):
        assert trainer.train_step()["lr"] == pytest.approx(optimizer.param_groups[0]["lr"])
        optimizer.step()
        reference.step()


def test_a_torch_schedulers_rates_do_not_depend_on_the_order_of_asking() -> None:
    plan = Plan(num_train_steps=9, scheduler=torch.optim.lr_scheduler.ExponentialLR, scheduler_kwargs={"gamma": 0.5})
    weight = {"w": torch.nn.Parameter(torch.zeros(2, 2))}
    turns = [TurnState(Turn("one", weight), plan, 9, "cpu") for _ in range(2)]
    forwards = [turns[0].learning_rate(s) for s in range(9)]
    backwards = [turns[1].learning_rate(s) for s in reversed(range(9))]
    assert forwards == backwards[::-1] == pytest.approx([plan.lr * 0.5**s for s in range(9)])


def test_the_rate_is_the_same_after_a_resume(tmp_path: Path) -> None:
    unbroken = [f["lr"] for f in _steps(make(RegressionTrainer, tmp_path / "a"), 12)]
    first = make(RegressionTrainer, tmp_path / "b")
    rates = [f["lr"] for f in _steps(first, 7)]
    first.save(tmp_path / "checkpoint")
    second = make(RegressionTrainer, tmp_path / "c")
    second.load(tmp_path / "checkpoint")
    assert rates + [f["lr"] for f in _steps(second, 5)] == unbroken


def test_a_run_by_epochs_knows_where_its_schedule_ends(tmp_path: Path) -> None:
    options = {"num_train_epochs": 1.5, "batch_size": 4, "valid_frac": 0, "final_lr": END, "grad_accum_every": 2}
    trainer = make(RegressionTrainer, tmp_path, dataset=waves(48), **options)
    assert trainer.num_train_steps == 9
    assert _steps(trainer, 9)[-1]["lr"] == END


def _steps(trainer: RegressionTrainer, count: int) -> list[dict[str, float]]:
    return [trainer.train_step() for _ in range(count)]
