"""Every shipped recipe builds what it describes, and trains when it is made small."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from madrigal import SoundStream
from madrigal.engine.recipe import build_config, read_recipe, recipe_names
from madrigal.soundstream.recipe import SoundStreamRecipe

SMALL = [
    "model.channels=2",
    "model.codebook_dim=16",
    "model.attn_heads=1",
    "model.attn_dim_head=8",
    "model.spectral_dim=16",
    "model.spectral_depth=1",
    "model.complex_stft_discr_kwargs={channels: 2}",
    "model.discr_spectrogram_channels=2",
    "data.max_length_seconds=0.2",
    "plan.num_train_steps=2",
    "plan.batch_size=2",
    "plan.grad_accum_every=1",
    "plan.discr_start_step=1",
    "plan.num_samples=1",
    "plan.dl_num_workers=0",
]


def recipe(name: str, *overrides: str) -> SoundStreamRecipe:
    return build_config(SoundStreamRecipe, read_recipe(name, list(overrides)), name)


@pytest.mark.parametrize("name", recipe_names())
def test_builds_as_it_stands(name: str) -> None:
    assert 1_000 <= SoundStream(recipe(name).model).bitrate() <= 24_000


@pytest.mark.parametrize("name", recipe_names())
def test_trains_when_it_is_small(name: str, workplace: Path) -> None:
    trainer = recipe(name, "data=recordings", *SMALL).trainer(workplace / "run").train()
    assert trainer.step == 2
    lines = [json.loads(line) for line in (workplace / "run" / "metrics.jsonl").read_text().splitlines()]
    figures = {key for line in lines for key in line}
    assert trainer.plan.best_metric in {None, *figures}
    for critic in trainer.model.discriminators:
        assert f"discriminator/{critic}/hinge" in figures
    again = SoundStream.from_pretrained(workplace / "run", discriminators=False)
    assert again.config == trainer.model.config
