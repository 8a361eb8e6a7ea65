"""A run that goes on otherwise than it began says so, and keeps the recipe that it had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from toys import GanTrainer, RegressionTrainer, ToyConfig, ToyGan, make

from madrigal.engine import checkpoint
from madrigal.engine.changes import changes
from madrigal.errors import UserError

OPTIONS = {"num_train_steps": 4, "save_model_every": 2, "best_metric": "valid/mse"}
Said = pytest.CaptureFixture[str]


def resumed(folder: Path, capsys: Said, **options: Any) -> str:
    """Go on with the run; gives what was said of it before its first step."""
    capsys.readouterr()
    trainer = make(RegressionTrainer, folder, resume=True, **{**OPTIONS, **options})
    said = capsys.readouterr().err
    trainer.train()
    return said


def recipe_of(folder: Path, name: str = "recipe.yaml") -> dict[str, Any]:
    recipe: dict[str, Any] = yaml.safe_load((folder / name).read_text())
    return recipe


def test_what_differs_is_named_in_one_line_and_the_old_recipe_stays(tmp_path: Path, capsys: Said) -> None:
    make(RegressionTrainer, tmp_path, **OPTIONS).train()
    before = recipe_of(tmp_path)
    said = resumed(tmp_path, capsys, num_train_steps=6, seed=3, batch_size=2, grad_accum_every=2, betas=(0.8, 0.9))
    (line,) = [line for line in said.splitlines() if line.startswith("Not as before: ")]
    assert set(line.removeprefix("Not as before: ").split(", plan.")) == {
        "plan.num_train_steps 4 -> 6",
        "seed 0 -> 3",
        "batch_size 4 -> 2",
        "grad_accum_every 1 -> 2",
        "betas [0.9, 0.99] -> [0.8, 0.9]",
    }
    assert recipe_of(tmp_path, "recipe.step-00000004.yaml") == before
    assert recipe_of(tmp_path)["plan"]["seed"] == 3


def test_a_run_that_goes_on_as_it_was_says_nothing_and_keeps_one_recipe(tmp_path: Path, capsys: Said) -> None:
    trainer = make(RegressionTrainer, tmp_path, **OPTIONS)
    for _ in range(2):
        trainer.train_step()
    trainer.save(trainer.run.checkpoints / checkpoint.checkpoint_name(2))
    assert "Not as before" not in resumed(tmp_path, capsys)
    assert [path.name for path in tmp_path.glob("recipe*")] == ["recipe.yaml"]


def test_another_number_of_processes_is_named(tmp_path: Path, capsys: Said, monkeypatch: pytest.MonkeyPatch) -> None:
    write = checkpoint.write_checkpoint
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_checkpoint", lambda f, t, d, state: write(f, t, d, {**state, "world": 2}))
        make(RegressionTrainer, tmp_path, **OPTIONS).train()
    assert "Not as before: processes 2 -> 1\n" in resumed(tmp_path, capsys)


def test_the_recipe_of_a_run_that_is_done_is_left_alone(tmp_path: Path, capsys: Said) -> None:
    make(RegressionTrainer, tmp_path, **OPTIONS).train()
    assert "plan.seed 0 -> 3" in resumed(tmp_path, capsys, seed=3)
    assert [path.name for path in tmp_path.glob("recipe*")] == ["recipe.yaml"]
    assert recipe_of(tmp_path)["plan"]["seed"] == 0


def test_starting_over_removes_the_recipes_of_the_run_that_was_there(tmp_path: Path, capsys: Said) -> None:
    make(RegressionTrainer, tmp_path, **OPTIONS).train()
    resumed(tmp_path, capsys, num_train_steps=6)
    make(RegressionTrainer, tmp_path, overwrite=True, **OPTIONS).train()
    assert [path.name for path in tmp_path.glob("recipe*")] == ["recipe.yaml"]


def test_a_recipe_of_an_older_version_lacks_nothing(tmp_path: Path, capsys: Said) -> None:
    trainer = make(RegressionTrainer, tmp_path, **OPTIONS)
    del trainer.recipe["plan"]["seconds_per_batch"]
    trainer.train()
    assert "Not as before" not in resumed(tmp_path, capsys)


def test_another_model_is_told_by_its_option_and_not_by_a_tensor(tmp_path: Path) -> None:
    make(GanTrainer, tmp_path, **OPTIONS).train()
    other = ToyGan(ToyConfig(hidden=32))
    with pytest.raises(UserError, match=r"does not fit this model: model\.hidden is 16 there and 32 here; use the"):
        make(GanTrainer, tmp_path, model=other, resume=True, **OPTIONS)


def test_changes_have_dotted_names() -> None:
    old = {"a": 1, "b": {"c": [1], "d": None, "e": {"f": 1}}}
    new = {"a": 1, "b": {"c": [1, 2], "e": {"f": 2}}, "g": {}}
    assert changes(old, new) == {
        "b.c": ([1], [1, 2]),
        "b.d": (None, "unset"),
        "b.e.f": (1, 2),
        "g": ("unset", {}),
    }
