from __future__ import annotations

import math
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from synthetic import synthetic_voice

from madrigal.judge import packages, speech
from madrigal.judge.metrics import METRICS, measure, mel_distance, si_sdr, stft_distance
from madrigal.judge.packages import MissingPackage
from madrigal.judge.spectra import mel_filters, mel_spectrum

RATE = 16_000
PLAIN = [si_sdr, mel_distance, stft_distance]
SPEECH = ["pesq", "stoi", "visqol"]


def noisy(wave: np.ndarray, decibels: float) -> np.ndarray:
    """`wave` with white noise at this signal-to-noise ratio."""
    noise = np.random.default_rng(1).standard_normal(wave.shape)
    noise *= np.linalg.norm(wave) / np.linalg.norm(noise) * 10 ** (-decibels / 20)
    return (wave + noise).astype(np.float32)


@pytest.mark.parametrize("decibels", [0, 10, 30])
def test_si_sdr_is_the_ratio_of_signal_to_noise(voice: np.ndarray, decibels: float) -> None:
    assert si_sdr(voice, noisy(voice, decibels), RATE) == pytest.approx(decibels, abs=0.3)


def test_si_sdr_does_not_care_for_gain_or_offset(voice: np.ndarray) -> None:
    heard = noisy(voice, 10)
    assert si_sdr(voice, 0.1 * heard + 0.2, RATE) == pytest.approx(si_sdr(voice, heard, RATE), abs=1e-3)


def test_si_sdr_stays_within_its_bounds(voice: np.ndarray) -> None:
    assert si_sdr(voice, voice, RATE) == 100
    assert si_sdr(voice, np.zeros_like(voice), RATE) == -100


@pytest.mark.parametrize("distance", [mel_distance, stft_distance])
def test_distances_are_zero_for_the_same_and_grow_with_noise(voice: np.ndarray, distance: Callable[..., float]) -> None:
    assert distance(voice, voice, RATE) == 0
    steps = [distance(voice, noisy(voice, decibels), RATE) for decibels in (40, 20, 0)]
    assert steps == sorted(steps)


def test_mel_distance_is_in_decibels() -> None:
    loud = np.random.default_rng(0).standard_normal(RATE).astype(np.float32)
    assert mel_distance(loud, 0.5 * loud, RATE) == pytest.approx(6.02, abs=0.01)


@pytest.mark.parametrize("plain", PLAIN)
def test_plain_measures_take_the_mean_over_channels(voice: np.ndarray, plain: Callable[..., float]) -> None:
    first, second = noisy(voice, 5), noisy(voice, 25)
    both = plain(np.stack([voice, voice]), np.stack([first, second]), RATE)
    assert both == pytest.approx((plain(voice, first, RATE) + plain(voice, second, RATE)) / 2)


@pytest.mark.parametrize("plain", PLAIN)
def test_a_silent_reference_has_no_score(voice: np.ndarray, plain: Callable[..., float]) -> None:
    assert math.isnan(plain(np.zeros_like(voice), voice, RATE))


def test_waves_of_different_lengths_are_refused(voice: np.ndarray) -> None:
    with pytest.raises(ValueError, match="cannot be compared"):
        mel_distance(voice, voice[:-1], RATE)


@pytest.mark.parametrize("name", SPEECH)
def test_speech_measures_rank_noise_or_name_their_package(voice: np.ndarray, name: str) -> None:
    score = METRICS[name].measure
    assert score is not None
    if not packages.available(name):
        with pytest.raises(MissingPackage, match="pip install"):
            score(voice, voice, RATE)
        return
    assert score(voice, voice, RATE) > score(voice, noisy(voice, 3), RATE)
    assert math.isnan(score(np.zeros_like(voice), voice, RATE))
    assert score(voice, np.zeros_like(voice), RATE) <= 1.0
    assert math.isnan(score(voice[:1000], voice[:1000], RATE))


@pytest.mark.parametrize("name", SPEECH)
def test_a_missing_package_is_named_with_its_command(
    voice: np.ndarray, name: str, without: Callable[..., None]
) -> None:
    without(name)
    speech._visqol_api.cache_clear()
    score = METRICS[name].measure
    assert score is not None
    with pytest.raises(MissingPackage, match=f"pip install {packages.PACKAGES[name].distribution}"):
        score(voice, voice, RATE)
    assert not packages.available(name)


def test_pesq_gets_one_channel_at_16_khz_the_reference_first(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setitem(sys.modules, "pesq", SimpleNamespace(pesq=lambda *arguments: calls.append(arguments) or 2.5))
    wave = synthetic_voice(0.5, 24_000)
    assert speech.pesq(np.stack([wave, wave]), np.stack([wave, -wave * 0.5]), 24_000) == 2.5
    rate, clean, heard, mode = calls[0]
    assert (rate, mode, clean.shape, heard.shape) == (16_000, "wb", (8_000,), (8_000,))
    assert np.abs(clean).max() > 3 * np.abs(heard).max()


def test_a_clip_that_the_package_refuses_has_no_score(voice: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> float:
        raise RuntimeError("no utterances detected")

    monkeypatch.setitem(sys.modules, "pesq", SimpleNamespace(pesq=refuse))
    assert math.isnan(speech.pesq(voice, voice, RATE))


def test_visqol_says_which_mapping_it_uses(voice: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    class Api:
        def create(self, mode: str, use_lattice_model: bool) -> None:
            if use_lattice_model:
                raise ImportError("no runtime")

        def measure_from_arrays(self, clean: np.ndarray, heard: np.ndarray, rate: int) -> SimpleNamespace:
            return SimpleNamespace(moslqo=4.25)

    monkeypatch.setitem(sys.modules, "visqol", SimpleNamespace(VisqolApi=Api))
    speech._visqol_api.cache_clear()
    try:
        assert speech.visqol_mapping() == "polynomial"
        assert speech.visqol(voice, voice, RATE) == 4.25
    finally:
        speech._visqol_api.cache_clear()


def test_measure_gives_what_was_asked_for(voice: np.ndarray) -> None:
    assert list(measure(voice, voice, RATE, ("mel", "si_sdr"))) == ["mel", "si_sdr"]


@pytest.mark.parametrize(("rate", "size", "bands"), [(8_000, 2048, 160), (16_000, 256, 20), (48_000, 256, 20)])
def test_every_mel_band_holds_something_at_any_rate(rate: int, size: int, bands: int) -> None:
    assert np.allclose(mel_filters(rate, size, bands).sum(axis=0), 1)


def test_a_higher_tone_lies_in_a_higher_band() -> None:
    time = np.arange(RATE) / RATE
    bands = [
        int(mel_spectrum(np.sin(2 * np.pi * hertz * time), RATE, 1024, 256, 80).mean(axis=0).argmax())
        for hertz in (200, 1000, 4000, 7500)
    ]
    assert bands == sorted(set(bands))
