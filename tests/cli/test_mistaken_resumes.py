"""Runs that are damaged or changed when they are resumed: passed over, or one sentence and status 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from shell import BEFORE, CODEC, NEWEST, contents, done, refused, train
from spoiled import cut, flip


@pytest.mark.parametrize(
    "part", ["model.safetensors", "optimizer.safetensors", "ema.safetensors", "config.json", "state.json"]
)
@pytest.mark.parametrize("how", ["flipped", "cut", "gone"])
def test_resume_passes_over_a_damaged_checkpoint(here: Path, part: str, how: str) -> None:
    path = NEWEST / part
    if how == "flipped":
        flip(path, len(path.read_bytes()) // 2)
    elif how == "cut":
        cut(path)
    else:
        path.unlink()
    damaged, whole = contents(NEWEST), contents(BEFORE)
    said = done("train", "--resume", "--run", "runs/codec")
    assert f"{NEWEST} is damaged" in said.err
    assert "at step 2" in said.err
    assert contents(BEFORE) == whole
    assert contents(NEWEST.with_name(f"damaged-{NEWEST.name}")) == damaged
    assert contents(NEWEST) != damaged


def test_resume_where_no_checkpoint_is_whole(here: Path) -> None:
    flip(NEWEST / "model.safetensors", -1)
    cut(BEFORE / "state.json")
    sentence = refused("train", "--resume", "--run", "runs/codec")
    assert "No checkpoint in runs/codec/checkpoints is whole" in sentence
    for words in (
        ["export", "runs/codec", "out"],
        ["evaluate", "runs/codec"],
        ["compress", "speech.mgl", "x.mgl", *CODEC],
    ):
        assert "whole" in refused(*words)


@pytest.mark.parametrize("override", ["model.spectral_dim=24", "model.rq_num_quantizers=2", "model.spectral_depth=2"])
def test_resume_with_a_changed_model(here: Path, override: str) -> None:
    sentence = refused(*train(override, run="runs/codec", options="--resume"))
    key, _, value = override.partition("=")
    assert f"does not fit this model: {key} is " in sentence
    assert f"there and {value} here; use the recipe.yaml" in sentence


def test_resume_with_another_optimizer(here: Path) -> None:
    sentence = refused(*train("plan.optimizer=lion", run="runs/codec", options="--resume"))
    assert "plan.optimizer" in sentence


@pytest.mark.parametrize("text", ["", "system: [", "system: soundstream\n"])
def test_resume_a_run_whose_recipe_is_damaged(here: Path, text: str) -> None:
    Path("runs/codec/recipe.yaml").write_text(text)
    assert "recipe" in refused("train", "--resume", "--run", "runs/codec")


def test_resume_a_run_whose_figures_were_cut_short(here: Path) -> None:
    with open("runs/codec/metrics.jsonl", "a") as file:
        file.write('{"step": 4, "loss": nan}\n[]\n3\n{"step": "x"}\n{"step": 5, "lo')
    assert done("runs", "--json").json
    done(*train("plan.num_train_steps=5", run="runs/codec", options="--resume"))
    steps = [json.loads(line)["step"] for line in Path("runs/codec/metrics.jsonl").read_text().splitlines()]
    assert steps[-1] == 5
