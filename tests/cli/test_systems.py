"""The tables of verbs and systems: what they name is there, and every model can be exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from shell import done, refused

from madrigal.audiolm.coarse import CoarseTransformer
from madrigal.audiolm.fine import FineTransformer
from madrigal.audiolm.semantic import SemanticTransformer
from madrigal.cli import VERBS
from madrigal.engine.checkpoint import checkpoint_name, write_checkpoint
from madrigal.engine.recipe import read_recipe, recipe_names
from madrigal.tokenizers.mel_kmeans import MelKmeans, MelKmeansConfig
from madrigal.verbs.systems import SYSTEMS, named

SMALL = {"dim": 8, "depth": 1, "heads": 2, "dim_head": 4}
STAGES: dict[str, Any] = {
    "semantic": (SemanticTransformer, {"num_semantic_tokens": 5}),
    "coarse": (CoarseTransformer, {"num_semantic_tokens": 5, "codebook_size": 7, "num_coarse_quantizers": 2}),
    "fine": (
        FineTransformer,
        {"codebook_size": 7, "num_coarse_quantizers": 2, "num_fine_quantizers": 2},
    ),
}


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_a_function_with_words_about_it(verb: str) -> None:
    assert named(VERBS[verb]).__doc__


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_systems_recipe_is_its_own_and_builds_trainers(system: str) -> None:
    recipe = named(SYSTEMS[system].recipe)
    assert get_args(recipe.model_fields["system"].annotation) == (system,)
    assert callable(recipe.trainer)
    if SYSTEMS[system].model is not None:
        assert callable(named(SYSTEMS[system].model or "").from_pretrained)


@pytest.mark.parametrize("name", recipe_names())
def test_every_shipped_recipe_names_a_system(name: str) -> None:
    assert read_recipe(name)["system"] in SYSTEMS


@pytest.mark.parametrize("stage", STAGES)
def test_a_checkpoint_of_any_system_is_exported_by_its_own_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    monkeypatch.chdir(tmp_path)
    kind, options = STAGES[stage]
    torch.manual_seed(0)
    model = kind(**SMALL, **options)
    average = {name: t + 1 if t.is_floating_point() else t for name, t in model.state_dict().items()}
    tensors = {"model": dict(model.state_dict()), "ema": average}
    state = {"step": 3, "system": stage, "best": None, "recipe": {"system": stage}}
    config = {"config.json": model.config.model_dump(mode="json")}
    write_checkpoint(Path("run/checkpoints", checkpoint_name(3)), tensors, config, state)
    for words, expected in (((), average), (("--online",), tensors["model"])):
        done("export", "run", "new", *words, "--overwrite")
        again = kind.from_pretrained("new").state_dict()
        assert all(torch.equal(again[name], tensor) for name, tensor in expected.items())


def test_a_tokenizer_is_exported_by_its_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    tokenizer = MelKmeans(MelKmeansConfig(codebook_size=4))
    tokenizer.save_pretrained("run")
    done("export", "run", "new")
    again = MelKmeans.from_pretrained("new").state_dict()
    assert all(torch.equal(again[name], tensor) for name, tensor in tokenizer.exported().items())


def test_a_system_that_nobody_knows_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    state = {"step": 3, "system": "orchestra", "best": None}
    folder = Path("run/checkpoints", checkpoint_name(3))
    write_checkpoint(folder, {"model": {"x": torch.ones(1)}}, {"config.json": {}}, state)
    assert "no system 'orchestra'" in refused("export", "run", "new")
