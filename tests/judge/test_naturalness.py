"""How good it sounds: the network of Distill-MOS over its weights, and the judge around it."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from synthetic import synthetic_voice

from madrigal.errors import UserError
from madrigal.judge.distill_mos import LAYERS, SEGMENT, STEP, DistillMos
from madrigal.judge.naturalness import NaturalnessJudge, find_naturalness, find_weights, naturalness_left_out, scores
from madrigal.judge.packages import MissingPackage

RATE = 16_000
CHANNELS, DIM = 4, 16
POOL = "transformer_pool_attn"


def small_weights() -> dict[str, torch.Tensor]:
    """Random weights under the names of the public ones, in a small size."""
    generator = torch.Generator().manual_seed(0)
    weights: dict[str, torch.Tensor] = {}

    def add(name: str, *shape: int) -> None:
        size = math.prod(shape[1:]) or 1
        weights[f"{name}.weight"] = torch.randn(*shape, generator=generator) / size**0.5
        weights[f"{name}.bias"] = torch.zeros(shape[0])

    def norm(name: str, size: int) -> None:
        weights[f"{name}.weight"], weights[f"{name}.bias"] = torch.ones(size), torch.zeros(size)
        weights[f"{name}.running_mean"], weights[f"{name}.running_var"] = torch.zeros(size), torch.ones(size)

    for index in range(6):
        add(f"cnn.cnn.{2 * index}", CHANNELS, 2 if index == 0 else CHANNELS, 3, 3)
    heard = CHANNELS * 4
    norm(f"{POOL}.norm_input", heard)
    norm(f"{POOL}.transformer.norm", heard)
    add(f"{POOL}.transformer.linear_proj", DIM, heard)
    weights[f"{POOL}.transformer.position_encoding.pe"] = torch.zeros(1, SEGMENT // 320, DIM)
    add(f"{LAYERS}.0.self_attn.out_proj", DIM, DIM)
    weights[f"{LAYERS}.0.self_attn.in_proj_weight"] = torch.randn(3 * DIM, DIM, generator=generator) / DIM**0.5
    weights[f"{LAYERS}.0.self_attn.in_proj_bias"] = torch.zeros(3 * DIM)
    add(f"{LAYERS}.0.linear1", 2 * DIM, DIM)
    add(f"{LAYERS}.0.linear2", DIM, 2 * DIM)
    for name in ("norm1", "norm2"):
        norm(f"{LAYERS}.0.{name}", DIM)
    norm(f"{POOL}.norm_trans", DIM)
    add(f"{POOL}.pool.linear1", 2 * DIM, DIM)
    add(f"{POOL}.pool.linear2", 1, 2 * DIM)
    add(f"{POOL}.pool.linear3", 1, DIM)
    return weights


@pytest.fixture
def judge(tmp_path: Path) -> NaturalnessJudge:
    torch.save({"model": small_weights()}, tmp_path / "weights.pt")
    return NaturalnessJudge(tmp_path / "weights.pt")


def test_a_score_lies_between_bad_and_excellent_at_any_rate_and_level(judge: NaturalnessJudge) -> None:
    voice = synthetic_voice(1.0)
    score = judge.score(voice, RATE)
    assert 1.0 < score < 5.0
    assert judge.score(0.1 * voice, RATE) == pytest.approx(score, abs=1e-3)
    assert judge.score(np.stack([voice, voice]), RATE) == pytest.approx(score, abs=1e-5)
    # Twice the rate is half of the time: another sound.
    assert judge.score(voice, 2 * RATE) != pytest.approx(score, abs=1e-5)


def test_long_waves_are_the_mean_of_segments_from_first_to_last() -> None:
    network = DistillMos(small_weights())
    wave = synthetic_voice((SEGMENT + STEP) / RATE).astype(np.float32)
    ends = [network.score(wave[:SEGMENT]), network.score(wave[-SEGMENT:])]
    assert ends[0] != ends[1]
    assert network.score(wave) == pytest.approx(np.mean(ends), abs=1e-5)


def test_a_short_wave_is_filled_up_with_silence() -> None:
    network = DistillMos(small_weights())
    wave = synthetic_voice(0.5).astype(np.float32)
    assert network.score(wave) == pytest.approx(network.score(np.pad(wave, (0, 800))), abs=1e-5)


@pytest.mark.parametrize(
    ("wave", "score"),
    [(np.zeros(8000), 1.0), (np.zeros(0), math.nan), (np.ones(100), math.nan), (np.full(8000, np.nan), math.nan)],
    ids=["silent", "none", "short", "broken"],
)
def test_silence_is_the_worst_and_what_is_no_sound_has_no_score(
    judge: NaturalnessJudge, wave: np.ndarray, score: float
) -> None:
    assert judge.score(wave, RATE) == pytest.approx(score, nan_ok=True)


def test_every_wave_is_scored_and_told(judge: NaturalnessJudge) -> None:
    told: list[str] = []
    found = scores(judge, ["a", "b"], [synthetic_voice(0.5), np.zeros(8000)], RATE, "Spoken", told.append)
    assert found[1] == 1.0
    assert found[0] > 1.0
    assert told == ["Spoken, naturalness of a", "Spoken, naturalness of b"]


def test_missing_weights_name_the_command(without: Callable[..., None]) -> None:
    without("distillmos")
    with pytest.raises(MissingPackage, match="pip install --no-deps distillmos"):
        NaturalnessJudge()
    assert find_naturalness() is None
    assert [item.measure for item in naturalness_left_out(None)] == ["Scores of naturalness"]


def test_damaged_weights_are_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "broken.pt").write_bytes(b"not weights")
    with pytest.raises(UserError, match="do not load"):
        NaturalnessJudge(tmp_path / "broken.pt")


def test_the_installed_weights_score_as_their_own_package_does() -> None:
    if find_weights() is None:
        pytest.skip("the weights of distillmos are not installed")
    judge = NaturalnessJudge()
    voice = synthetic_voice(1.0)
    noisy = voice + np.random.default_rng(0).normal(0, 0.2, len(voice))
    # What distillmos 0.9.1 says of the same waves.
    assert judge.score(voice, RATE) == pytest.approx(2.1656, abs=1e-4)
    assert judge.score(noisy, RATE) == pytest.approx(2.4719, abs=1e-4)
    assert naturalness_left_out(judge) == []
    assert "b18b3ac60227267c" in judge.told
