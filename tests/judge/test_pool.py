from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from madrigal.errors import UserError
from madrigal.judge import pool as pool_module
from madrigal.judge.pool import MetricPool

NAMES = ("si_sdr", "mel")


def pairs(voice: np.ndarray, samples: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(0)
    wave = voice[None, :samples]
    return [(wave, wave + rng.normal(0, level, wave.shape).astype(np.float32)) for level in np.linspace(0.001, 0.1, 7)]


def scores(voice: np.ndarray, workers: int, samples: int = 8000) -> dict[tuple[int, str], dict[str, float]]:
    with MetricPool(NAMES, workers) as pool:
        for index, (clean, heard) in enumerate(pairs(voice, samples)):
            pool.add((index, "codec"), clean, heard, 16_000)
        return pool.finish()


def test_processes_give_what_one_process_gives(voice: np.ndarray) -> None:
    alone, shared = scores(voice, 0), scores(voice, 2)
    assert sorted(shared) == sorted(alone)
    for key, values in alone.items():
        assert shared[key] == pytest.approx(values)


def die(*arguments: Any) -> dict[str, float]:
    os._exit(1)


def test_a_process_that_dies_is_a_clear_error(voice: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "measure", die)
    # More than a pipe holds, so that something is always on its way to the dead.
    with pytest.raises(UserError, match="workers=0"):
        scores(np.tile(voice, 20), 1, samples=400_000)


def test_an_error_inside_leaves_no_process_behind(voice: np.ndarray) -> None:
    pool = MetricPool(NAMES, 1)
    with pytest.raises(KeyboardInterrupt), pool:
        raise KeyboardInterrupt
    with pytest.raises(RuntimeError, match="shutdown"):
        pool.add((0, "codec"), voice[None], voice[None], 16_000)


def test_without_metrics_no_process_is_started() -> None:
    with MetricPool((), 4) as pool:
        assert pool._executor is None
        assert pool.finish() == {}
