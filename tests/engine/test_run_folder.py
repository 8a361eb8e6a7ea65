"""A run is a folder, and what is in it is never lost by accident."""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from toys import GanTrainer, RegressionTrainer, make

from madrigal.engine.plan import Plan
from madrigal.engine.run import LOCK, RunFolder, summaries
from madrigal.errors import UserError


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "first"
    make(RegressionTrainer, folder, num_train_steps=6, save_model_every=3).train()
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_the_recipe_alone_repeats_the_plan(run: Path) -> None:
    recipe = yaml.safe_load((run / "recipe.yaml").read_text())
    assert recipe["system"] == "regression"
    plan = Plan(**recipe["plan"])
    assert (plan.num_train_steps, plan.lr, plan.scheduler, plan.betas) == (6, 1e-2, "cosine", (0.9, 0.99))
    assert plan.recorded() == recipe["plan"]


def test_a_curve_that_only_python_can_hold_is_named_in_the_recipe(tmp_path: Path) -> None:
    def falling(step: int) -> float:
        return 1 / (1 + step)

    make(RegressionTrainer, tmp_path, num_train_steps=1, scheduler=falling).train()
    assert yaml.safe_load((tmp_path / "recipe.yaml").read_text())["plan"]["scheduler"] == "falling"


def test_the_environment_is_noted(run: Path) -> None:
    noted = json.loads((run / "environment.json").read_text())
    assert noted.keys() >= {"madrigal", "python", "torch", "platform", "cores"}


def test_metrics_have_a_line_for_every_step_and_one_for_each_validation(run: Path) -> None:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == [1, 2, 3, 4, 5, 6]
    assert [line["step"] for line in lines if "valid/mse" in line] == [5, 6]
    assert all({"mse", "loss", "lr", "grad_norm", "time"} <= line.keys() for line in lines if "loss" in line)
    assert "items/s" in lines[-2]


def test_metrics_stay_json_when_a_figure_is_no_number(tmp_path: Path) -> None:
    def no_word_of_json(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    trainer = make(RegressionTrainer, tmp_path / "run", num_train_steps=3, best_metric="valid/mse")
    trainer.poison = {1: float("nan"), 3: float("inf")}  # the second: in the validation after the last step
    trainer.train()
    text = (tmp_path / "run" / "metrics.jsonl").read_text()
    lines = [json.loads(line, parse_constant=no_word_of_json) for line in text.splitlines()]
    assert [line["loss"] is None for line in lines if "loss" in line] == [False, True, False]
    assert lines[-1]["valid/mse"] is None
    (row,) = summaries(tmp_path)
    assert row["figures"]["valid/mse"] is None


def test_figures_of_an_older_file_that_are_no_numbers_are_none(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.metrics.write_text('{"step": 1, "loss": NaN, "valid/mse": -Infinity, "lr": 0.1}\n')
    assert run.last_figures() == {"step": 1, "loss": None, "valid/mse": None, "lr": 0.1}


def test_metrics_may_be_sparser_but_never_miss_the_last_step(tmp_path: Path) -> None:
    make(RegressionTrainer, tmp_path, num_train_steps=7, log_losses_every=3).train()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == [3, 6, 7]


def test_X4_X5_an_existing_run_is_never_cleared_nor_asked_about(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(*_: object) -> str:
        raise AssertionError("a constructor asks nothing")

    monkeypatch.setattr("builtins.input", ask)
    before = contents(run)
    with pytest.raises(UserError, match=r"already holds a run at step-00000006: add --resume .*--overwrite"):
        make(RegressionTrainer, run)
    assert contents(run) == before


def test_metrics_of_a_run_without_checkpoint_are_not_mixed_with_those_of_another(tmp_path: Path) -> None:
    trainer = make(RegressionTrainer, tmp_path, num_train_steps=5)
    trainer.poison = dict.fromkeys(range(5), float("nan"))
    object.__setattr__(trainer.plan, "max_skipped_steps", 2)
    with pytest.raises(UserError, match="not finite"):
        trainer.train()
    assert (tmp_path / "metrics.jsonl").exists()
    with pytest.raises(UserError, match="already holds a run without a checkpoint"):
        make(RegressionTrainer, tmp_path)
    make(RegressionTrainer, tmp_path, num_train_steps=2, resume=True).train()
    steps = [json.loads(line)["step"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert steps == [1, 2, 2]


def test_overwriting_clears_the_run_and_nothing_else(tmp_path: Path) -> None:
    make(GanTrainer, tmp_path, num_train_steps=2).train()
    (tmp_path / "notes.txt").write_text("mine")
    trainer = make(GanTrainer, tmp_path, overwrite=True)
    assert (tmp_path / "notes.txt").read_text() == "mine"
    assert not trainer.run.has_checkpoint
    assert not trainer.run.metrics.exists()
    assert trainer.step == 0


def test_a_folder_with_other_things_is_used_and_they_stay(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    make(RegressionTrainer, tmp_path, num_train_steps=1).train()
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_file_in_the_folders_place_is_told_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("no folder")
    with pytest.raises(UserError, match="is a file; name another one with --run"):
        make(RegressionTrainer, tmp_path / "run")


def test_a_folder_that_cannot_be_written_is_told_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)
    with pytest.raises(UserError, match=r"cannot be written .*read-only.*name another one"):
        RunFolder(tmp_path / "run").open(resume=False, overwrite=False)


def test_a_finished_run_that_is_resumed_stays_as_it_is(run: Path) -> None:
    before = contents(run)
    trainer = make(RegressionTrainer, run, num_train_steps=6, save_model_every=3, resume=True)
    assert trainer.step == 6
    trainer.train()
    assert contents(run) == before


def test_a_longer_plan_goes_on_from_the_end(tmp_path: Path) -> None:
    make(RegressionTrainer, tmp_path, num_train_steps=3).train()
    make(RegressionTrainer, tmp_path, num_train_steps=5, resume=True).train()
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "loss" in line] == [1, 2, 3, 4, 5]


def test_a_lock_that_its_last_holder_has_just_removed_is_taken_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits has opened a file that is no longer there: to hold it would keep nobody out."""
    lock, removed = fcntl.lockf, []

    def lock_late(file: Any, how: int) -> None:
        if not removed:
            removed.append((tmp_path / LOCK).unlink())
        lock(file, how)

    monkeypatch.setattr(fcntl, "lockf", lock_late)
    with RunFolder(tmp_path).held():
        assert (tmp_path / LOCK).exists()
    assert not (tmp_path / LOCK).exists()


def test_a_run_without_checkpoints_has_none_to_give(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no checkpoint; train first"):
        RunFolder(tmp_path).checkpoint("best")


def test_runs_are_summed_up_from_their_files_though_the_last_line_was_cut(run: Path) -> None:
    (run.parent / "no-run").mkdir(exist_ok=True)
    metrics = run / "metrics.jsonl"
    whole = metrics.read_text()
    try:
        metrics.write_text(whole + '{"step": 7, "lo')
        (row,) = summaries(run.parent)
    finally:
        metrics.write_text(whole)
    assert (row["run"], row["system"], row["step"], row["num_train_steps"]) == (str(run), "regression", 6, 6)
    assert "valid/mse" in row["figures"]
    with pytest.raises(UserError, match="There is no folder"):
        summaries(run / "nowhere")
