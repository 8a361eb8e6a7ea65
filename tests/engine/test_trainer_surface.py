"""What scripts rely on: the trainer's names and manners."""

from __future__ import annotations

import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from accelerate import Accelerator, InitProcessGroupKwargs
from pydantic import ValidationError
from torch import nn
from toys import GanTrainer, RegressionTrainer, ToyRegression, assert_identical, make, whole_state

from madrigal.engine.keywords import translated
from madrigal.engine.plan import Plan
from madrigal.engine.stopping import stopping_cleanly
from madrigal.engine.tracking import make_accelerator
from madrigal.engine.trainer import Trainer
from madrigal.errors import UserError


def test_X1_eval_only_sets_the_mode_and_the_next_step_sets_it_back(tmp_path: Path) -> None:
    trainer = make(GanTrainer, tmp_path)
    before = whole_state(trainer)
    assert not isinstance(trainer, nn.Module)
    assert trainer.eval() is trainer
    assert not trainer.model.training
    assert trainer.step == 0
    assert_identical(whole_state(trainer), before)
    trainer.train_step()
    assert trainer.model.generator.training


def test_X12_several_trainers_live_in_one_process(tmp_path: Path) -> None:
    alone = make(GanTrainer, tmp_path / "alone")
    for _ in range(4):
        alone.train_step()
    with pytest.raises(UserError):
        RegressionTrainer(ToyRegression(), plan=Plan(num_train_steps=1), results_folder=tmp_path / "fails")
    one, other = make(GanTrainer, tmp_path / "one"), make(RegressionTrainer, tmp_path / "other")
    for _ in range(4):
        one.train_step()
        other.train_step()
    assert_identical(whole_state(one), whole_state(alone))


def test_train_step_alone_needs_nothing_else(tmp_path: Path) -> None:
    trainer = make(RegressionTrainer, tmp_path)
    figures = trainer.train_step()
    assert trainer.step == 1
    assert {"mse", "loss", "lr", "grad_norm"} == figures.keys()
    assert all(type(value) is float for value in figures.values())


def test_train_and_train_step_take_the_same_steps(tmp_path: Path) -> None:
    looped, single = make(GanTrainer, tmp_path / "a"), make(GanTrainer, tmp_path / "b")
    assert looped.train() is looped
    for _ in range(12):
        single.train_step()
    assert_identical(whole_state(looped), whole_state(single))


def test_log_fn_gets_every_figure_that_is_logged(tmp_path: Path) -> None:
    seen: list[dict[str, float]] = []
    make(RegressionTrainer, tmp_path, num_train_steps=5).train(seen.append)
    assert sum("loss" in figures for figures in seen) == 5
    assert [figures for figures in seen if "valid/mse" in figures]


def test_an_injected_accelerator_is_used(tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True)
    trainer = make(RegressionTrainer, tmp_path / "a", accelerator=accelerator, num_train_steps=2)
    assert trainer.accelerator is accelerator
    trainer.train()
    # And a trainer that makes its own still can.
    make(RegressionTrainer, tmp_path / "b", num_train_steps=2).train()


def test_X6_accelerate_kwargs_belong_to_the_caller(tmp_path: Path) -> None:
    given: dict[str, Any] = {"init_process_group_timeout_seconds": 60, "log_with": "tensorboard"}
    before = dict(given)
    first = make(RegressionTrainer, tmp_path / "a", accelerate_kwargs=given)
    second = make(RegressionTrainer, tmp_path / "b")
    assert given == before
    assert first.accelerator.log_with
    assert not second.accelerator.log_with


def test_X7_handlers_may_be_given_beside_the_engines_own(tmp_path: Path) -> None:
    handlers = [InitProcessGroupKwargs()]
    trainer = make(RegressionTrainer, tmp_path, accelerate_kwargs={"kwargs_handlers": handlers})
    trainer.train_step()
    assert len(handlers) == 1


def test_what_accelerate_refuses_is_told_in_a_sentence(tmp_path: Path) -> None:
    plan = Plan(num_train_steps=1, log_with=("nonsense",))
    with pytest.raises(UserError, match=r"Accelerate could not start .*nonsense.*check log_with"):
        make_accelerator(plan, tmp_path, {})


