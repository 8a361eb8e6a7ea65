"""Trackers through Accelerate: started once, fed, and closed whatever happens."""

from __future__ import annotations

from pathlib import Path

import pytest
from accelerate import Accelerator
from accelerate.tracking import GeneralTracker
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from toys import RegressionTrainer, make

from madrigal.errors import UserError


class Remembering(GeneralTracker):
    """A tracker that remembers what it was told."""

    name = "remembering"
    requires_logging_directory = False

    def __init__(self) -> None:
        super().__init__(_blank=True)
        self.config: dict[str, object] = {}
        self.lines: list[tuple[int | None, dict[str, float]]] = []
        self.finished = 0

    @property
    def tracker(self) -> None:
        return None

    def store_init_configuration(self, values: dict[str, object]) -> None:
        self.config = values

    def log(self, values: dict[str, float], step: int | None = None, **_: object) -> None:
        self.lines.append((step, values))

    def finish(self) -> None:
        self.finished += 1


def test_AT13_tensorboard_gets_hyper_parameters_and_every_step_in_one_run(tmp_path: Path) -> None:
    trainer = make(RegressionTrainer, tmp_path, num_train_steps=4, log_with=("tensorboard",))
    trainer.train()
    events = sorted(tmp_path.rglob("*tfevents*"))
    assert events
    (folder,) = {p.parent for p in events if p.parent.name == "regression"}
    read = EventAccumulator(str(folder)).Reload()
    assert [e.step for e in read.Scalars("loss")] == [1, 2, 3, 4]
    assert [e.step for e in read.Scalars("valid/mse")] == [4]
    hyper_parameters = "".join(p.read_text() for p in tmp_path.rglob("hparams.yml"))
    assert "plan.lr: 0.01" in hyper_parameters
    assert "plan.num_train_steps: 4" in hyper_parameters


def test_AT13_hyper_parameters_are_told_once_and_the_tracker_closed(tmp_path: Path) -> None:
    tracker = Remembering()
    trainer = make(RegressionTrainer, tmp_path, num_train_steps=3, accelerator=Accelerator(cpu=True, log_with=tracker))
    trainer.train()
    assert tracker.config["plan.num_train_steps"] == 3
    assert tracker.config["system"] == "regression"
    assert [step for step, values in tracker.lines if "loss" in values] == [1, 2, 3]
    assert tracker.finished == 1


def test_AT13_a_tracker_is_closed_when_training_fails(tmp_path: Path) -> None:
    tracker = Remembering()
    accelerator = Accelerator(cpu=True, log_with=tracker)
    trainer = make(RegressionTrainer, tmp_path, accelerator=accelerator, max_skipped_steps=2)
    trainer.poison = dict.fromkeys(range(12), float("nan"))
    with pytest.raises(UserError, match="not finite"):
        trainer.train()
    assert tracker.finished == 1


def test_the_trackers_of_accelerate_kwargs_are_started_too(tmp_path: Path) -> None:
    tracker = Remembering()
    make(RegressionTrainer, tmp_path, num_train_steps=2, accelerate_kwargs={"log_with": tracker}).train()
    assert len(tracker.lines) >= 2


def test_AT13_a_run_opened_by_hand_is_the_one_that_training_uses(tmp_path: Path) -> None:
    tracker = Remembering()
    trainer = make(RegressionTrainer, tmp_path, num_train_steps=2, accelerate_kwargs={"log_with": tracker})
    with trainer.wandb_tracker("project", run="mine", hps={"colour": "blue"}):
        trainer.train()
    assert tracker.config["colour"] == "blue"
    assert tracker.config["plan.lr"] == 0.01
    assert tracker.finished == 1


def test_a_tracker_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("accelerate.tracking.get_available_trackers", list)
    with pytest.raises(UserError, match="log_with names tensorboard, not installed here"):
        make(RegressionTrainer, tmp_path, log_with=("tensorboard",))


def test_settings_beside_a_given_accelerator_that_do_nothing_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
    options = {"log_with": ("tensorboard",), "accelerate_kwargs": {"step_scheduler_with_optimizer": False}}
    make(RegressionTrainer, tmp_path, accelerator=accelerator, grad_accum_every=2, **options)
    assert capsys.readouterr().err.splitlines() == [
        "Accelerate's gradient_accumulation_steps 4 is not used: plan.grad_accum_every 2 counts",
        "plan.log_with tensorboard is not used: the given Accelerator has trackers of its own",
        "accelerate_kwargs step_scheduler_with_optimizer are not used: the given Accelerator is made already",
    ]


def test_settings_that_agree_need_no_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2, log_with="tensorboard", project_dir=tmp_path)
    make(RegressionTrainer, tmp_path, accelerator=accelerator, grad_accum_every=2, log_with=("tensorboard",))
    assert capsys.readouterr().err == ""


def test_without_trackers_nothing_but_the_run_folder_is_written(tmp_path: Path) -> None:
    make(RegressionTrainer, tmp_path, num_train_steps=1).train()
    assert {p.name for p in tmp_path.iterdir()} == {"checkpoints", "environment.json", "metrics.jsonl", "recipe.yaml"}
