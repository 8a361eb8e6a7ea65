"""`madrigal train kmeans`: from recordings to a tokenizer in a run folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from sounds import noise, tiny_encoder, tiny_mel_kmeans

from madrigal.engine.recipe import build_config, read_recipe
from madrigal.errors import UserError
from madrigal.layers.kmeans import kmeans
from madrigal.tokenizers import load_tokenizer
from madrigal.tokenizers.kmeans import KmeansPlan, fit
from madrigal.tokenizers.kmeans_recipe import KmeansRecipe


def recipe(*overrides: str, name: str = "kmeans/tiny") -> KmeansRecipe:
    return build_config(KmeansRecipe, read_recipe(name, list(overrides)), name)


@pytest.mark.parametrize("name", ["kmeans/tiny", "kmeans/cpu"])
def test_a_recipe_leaves_a_tokenizer(name: str, recordings: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    trainer = recipe(f"data={recordings}", "model.codebook_size=16", "plan.iterations=2", name=name).trainer(run)
    trainer.train()
    tokenizer = load_tokenizer(run)
    assert tokenizer.fingerprint() == trainer.tokenizer.fingerprint()
    ids, _ = tokenizer.tokenize(noise(1, 16000))
    assert 0 <= int(ids.min()) <= int(ids.max()) < 16
    figures = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    assert 0 < figures["distortion"] < 1 < figures["perplexity"] <= 16


def test_the_same_seed_gives_the_same_tokenizer(recordings: Path, tmp_path: Path) -> None:
    made = [recipe(f"data={recordings}").trainer(tmp_path / name).train().tokenizer.fingerprint() for name in "ab"]
    other = recipe(f"data={recordings}", "plan.seed=1").trainer(tmp_path / "c").train()
    assert made[0] == made[1] != other.tokenizer.fingerprint()


def test_a_run_is_not_written_over_unasked(recordings: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    first = recipe(f"data={recordings}").trainer(run).train().tokenizer.fingerprint()
    with pytest.raises(UserError, match="already holds a run"):
        recipe(f"data={recordings}").trainer(run)
    recipe(f"data={recordings}", "plan.seed=1").trainer(run, resume=True).train()
    assert load_tokenizer(run).fingerprint() == first
    recipe(f"data={recordings}", "plan.seed=1").trainer(run, overwrite=True).train()
    assert load_tokenizer(run).fingerprint() != first


def test_only_so_many_minutes_are_heard(recordings: Path, tmp_path: Path) -> None:
    trainer = recipe(f"data={recordings}", "plan.minutes=0.05").trainer(tmp_path / "run").train()
    assert 3 * 25 <= trainer.figures["frames"] <= 5 * 25 + 8


def test_too_little_audio_is_told(recordings: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="fewer than the 4000 clusters"):
        recipe(f"data={recordings}", "model.codebook_size=4000").trainer(tmp_path / "run").train()


def test_an_encoder_is_clustered_anew(recordings: Path, tmp_path: Path) -> None:
    encoder = tiny_encoder()
    encoder.save_pretrained(tmp_path / "encoder")
    chosen = f"{{kind: masked-prediction, checkpoint: {tmp_path / 'encoder'}, codebook_size: 5}}"
    recipe(f"data={recordings}", f"model={chosen}").trainer(tmp_path / "run").train()
    tokenizer = load_tokenizer(tmp_path / "run")
    assert (tokenizer.kind, tokenizer.codebook_size) == ("masked-prediction", 5)
    wave = noise(1, 6400)
    assert torch.allclose(tokenizer.features(wave), encoder.eval().features(wave))


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("model.kind=mell-kmeans", "mel-kmeans"),
        ("model.codebook_sizes=4", "codebook_size"),
        ("plan.minute=4", "minutes"),
    ],
)
def test_mistakes_are_told(override: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        recipe("data=recordings", override)


def test_fitting_moves_no_generator_and_no_mode() -> None:
    tokenizer = tiny_mel_kmeans().train()
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    fit(tokenizer, [noise(16000)], KmeansPlan(iterations=1))
    assert torch.equal(torch.rand(1), expected)
    assert tokenizer.training


def test_spread_starting_points_find_every_group() -> None:
    torch.manual_seed(0)
    groups = 10 * torch.randn(12, 4)
    points = (groups[:, None] + 0.1 * torch.randn(12, 30, 4)).flatten(0, 1)
    options: dict[str, Any] = {"iterations": 5, "points_per_centre": 1000, "spread": True}
    centres, counts = kmeans(points, 12, **options)
    assert counts.tolist() == [30.0] * 12
    assert float(torch.cdist(groups, centres).min(1).values.max()) < 0.2
