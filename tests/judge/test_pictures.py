from __future__ import annotations

import numpy as np
import pytest

from madrigal.judge.colours import ANCHORS, colourise
from madrigal.judge.picture import LEFT, PLOT, ROW, TOP, spectrogram_picture
from madrigal.judge.report import Example
from madrigal.judge.ticks import label, linear_ticks, log_ticks


def luminance(colours: np.ndarray) -> np.ndarray:
    return colours.astype(float) @ [0.2126, 0.7152, 0.0722]


def test_brighter_always_means_louder() -> None:
    assert (np.diff(luminance(colourise(np.linspace(0, 1, 200)))) >= -0.5).all()
    assert luminance(colourise([0.0, 1.0])).tolist() == pytest.approx([7.8, 250.7], abs=2)


def test_values_outside_are_clipped_and_anchors_are_met() -> None:
    assert colourise([-1.0, 2.0]).tolist() == colourise([0.0, 1.0]).tolist()
    assert tuple(colourise(ANCHORS[4][0])) == ANCHORS[4][1]


def test_each_wave_has_a_row_and_loud_is_bright(voice: np.ndarray) -> None:
    example = Example("clip", "Hello.", 16_000, {"Original": voice[None], "Silence": 0 * voice[None]})
    picture = np.asarray(spectrogram_picture(example).convert("RGB"))
    rows = [luminance(picture[TOP + index * (ROW + 12) :][:ROW, LEFT : LEFT + PLOT]).mean() for index in range(2)]
    assert rows[0] > 2 * rows[1]


def test_the_picture_grows_with_the_rows(voice: np.ndarray) -> None:
    heights = [
        spectrogram_picture(Example("c", None, 16_000, {str(row): voice[None] for row in range(count)})).height
        for count in (1, 2, 3)
    ]
    assert heights[2] - heights[1] == heights[1] - heights[0] > ROW


@pytest.mark.parametrize(
    ("rate", "samples"), [(8_000, 40), (16_000, 1), (48_000, 480_000)], ids=["tiny", "one sample", "long"]
)
def test_odd_lengths_and_rates_are_drawn(rate: int, samples: int) -> None:
    wave = np.random.default_rng(0).normal(0, 0.1, (1, samples)).astype(np.float32)
    picture = spectrogram_picture(
        Example("имя, 名前 " * 30, None, rate, {"a very long name of a codec 6 kbps": wave}), seconds=2
    )
    assert picture.width == spectrogram_picture(Example("x", None, 16_000, {"y": wave[:, :10]})).width


def test_silence_is_drawn() -> None:
    spectrogram_picture(Example("silence", None, 16_000, {"Original": np.zeros((1, 8000), np.float32)}))


@pytest.mark.parametrize(("low", "high"), [(0, 1), (0, 5.15), (-3, 17), (0.0012, 0.0031), (1000, 1_000_000)])
def test_linear_ticks_are_few_round_and_inside(low: float, high: float) -> None:
    ticks = linear_ticks(low, high)
    assert 2 <= len(ticks) <= 7
    assert all(low <= tick <= high for tick in ticks)
    assert len({round(step, 9) for step in np.diff(ticks)}) == 1


@pytest.mark.parametrize(("low", "high"), [(0.01, 100), (0.3, 7), (2.1, 3.9), (1e-5, 1e3)])
def test_log_ticks_are_at_least_two_and_inside(low: float, high: float) -> None:
    ticks = log_ticks(low, high)
    assert 2 <= len(ticks) <= 10
    assert all(low * 0.99 <= tick <= high * 1.01 for tick in ticks)


def test_labels() -> None:
    assert [label(value) for value in (0, 0.05, 2.5, 1500, 20_000, 3e6, 2e-5)] == [
        "0", "0.05", "2.5", "1,500", "20k", "3M", "2e-05",
    ]  # fmt: skip


def test_an_empty_range_has_one_tick() -> None:
    assert linear_ticks(2.0, 2.0) == [2.0]
