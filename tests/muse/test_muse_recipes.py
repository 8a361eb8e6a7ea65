"""Every shipped recipe that makes pictures builds what it describes, and trains when it is made small."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from maskgit_toys import write_folder

from madrigal.engine.recipe import recipe_names
from madrigal.muse.maskgit import MaskGit
from madrigal.muse.maskgit_config import MaskGitConfig
from madrigal.muse.maskgit_recipe import completed
from madrigal.tokenizers import text_encoders
from madrigal.verbs.systems import load_recipe, model_class

PAINTERS = [name for name in recipe_names() if name.startswith("maskgit")]
CRITICS = [name for name in recipe_names() if name.startswith("token-critic")]
WHOLES = [name for name in recipe_names() if name.startswith("muse/")]
SMALL_PLAN = ["num_train_steps=2", "batch_size=2", "num_samples=1", "sample_timesteps=1", "warmup_steps=1"]
SMALL = [
    *(f"model.transformer.{key}" for key in ("dim=16", "depth=1", "heads=1", "dim_head=8", "text_encoder=bytes")),
    *(f"plan.{key}" for key in SMALL_PLAN),
]
VQGAN = [
    *(f"model.{key}" for key in ("dim=16", "resnet_groups=4", "num_resnet_blocks=1", "discr_layers=2")),
    "plan.num_train_steps=2",
    "plan.batch_size=2",
    "plan.num_samples=1",
    "plan.dl_num_workers=0",
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures, and a tokenizer and a base that know them."""
    folder = tmp_path_factory.mktemp("recipes")
    write_folder(folder / "pictures", 32, 8)
    data = f"data={folder / 'pictures'}"
    load_recipe("vqgan/tiny", [data, "plan.num_train_steps=2"]).trainer(folder / "vqgan").train()
    changes = [data, f"vae={folder / 'vqgan'}", "plan.num_train_steps=2"]
    load_recipe("maskgit/tiny", changes).trainer(folder / "base").train()
    return folder


@pytest.mark.parametrize("name", PAINTERS)
def test_builds_as_it_stands(name: str) -> None:
    recipe = load_recipe(name, [])
    config = completed(recipe.model, 1024, 1024, [])
    with torch.device("meta"):  # at full size, but for the memory
        model = MaskGit.build(config)
    assert model.is_superres == name.startswith("maskgit-superres/")
    assert isinstance(model.config, MaskGitConfig)


@pytest.mark.parametrize("name", PAINTERS + CRITICS)
def test_trains_when_it_is_small(name: str, place: Path, tmp_path: Path) -> None:
    given = [f"data={place / 'pictures'}"]
    if name in CRITICS:
        given += [f"maskgit={place / 'base'}", *(f"plan.{key}" for key in SMALL_PLAN)]
    else:
        sizes = ["model.image_size=32", "model.cond_image_size=16"] if "superres" in name else ["model.image_size=16"]
        given += [f"vae={place / 'vqgan'}", *SMALL, *sizes]
        given += [f"cond_vae={place / 'vqgan'}"] if name == "maskgit-superres/paper" else []
    run = load_recipe(name, given).trainer(tmp_path / "run").train()
    assert run.step == 2
    again = model_class(str(tmp_path / "run")).from_pretrained(tmp_path / "run")
    assert again.config == run.model.config


@pytest.mark.parametrize("name", [name for name in WHOLES if not name.endswith("tiny")])
def test_a_whole_trains_when_it_is_small(name: str, place: Path, tmp_path: Path) -> None:
    factor = 16 if name == "muse/paper" else 4
    tokenizers = ("vqgan", "superres_vqgan") if name == "muse/paper" else ("vqgan",)
    changes = [f"data={place / 'pictures'}"]
    for part in tokenizers:
        changes += [f"{part}.{change}" for change in [*VQGAN, "data.image_size=32", "plan.discr_start_step=1"]]
    for part in ("base", "superres"):
        changes += [f"{part}.{change}" for change in SMALL]
    changes += [f"base.model.image_size={factor * 2}", f"superres.model.cond_image_size={factor * 2}"]
    changes += [f"superres.model.image_size={factor * 4}"]
    whole = load_recipe(name, changes)
    whole.trainer(tmp_path / "run").train()
    for part in whole.parts:
        assert (tmp_path / "run" / part / "checkpoints" / "step-00000002").is_dir()


def test_parts_of_a_whole_fit_each_other() -> None:
    for name in WHOLES:
        whole = load_recipe(name, [])
        whole.check(Path("RUN"))
        base, superres = (whole.part(part, Path("RUN")).model for part in ("base", "superres"))
        assert superres["cond_image_size"] == base["image_size"], name


def test_the_text_encoder_is_chosen_by_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_recipe("maskgit/cpu", []).model
    for folder, wanted in (("", "bytes"), ("somewhere", "minilm")):
        monkeypatch.setattr("madrigal.muse.maskgit_recipe.minilm_folder", lambda folder=folder: folder)
        assert completed(model, 10, 10, []).transformer.text_encoder == wanted
    monkeypatch.setattr(text_encoders, "find_spec", lambda name: None)
    assert text_encoders.minilm_folder() == ""
