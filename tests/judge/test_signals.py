from __future__ import annotations

import numpy as np
import pytest
import torch

from madrigal.judge.signals import advance, as_channels, fit, lag, mono, resample


@pytest.mark.parametrize("shape", [(8,), (1, 8), (2, 8), (1, 2, 8)])
def test_waves_of_all_shapes_become_channels_first(shape: tuple[int, ...]) -> None:
    wave = as_channels(torch.ones(shape, requires_grad=True))
    assert wave.shape == ((2, 8) if 2 in shape else (1, 8))
    assert wave.dtype == np.float32


def test_a_batch_is_no_wave() -> None:
    with pytest.raises(ValueError, match=r"\[3, 1, 8\]"):
        as_channels(np.zeros((3, 1, 8)))


def test_mono_is_the_mean_of_the_channels() -> None:
    assert mono(np.array([[1.0, 0.0], [0.0, 0.5]])).tolist() == [0.5, 0.25]


@pytest.mark.parametrize("samples", [3, 5, 9])
def test_fit_cuts_and_pads_the_end(samples: int) -> None:
    fitted = fit(np.ones((1, 5), np.float32), samples)
    assert fitted.shape == (1, samples)
    assert fitted.sum() == min(5, samples)


@pytest.mark.parametrize("shift", [-7, 0, 23])
def test_lag_finds_a_shift_and_advance_undoes_it(voice: np.ndarray, shift: int) -> None:
    late = advance(voice[None], -shift)
    assert lag(voice, late[0], 50) == shift
    assert lag(voice, advance(late, shift)[0], 50) == 0


def test_an_inverted_copy_is_not_taken_for_an_aligned_one(voice: np.ndarray) -> None:
    assert lag(voice, -voice, 20) != 0


def test_resampling_keeps_the_length_in_seconds() -> None:
    assert resample(np.zeros((2, 16_000), np.float32), 16_000, 24_000).shape == (2, 24_000)
