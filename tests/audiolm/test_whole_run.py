"""A run of all parts: what it may remove, and what it never touches."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from stages import STAGES, streams_of, wrapped

from madrigal.audiolm.draws import seeds_for
from madrigal.audiolm.whole_recipe import AudioLMRecipe
from madrigal.engine.checkpoint import newest_whole
from madrigal.engine.recipe import build_config, read_recipe
from madrigal.errors import UserError
from madrigal.layers.sampling import Sampling
from madrigal.tokenizers import load_tokenizer


def recordings(folder: Path) -> Path:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(0)
    for number in range(3):
        soundfile.write(folder / f"{number}.wav", 0.1 * rng.standard_normal(8000), 16000)
    return folder


def recipe(data: Path) -> Any:
    return build_config(AudioLMRecipe, read_recipe("audiolm/tiny", [f"data={data}"]), "audiolm/tiny")


def test_overwrite_never_removes_the_recordings(tmp_path: Path) -> None:
    data = recordings(tmp_path / "project" / "data")
    with pytest.raises(UserError, match="where the run keeps its own files"):
        recipe(data).trainer(tmp_path / "project", overwrite=True)
    assert len(list(data.iterdir())) == 3


def test_overwrite_with_a_mistyped_folder_costs_nothing(tmp_path: Path) -> None:
    run = tmp_path / "run"
    finished = run / "semantic" / "checkpoints" / "step-00000004"
    finished.mkdir(parents=True)
    with pytest.raises(UserError, match="no folder"):
        recipe(tmp_path / "recc").trainer(run, overwrite=True)
    assert finished.is_dir()
    assert not (run / "recipe.yaml").exists()


def test_overwrite_removes_a_run_and_nothing_else(tmp_path: Path) -> None:
    data, run = recordings(tmp_path / "recordings"), tmp_path / "run"
    (run / "semantic" / "checkpoints").mkdir(parents=True)
    (run / "tokens" / "notes").mkdir(parents=True)
    recipe(data).trainer(run, overwrite=True)
    assert not (run / "semantic").exists()
    assert (run / "tokens" / "notes").is_dir()


def test_the_tokenizer_may_be_k_means_and_is_fitted_once(tmp_path: Path) -> None:
    data, run = recordings(tmp_path / "recordings"), tmp_path / "run"
    changes = [
        f"data={data}",
        "tokenizer.recipe=kmeans/tiny",
        *(f"{stage}.plan.num_train_steps=1" for stage in ("semantic", "coarse", "fine")),
    ]
    whole = build_config(AudioLMRecipe, read_recipe("audiolm/tiny", changes), "audiolm/tiny")
    training = whole.trainer(run)
    training.train()
    fitted = (run / "tokenizer" / "model.safetensors").read_bytes()
    assert load_tokenizer(run).config.kind == "mel-kmeans"
    whole.trainer(run, resume=True).train()
    assert (run / "tokenizer" / "model.safetensors").read_bytes() == fitted


def test_a_part_that_others_have_learned_from_does_not_learn_on(tmp_path: Path) -> None:
    data, run = recordings(tmp_path / "recordings"), tmp_path / "run"
    short = [
        f"data={data}",
        *(f"{part}.plan.num_train_steps=2" for part in ("tokenizer", "semantic", "coarse", "fine")),
    ]

    def whole(*changes: str) -> Any:
        return build_config(AudioLMRecipe, read_recipe("audiolm/tiny", [*short, *changes]), "audiolm/tiny")

    whole().trainer(run).train()
    was = (run / "recipe.yaml").read_text()
    with pytest.raises(UserError, match="tokenizer would be trained on, and semantic has learned from it as it is"):
        whole("tokenizer.plan.num_train_steps=4").trainer(run, resume=True).train()
    assert (run / "recipe.yaml").read_text() == was  # what was refused is not remembered
    whole().trainer(run, resume=True).train()
    whole("coarse.plan.num_train_steps=4").trainer(run, resume=True).train()  # nobody learns from this one
    assert newest_whole(run / "coarse" / "checkpoints").name == "step-00000004"  # type: ignore[union-attr]
    assert (run / "recipe.yaml").read_text() != was


def test_stages_and_windows_draw_from_noise_of_their_own() -> None:
    seeds = [seeds_for(stage, [3, 4], number) for stage in ("semantic", "coarse", "fine") for number in (0, 1)]
    assert len({seed for row in seeds for seed in row}) == 12


@pytest.mark.parametrize("name", STAGES)
def test_AM7_repetition_control_reaches_back_within_each_row(name: str) -> None:
    stage = STAGES[name]()
    streams = streams_of(stage, (6, 2))
    prompt = type(streams[-1])(streams[-1].codes, streams[-1].lengths)
    sampling = Sampling(repetition_penalty=5.0, repetition_window=4)
    limits = streams[-1].lengths + (0 if name == "fine" else 6)
    drawn = wrapped(stage).decode(
        [*streams[:-1], prompt], limits, sampling=sampling, seeds=[1, 2], context=None, may_end=False
    )
    assert drawn.lengths.tolist() == limits.tolist()
