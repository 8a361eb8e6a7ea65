"""How near is a degraded wave to its reference: six measures with one signature, (reference, degraded, rate).

Waves are arrays of [samples] or [channels, samples] of the same length, already time-aligned. Where a measure
is not defined (a silent reference, a clip too short) the result is NaN, never an exception: one odd clip must not
cost an evaluation. A degraded wave that is silent gets the worst score, so that a dead codec cannot hide.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from madrigal.judge.signals import Wave, as_channels
from madrigal.judge.spectra import decibels, magnitudes, mel_spectrum
from madrigal.judge.speech import pesq, stoi, visqol

WINDOWS = (256, 512, 1024, 2048)
DEPTH = 80.0
"""Levels more than this many dB under the loudest band of the reference are inaudible and count as equal."""


def _pairs(reference: Any, degraded: Any) -> Iterator[tuple[Wave, Wave]]:
    first, second = as_channels(reference), as_channels(degraded)
    if first.shape != second.shape:
        raise ValueError(f"Waves of shapes {list(first.shape)} and {list(second.shape)} cannot be compared.")
    return zip(first, second)


def si_sdr(reference: Any, degraded: Any, rate: int) -> float:
    """Scale-invariant signal-to-distortion ratio in dB, -100 to 100, mean over channels."""
    del rate
    ratios = []
    for first, second in _pairs(reference, degraded):
        clean, heard = (wave.astype(np.float64) - wave.mean(dtype=np.float64) for wave in (first, second))
        energy = float(clean @ clean)
        if energy == 0:
            return math.nan
        target = (heard @ clean) / energy * clean
        distortion = float(((heard - target) ** 2).sum())
        kept = float((target**2).sum())
        ratios.append(_bounded_decibels(kept, distortion) if heard.any() else -100.0)
    return float(np.mean(ratios))


def _bounded_decibels(kept: float, distortion: float) -> float:
    total = kept + distortion
    return 10 * math.log10(max(kept, 1e-10 * total) / max(distortion, 1e-10 * total))


def mel_distance(reference: Any, degraded: Any, rate: int) -> float:
    """Mean absolute difference of mel levels in dB, over windows of 256 to 2048 samples with 20 to 160 bands."""
    distances = []
    for first, second in _pairs(reference, degraded):
        for size in WINDOWS:
            clean = mel_spectrum(first, rate, size, size // 4, size * 20 // 256)
            heard = mel_spectrum(second, rate, size, size // 4, size * 20 // 256)
            peak = float(clean.max())
            if peak == 0:
                return math.nan
            distances.append(np.abs(decibels(clean, peak, DEPTH) - decibels(heard, peak, DEPTH)).mean())
    return float(np.mean(distances))


def stft_distance(reference: Any, degraded: Any, rate: int) -> float:
    """Spectral convergence plus mean absolute log-magnitude difference (nepers), mean over windows."""
    del rate
    distances = []
    for first, second in _pairs(reference, degraded):
        for size in WINDOWS:
            clean, heard = magnitudes(first, size, size // 4), magnitudes(second, size, size // 4)
            peak = float(clean.max())
            if peak == 0:
                return math.nan
            convergence = np.linalg.norm(clean - heard) / np.linalg.norm(clean)
            levels = np.abs(decibels(clean, peak, DEPTH) - decibels(heard, peak, DEPTH)).mean()
            distances.append(convergence + levels * math.log(10) / 20)
    return float(np.mean(distances))


class Metric(NamedTuple):
    """A measure as a report shows it."""

    title: str
    measure: Callable[[Any, Any, int], float] | None
    higher_is_better: bool
    digits: int


METRICS: dict[str, Metric] = {
    "pesq": Metric("PESQ-wb", pesq, True, 2),
    "stoi": Metric("STOI", stoi, True, 3),
    "visqol": Metric("ViSQOL", visqol, True, 2),
    "si_sdr": Metric("SI-SDR dB", si_sdr, True, 1),
    "mel": Metric("mel dB", mel_distance, False, 2),
    "stft": Metric("STFT", stft_distance, False, 2),
}

WORD_METRICS: dict[str, Metric] = {
    "wer": Metric("WER %", None, False, 1),
    "wer_excess": Metric("WER over original, points", None, False, 1),
}


def measure(reference: Any, degraded: Any, rate: int, names: tuple[str, ...]) -> dict[str, float]:
    """All measures of `names` on one pair of waves."""
    scores = {}
    for name in names:
        function = METRICS[name].measure
        assert function is not None
        scores[name] = function(reference, degraded, rate)
    return scores
