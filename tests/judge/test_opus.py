from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import pytest
from synthetic import synthetic_voice

from madrigal.errors import UserError
from madrigal.judge import opus, packages
from madrigal.judge.metrics import mel_distance
from madrigal.judge.opus import opus_available, opus_round_trip
from madrigal.judge.packages import MissingPackage
from madrigal.judge.signals import lag, resample

pytestmark = pytest.mark.usefixtures("libopus_or_its_message")


@pytest.fixture
def libopus_or_its_message(voice: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without PyAV each test shows the message, and goes on with a round trip that changes nothing."""
    if opus_available():
        return
    with pytest.raises(MissingPackage, match="pip install av"):
        opus_round_trip(voice, 16_000, 6)
    size = {"kbps": 0.0}

    def encode(sound: np.ndarray, rate: int, kbps: float, frame_ms: int) -> tuple[list[bytes], bytes]:
        if not 0.5 <= kbps <= 512:
            raise UserError("libopus refuses")
        size["sound"], size["rate"], size["kbps"] = sound, rate, kbps  # type: ignore[assignment]
        return [bytes(round(kbps * 125 * sound.shape[1] / rate))], b""

    def decode(chunks: list[bytes], header: bytes, channels: int) -> np.ndarray:
        heard = size["sound"] + np.random.default_rng(0).normal(0, 1 / size["kbps"], size["sound"].shape) / 20
        return resample(heard.astype(np.float32), int(size["rate"]), 48_000)

    monkeypatch.setattr(opus, "_encode", encode)
    monkeypatch.setattr(opus, "_decode", decode)


@pytest.mark.parametrize("rate", [8_000, 16_000, 24_000, 44_100])
@pytest.mark.parametrize("kbps", [6, 24])
def test_what_comes_back_is_as_long_and_on_time(rate: int, kbps: float) -> None:
    wave = synthetic_voice(1.0, rate)
    heard, _ = opus_round_trip(wave, rate, kbps)
    assert heard.shape == (1, len(wave))
    assert lag(wave, heard[0], rate // 20) == 0


@pytest.mark.parametrize("frame_ms", [20, 60])
def test_the_decoder_drops_the_look_ahead_so_that_only_filters_shift(
    voice: np.ndarray, monkeypatch: pytest.MonkeyPatch, frame_ms: int
) -> None:
    monkeypatch.setattr(opus, "_aligned", lambda reference, decoded, rate: decoded)
    heard, _ = opus_round_trip(voice, 16_000, 12, frame_ms=frame_ms)
    assert abs(lag(voice, heard[0], 800)) <= 8  # half a millisecond; the look-ahead alone would be 104


def test_more_bits_are_spent_and_sound_better(voice: np.ndarray) -> None:
    trips = [opus_round_trip(voice, 16_000, kbps) for kbps in (6, 12, 24)]
    rates = [measured for _, measured in trips]
    distances = [mel_distance(voice, heard[0], 16_000) for heard, _ in trips]
    assert rates == sorted(rates)
    assert distances == sorted(distances, reverse=True)


def test_the_measured_rate_is_about_what_was_asked_and_less_in_pauses(voice: np.ndarray) -> None:
    assert 6 < opus_round_trip(np.tile(voice, 3), 16_000, 12)[1] < 13


def test_two_channels_stay_two(voice: np.ndarray) -> None:
    both = np.stack([voice, 0.3 * voice])
    heard, _ = opus_round_trip(both, 16_000, 48)
    assert heard.shape == both.shape
    assert np.abs(heard[0]).max() > 2 * np.abs(heard[1]).max()


@pytest.mark.parametrize("samples", [1, 100, 320])
def test_very_short_waves_come_back(samples: int) -> None:
    assert opus_round_trip(np.full(samples, 0.1, np.float32), 16_000, 6)[0].shape == (1, samples)


@pytest.mark.parametrize(("channels", "samples", "kbps"), [(3, 100, 6), (1, 0, 6), (1, 100, 0.01), (1, 100, 9000)])
def test_what_opus_cannot_do_is_one_sentence(channels: int, samples: int, kbps: float) -> None:
    with pytest.raises(UserError):
        opus_round_trip(np.zeros((channels, samples), np.float32), 16_000, kbps)


def test_a_pyav_without_libopus_counts_as_missing(
    monkeypatch: pytest.MonkeyPatch, without: Callable[..., None]
) -> None:
    monkeypatch.setattr(packages, "load", lambda feature: SimpleNamespace(codecs_available={"aac"}))
    assert not opus_available()
    monkeypatch.undo()
    without("opus")
    assert not opus_available()