def test_where_it_runs(tmp_path: Path) -> None:
    trainer = make(RegressionTrainer, tmp_path)
    assert trainer.is_main
    assert trainer.is_local_main
    assert not trainer.is_distributed
    assert trainer.device.type == "cpu"
    assert trainer.to("anywhere") is trainer


def test_AT20_numbers_are_taken_as_people_write_them() -> None:
    plan = Plan(num_train_epochs=2.5, save_model_every=1e3, batch_size="8", lr="1e-4")
    assert (plan.save_model_every, plan.batch_size, plan.lr) == (1000, 8, 1e-4)
    assert type(plan.save_model_every) is int


def test_AT17_none_may_be_said_explicitly() -> None:
    plan = Plan(num_train_steps=3, num_train_epochs=None, max_grad_norm=None, best_metric=None)
    assert plan.max_grad_norm is None


@pytest.mark.parametrize(
    "wrong",
    [{}, {"num_train_steps": 1, "num_train_epochs": 1}, {"num_train_steps": 0}, {"num_train_steps": 1, "lr": 0}],
)
def test_a_plan_that_cannot_be_followed_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Plan(**wrong)


def test_a_plan_stays_as_it_was_made() -> None:
    with pytest.raises(ValidationError):
        Plan(num_train_steps=1).lr = 1.0


def test_AT27_trackers_are_not_imported_unless_named(tmp_path: Path) -> None:
    make(RegressionTrainer, tmp_path, num_train_steps=1).train()
    assert not {"wandb", "trackio", "comet_ml", "mlflow"} & sys.modules.keys()


def test_a_trainer_without_a_loss_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError, match="Trainer has to say what its loss is"):
        make(Trainer, tmp_path).train_step()


def test_AT14_optimizers_are_no_modules(tmp_path: Path) -> None:
    trainer = make(GanTrainer, tmp_path)
    assert all(isinstance(turn.optimizer, torch.optim.Optimizer) for turn in trainer.turn_states)
    assert not any(isinstance(turn, nn.Module) for turn in trainer.turn_states)


def test_keywords_of_older_scripts_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    given = {
        "lr": 1e-4,
        "batch_size": 8,
        "split_batches": True,
        "drop_last": False,
        "dataloader_drop_last": True,
        "force_clear_prev_results": True,
        "use_wandb_tracking": True,
        "init_process_group_timeout_seconds": 30,
        "accelerate_kwargs": {"cpu": True},
    }
    before = {**given, "accelerate_kwargs": {"cpu": True}}
    trainer, plan = translated(given)
    assert given == before
    assert plan == {"lr": 1e-4, "batch_size": 4, "log_with": ("wandb",)}
    assert trainer == {
        "overwrite": True,
        "accelerate_kwargs": {"cpu": True, "init_process_group_timeout_seconds": 30},
    }


def test_AT17_keywords_of_older_scripts_may_be_none_or_left_out() -> None:
    options = {"force_clear_prev_results": None, "accelerate_kwargs": None, "split_batches": True}
    trainer, plan = translated(options)
    assert trainer == {"accelerate_kwargs": {}}
    assert plan == {"batch_size": 4}


def test_a_trainer_in_a_thread_leaves_signals_to_the_program(tmp_path: Path) -> None:
    handler = signal.getsignal(signal.SIGTERM)
    trainer = make(RegressionTrainer, tmp_path, num_train_steps=2)
    thread = threading.Thread(target=trainer.train)
    thread.start()
    thread.join()
    assert trainer.step == 2
    assert signal.getsignal(signal.SIGTERM) is handler


def test_signals_are_handled_while_training_and_given_back_after() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    said: list[str] = []
    with stopping_cleanly(said.append) as asked:
        assert not asked()
        signal.raise_signal(signal.SIGTERM)
        assert asked()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert said == ["Stopping after this step (once more to stop at once)"]


def test_a_signal_in_the_middle_of_a_line_does_no_harm() -> None:
    def reentrant(_: str) -> None:
        raise RuntimeError("reentrant call inside <_io.BufferedWriter name='<stderr>'>")

    with stopping_cleanly(reentrant) as asked:
        signal.raise_signal(signal.SIGTERM)
        assert asked()
