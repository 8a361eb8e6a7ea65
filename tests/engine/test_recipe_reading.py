"""Recipes: read, overridden, checked, and every mistake told in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel, ConfigDict

from madrigal.engine import recipe as recipes
from madrigal.engine.plan import Plan
from madrigal.engine.recipe import build_config, read_recipe, recipe_names
from madrigal.errors import UserError


class Model(BaseModel):
    model_config = ConfigDict(extra="forbid")
    channels: int = 8
    kernel_size: int = 3


class Recipe(BaseModel):
    model_config = ConfigDict(extra="forbid")
    system: str
    data: str
    model: Model = Model()
    plan: Plan


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "toy.yaml"
    values = {"system": "toy", "data": {"path": "here", "gain": 2}, "plan": {"num_train_steps": 5, "lr": 0.1}}
    file.write_text(yaml.safe_dump(values))
    return file


@pytest.mark.parametrize(
    ("override", "where", "value"),
    [
        ("plan.lr=1e-4", ("plan", "lr"), 1e-4),
        ("plan.lr=0.5", ("plan", "lr"), 0.5),
        ("plan.num_train_steps=7", ("plan", "num_train_steps"), 7),
        ("plan.use_ema=false", ("plan", "use_ema"), False),
        ("plan.max_grad_norm=null", ("plan", "max_grad_norm"), None),
        ("plan.max_grad_norm=", ("plan", "max_grad_norm"), None),
        ("plan.betas=[0.5, 0.9]", ("plan", "betas"), [0.5, 0.9]),
        ("plan.scheduler=cosine", ("plan", "scheduler"), "cosine"),
        ("model.channels=3", ("model", "channels"), 3),
        ("note=a=b", ("note",), "a=b"),
        ("note=@home/sound", ("note",), "@home/sound"),
        ("note=[unclosed", ("note",), "[unclosed"),
        ("data=there", ("data", "path"), "there"),
    ],
)
def test_overrides_are_laid_over_the_file(path: Path, override: str, where: tuple[str, ...], value: Any) -> None:
    found: Any = read_recipe(path, [override])
    for key in where:
        found = found[key]
    assert found == value
    assert type(found) is type(value)


def test_an_override_leaves_the_rest_alone(path: Path) -> None:
    changed = read_recipe(path, ["plan.lr=1", "data=there"])
    assert changed["plan"]["num_train_steps"] == 5
    assert changed["data"] == {"path": "there", "gain": 2}


def test_an_empty_section_can_be_filled(tmp_path: Path) -> None:
    file = tmp_path / "toy.yaml"
    file.write_text("system: toy\nplan:\n")
    assert read_recipe(file, ["plan.lr=2"])["plan"] == {"lr": 2}


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("plan.lr", "'plan.lr' is no override: write key=value, for example plan.lr=1e-4"),
        ("system.name=x", "system is a value in this recipe and has nothing below it"),
    ],
)
def test_what_is_no_override_is_told(path: Path, override: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        read_recipe(path, [override])


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"system: [", "is not valid YAML"),
        (b"system: toy\n\tplan: 1", "is not valid YAML"),
        (b"\xff\xfe\x00", "is not valid YAML"),
        (b"- system", "should be a mapping with the key 'system'"),
        (b"", "should be a mapping with the key 'system'"),
        (b"plan: {}", "should be a mapping with the key 'system'"),
    ],
)
def test_a_bad_file_is_told_in_one_line(tmp_path: Path, content: bytes, sentence: str) -> None:
    file = tmp_path / "bad.yaml"
    file.write_bytes(content)
    with pytest.raises(UserError, match=sentence) as told:
        read_recipe(file)
    assert "\n" not in str(told.value)
    assert str(file) in str(told.value)


def test_a_recipe_that_is_not_there_is_told_with_the_nearest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("toy/tiny", "toy/large"):
        file = tmp_path / f"{name}.yaml"
        file.parent.mkdir(exist_ok=True)
        file.write_text("system: toy\n")
    monkeypatch.setattr(recipes, "RECIPES", tmp_path)
    assert recipe_names() == ["toy/large", "toy/tiny"]
    assert read_recipe("toy/tiny") == {"system": "toy"}
    with pytest.raises(UserError, match=r"There is no recipe 'toy/tny'; did you mean toy/tiny\?"):
        read_recipe("toy/tny")
    with pytest.raises(UserError, match="There is no recipe 'opera'; there are: toy/large, toy/tiny"):
        read_recipe("opera")
    with pytest.raises(UserError, match="There is no recipe"):
        read_recipe(tmp_path / "absent.yaml")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"plna": {}}, r"r has no key 'plna'; did you mean plan\?"),
        ({"plan": {"num_train_steps": 1, "batchsize": 3}}, r"no key 'plan.batchsize'; did you mean plan\.batch_size\?"),
        ({"model": {"kernal_size": 3}}, r"no key 'model.kernal_size'; did you mean model\.kernel_size\?"),
        ({"model": {"zzz": 3}}, r"no key 'model.zzz'; the keys are channels, kernel_size\."),
        ({"plan": {"num_train_steps": "many"}}, r"plan.num_train_steps is 'many'; input should be a valid integer"),
        ({"plan": {"num_train_steps": 1, "lr": -1}}, r"plan.lr is -1; input should be greater than 0"),
        ({"plan": {"num_train_steps": 1, "scheduler": "cosin"}}, r"plan.scheduler is 'cosin'; .*'cosine'"),
        ({"plan": {}}, r"plan.* give either num_train_steps or num_train_epochs"),
        ({"data": None}, r"data is None; input should be a valid string"),
        ({"plan": 3}, r"plan is 3; .*"),
    ],
)
def test_a_wrong_key_or_type_is_told_in_a_sentence(change: dict[str, Any], sentence: str) -> None:
    values = {"system": "toy", "data": "here", "plan": {"num_train_steps": 5}, **change}
    with pytest.raises(UserError, match=sentence) as told:
        build_config(Recipe, values, "The recipe r")
    assert "\n" not in str(told.value)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(UserError, match=r"The recipe r has no data, and needs one\."):
        build_config(Recipe, {"system": "toy", "plan": {"num_train_steps": 5}}, "The recipe r")


def test_what_is_no_mapping_is_told() -> None:
    with pytest.raises(UserError, match="The plan should be a mapping"):
        build_config(Plan, ["lr"], "The plan")  # type: ignore[arg-type]


def test_a_recipe_as_it_was_read_makes_the_plan(path: Path) -> None:
    values = read_recipe(path, ["plan.lr=1e-4", "plan.save_model_every=1e3"])
    plan = build_config(Plan, values["plan"], "plan")
    assert (plan.num_train_steps, plan.lr, plan.save_model_every) == (5, 1e-4, 1000)
