"""Recipes of flows: what follows from features and alignments, and what is refused before anything is loaded."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from voicebox_speaking import hum, parts

from madrigal.engine.recipe import build_config, read_recipe
from madrigal.errors import UserError
from madrigal.verbs.systems import load_recipe, model_class
from madrigal.voicebox.model import VoiceBox
from madrigal.voicebox.recipe import VoiceBoxRecipe, number_of_symbols
from madrigal.voicebox.training import VoiceBoxTrainer


def recipe(*changes: str) -> Any:
    return build_config(VoiceBoxRecipe, read_recipe("voicebox-flow/tiny", list(changes)), "voicebox-flow/tiny")


def test_recordings_without_alignments_make_a_model_without_ids(tmp_path: Path) -> None:
    (tmp_path / "recordings").mkdir()
    for number in range(6):
        hum(tmp_path / f"recordings/{number}.wav", seconds=0.4 + 0.05 * number, pitch=100.0 + number)
    parts()["vocoder"].save_pretrained(tmp_path / "vocoder")
    words = [f"data.path={tmp_path / 'recordings'}", "data.alignments=null", f"features={tmp_path / 'vocoder'}"]
    run = recipe(*words, "model.cond_drop_prob=0").trainer(tmp_path / "run")
    assert isinstance(run, VoiceBoxTrainer)
    assert run.model.config.condition_on_text is False
    run.train()
    assert model_class(str(tmp_path / "run")) is VoiceBox
    made = VoiceBox.from_pretrained(tmp_path / "run")
    assert torch.equal(made.std, run.wrapper.features.std)
    samples = {path.name for path in (tmp_path / "run/samples").rglob("*")}
    assert {"000-original.wav", "000-made.wav", "000-picture.png"} <= samples
    taught = [*words, f"teacher={tmp_path / 'run'}"]
    load_recipe("voicebox-distill/tiny", taught).trainer(tmp_path / "student").train()
    for name in ("run", "student"):
        again = load_recipe(str(tmp_path / name / "recipe.yaml"), []).trainer(tmp_path / name, resume=True)
        assert again.step == 4


def test_a_flow_begins_with_the_weights_of_another_which_may_then_be_gone(tmp_path: Path) -> None:
    (tmp_path / "recordings").mkdir()
    for number in range(6):
        hum(tmp_path / f"recordings/{number}.wav", seconds=0.4 + 0.05 * number, pitch=100.0 + number)
    parts()["vocoder"].save_pretrained(tmp_path / "vocoder")
    words = [f"data.path={tmp_path / 'recordings'}", "data.alignments=null", f"features={tmp_path / 'vocoder'}"]
    words += ["model.cond_drop_prob=0"]
    recipe(*words).trainer(tmp_path / "first").train()
    there = VoiceBox.from_pretrained(tmp_path / "first")
    there.save_pretrained(tmp_path / "exported")
    words += [f"start={tmp_path / 'exported'}", "plan.seed=7"]
    with pytest.raises(UserError, match="exported cannot be the start of this model"):
        recipe(*words, "model.depth=4").trainer(tmp_path / "deeper")
    assert not (tmp_path / "deeper").exists()
    run = recipe(*words).trainer(tmp_path / "second")
    for key, tensor in there.state_dict().items():
        assert torch.equal(run.model.state_dict()[key], tensor), key
    run.train()
    shutil.rmtree(tmp_path / "exported")
    more = recipe(*words, "plan.num_train_steps=5").trainer(tmp_path / "second", resume=True)
    assert more.train().step == 5


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("model.dpeth=3", "depth"),
        ("model.p_drop_prob=2", "p_drop_prob"),
        ("plan.sample_stepz=3", "sample_steps"),
        ("data.alignment=there", "alignments"),
    ],
)
def test_a_slip_in_a_recipe_is_told_before_anything_is_loaded(change: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        recipe(change)


def test_a_run_can_be_followed_again() -> None:
    values = {**read_recipe("voicebox-flow/tiny", []), "fingerprints": {"features": "a" * 16}}
    assert build_config(VoiceBoxRecipe, values, "it") == recipe()


def test_alignments_that_are_not_there_are_missed(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no alignments"):
        number_of_symbols(tmp_path)


def test_gain_is_for_recordings_alone() -> None:
    with pytest.raises(UserError, match=r"leave out data\.gain_db"):
        recipe("data.gain_db=[-3, 3]").data.source()


@pytest.mark.parametrize("change", ["plan.teacher_method=adaptive", "plan.sample_steps=3", "plan.sample_cond_scale=2"])
def test_a_student_has_no_option_that_would_not_act(change: str) -> None:
    with pytest.raises(UserError, match=change.removeprefix("plan.").partition("=")[0]):
        load_recipe("voicebox-distill/cpu", [change])
