"""The small self-supervised encoder: what it hides, what it learns, and that its runs end in a tokenizer."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from sounds import noise, tiny_encoder

from madrigal.engine.checkpoint import checkpoint_name
from madrigal.engine.recipe import build_config, read_recipe
from madrigal.errors import UserError
from madrigal.tokenizers import load_tokenizer
from madrigal.tokenizers.masked_prediction import MaskedPrediction
from madrigal.tokenizers.masked_prediction_recipe import MaskedPredictionRecipe
from madrigal.tokenizers.span_masks import span_mask, warp_bands

SMALL = [
    "model.dim=16",
    "model.depth=1",
    "model.heads=1",
    "model.dim_head=16",
    "model.codebook_size=8",
    "model.num_targets=8",
    "data.max_length_seconds=1",
    "plan.num_train_steps=2",
    "plan.batch_size=2",
    "plan.dl_num_workers=0",
    "plan.kmeans_iterations=2",
]


def recipe(*overrides: str, name: str = "masked-prediction/tiny") -> MaskedPredictionRecipe:
    return build_config(MaskedPredictionRecipe, read_recipe(name, list(overrides)), name)


# What is hidden.


def test_spans_cover_about_the_share_and_only_real_tokens() -> None:
    torch.manual_seed(0)
    real = torch.arange(400) < torch.tensor([400, 250, 100])[:, None].repeat(20, 1)
    hidden = span_mask(real, share=0.4, span=5)
    assert not (hidden & ~real).any()
    assert abs(float(hidden[real].float().mean()) - 0.4) < 0.03
    starts = (hidden[:, 1:] & ~hidden[:, :-1]).nonzero()
    for row, place in starts.tolist():
        assert hidden[row, place + 1 : place + 6].sum() == min(5, int(real[row].sum()) - place - 1)


def test_short_rows_keep_something_to_hear_and_something_to_guess() -> None:
    torch.manual_seed(0)
    real = torch.arange(12) < torch.arange(2, 13)[:, None]
    for _ in range(20):
        hidden = span_mask(real, share=0.5, span=3)
        assert hidden.any(1).all()
        assert (real & ~hidden).any(1).all()


def test_warped_bands_move_a_resonance() -> None:
    torch.manual_seed(0)
    frames = torch.exp(-((torch.arange(80.0) - 40) ** 2) / 20).expand(50, 3, 80)
    places = warp_bands(frames, 0.2).argmax(-1)[:, 0]
    assert places.min() < 36
    assert places.max() > 44
    assert 40 / 1.2 - 1 <= float(places.min()) <= float(places.max()) <= 40 / 0.8 + 1
    assert torch.equal(warp_bands(frames, 0.0), frames)


# What it learns.


def test_padding_changes_no_hidden_token() -> None:
    """The loss of a row does not depend on how far the batch is padded."""
    model = tiny_encoder(mask_share=0.3, dropout=0.0).eval()
    model.targets.centroids.normal_(generator=torch.Generator().manual_seed(0))
    wave, lengths = noise(1, 6400), torch.tensor([6400])
    far = torch.nn.functional.pad(wave, (0, 64000))
    losses = []
    for given in (wave, far):
        classes = model.targets.classes(given, torch.arange(given.shape[1] // 160)[None] < 40)[:, :10]
        frames = model.norm(model.spectra(given), torch.arange(given.shape[1] // 160)[None] < 40)
        real = torch.arange(given.shape[1] // 640)[None] < 10
        found = model.predictor(model.encoder(model.project(model._stacked(frames)), mask=real), mask=real)[:, :10]
        losses.append(torch.nn.functional.cross_entropy(model.head(found)[0], classes[0]))
    assert torch.allclose(losses[0], losses[1], atol=1e-5)
    assert set(model.masked_loss(far, lengths)) == {"masked", "heard", "unigram", "accuracy"}


def test_the_loss_starts_at_chance_and_falls_below_the_frequencies(recordings: Path, tmp_path: Path) -> None:
    steps = ["plan.num_train_steps=60", "plan.save_results_every=60", "plan.lr=3e-3", "plan.valid_frac=0.25"]
    trainer = recipe(f"data={recordings}", *steps).trainer(tmp_path / "run").train()
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert abs(lines[0]["masked"] - math.log(16)) < 0.6
    last = lines[-1]
    assert sum(line["masked"] for line in lines[40:60]) / 20 < sum(line["unigram"] for line in lines[40:60]) / 20
    assert trainer.step == 60
    assert last["tokens/perplexity"] > 2


# Its runs.


@pytest.mark.parametrize("name", ["tiny", "cpu", "paper"])
def test_every_recipe_ends_in_a_tokenizer(name: str, recordings: Path, tmp_path: Path) -> None:
    trainer = recipe(f"data={recordings}", *SMALL, name=f"masked-prediction/{name}").trainer(tmp_path / "run").train()
    tokenizer = load_tokenizer(tmp_path / "run")
    assert isinstance(tokenizer, MaskedPrediction)
    assert tokenizer.config == trainer.model.config
    ids, _ = tokenizer.tokenize(noise(1, 16000))
    assert 0 <= int(ids.min()) <= int(ids.max()) < 8
    small = {key for key in load_file(tmp_path / "run" / "model.safetensors") if key.startswith(("predictor", "head"))}
    assert not small


@pytest.mark.parametrize("name", ["tiny", "cpu", "paper"])
def test_every_recipe_builds_as_it_stands(name: str) -> None:
    config = recipe(name=f"masked-prediction/{name}").model
    with torch.device("meta"):
        assert MaskedPrediction(config).downsample_factor in (320, 640)


def test_X3_resumed_ends_bit_identical(recordings: Path, tmp_path: Path) -> None:
    options = [f"data={recordings}", "plan.num_train_steps=6", "plan.save_model_every=3"]
    recipe(*options).trainer(tmp_path / "whole").train()
    stopped = recipe(*options).trainer(tmp_path / "broken")
    for _ in range(3):
        stopped.train_step()
    stopped.save(stopped.run.checkpoints / checkpoint_name(3))
    with pytest.raises(UserError, match="no centroids yet"):
        load_tokenizer(tmp_path / "broken")
    recipe(*options).trainer(tmp_path / "broken", resume=True).train()
    for name in ("model.safetensors", "checkpoints/step-00000006/model.safetensors"):
        left, right = load_file(tmp_path / "whole" / name), load_file(tmp_path / "broken" / name)
        assert left.keys() == right.keys()
        assert all(torch.equal(tensor, right[key]) for key, tensor in left.items())
    assert load_tokenizer(tmp_path / "whole").fingerprint() == load_tokenizer(tmp_path / "broken").fingerprint()


def test_a_run_that_was_killed_before_its_clusters_makes_them_on_resume(recordings: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    recipe(f"data={recordings}", *SMALL).trainer(run).train()
    expected = load_tokenizer(run).fingerprint()
    (run / "config.json").unlink()
    (run / "model.safetensors").unlink()
    recipe(f"data={recordings}", *SMALL).trainer(run, resume=True).train()
    assert load_tokenizer(run).fingerprint() == expected


def test_a_run_that_goes_on_is_no_tokenizer_until_it_ends(recordings: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    recipe(f"data={recordings}", *SMALL).trainer(run).train()
    first = load_tokenizer(run).fingerprint()
    longer = recipe(f"data={recordings}", *SMALL, "plan.num_train_steps=4").trainer(run, resume=True)
    longer.train()
    assert load_tokenizer(run).fingerprint() != first


def test_the_classes_are_fitted_on_more_than_a_step(recordings: Path, tmp_path: Path) -> None:
    trainer = recipe(f"data={recordings}", *SMALL, "plan.target_minutes=0.1").trainer(tmp_path / "run")
    heard: list[int] = []
    original = trainer._waves
    trainer._waves = lambda *given: (heard.append(len(w)) or w for w in original(*given))  # type: ignore[method-assign]
    trainer.train_step()
    assert sum(heard) >= 0.1 * 60 * 16000
    assert trainer.model.targets.is_fitted
    assert float(trainer.model.target_shares.sum()) == pytest.approx(1)
    assert float(trainer.model.norm.std.min()) > 0
