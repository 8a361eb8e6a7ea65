"""How near is a degraded wave to its reference: six measures with one signature, (reference, degraded, rate).

Waves are arrays of [samples] or [channels, samples] of the same length, already time-aligned. Where a measure
is not defined (a silent reference, a clip too short) the result is NaN, never an exception: one odd clip must not
cost an evaluation. A degraded wave that is silent gets the worst score, so that a dead codec cannot hide.
"""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from madrigal.judge import packages
from madrigal.judge.signals import Wave, as_channels, mono, resample
from madrigal.judge.spectra import decibels, magnitudes, mel_spectrum

SPEECH_RATE = 16_000
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


def _speech(reference: Any, degraded: Any, rate: int) -> tuple[Wave, Wave]:
    """Both waves as the speech measures take them: one channel at 16 kHz."""
    first, second = (resample(mono(wave)[None], rate, SPEECH_RATE)[0] for wave in (reference, degraded))
    return first, second


def _silence(reference: Wave, degraded: Wave, worst: float) -> float | None:
    """The score where a wave is silent: undefined for the reference, the worst for the degraded; else None."""
    if not reference.any():
        return math.nan
    return None if degraded.any() else worst


def stoi(reference: Any, degraded: Any, rate: int) -> float:
    """Short-time objective intelligibility, 0 to 1."""
    module = packages.load("stoi")
    clean, heard = _speech(reference, degraded, rate)
    if (score := _silence(clean, heard, worst=0.0)) is not None:
        return score
    with warnings.catch_warnings():
        # pystoi warns and gives 1e-5 where too few frames hold speech: that is no measurement.
        warnings.simplefilter("error", RuntimeWarning)
        try:
            return float(module.stoi(clean, heard, SPEECH_RATE))
        except (RuntimeWarning, ValueError, IndexError):
            return math.nan


def pesq(reference: Any, degraded: Any, rate: int) -> float:
    """Wide-band PESQ (P.862.2) at 16 kHz, 1 to 4.64."""
    module = packages.load("pesq")
    clean, heard = _speech(reference, degraded, rate)
    if (score := _silence(clean, heard, worst=1.0)) is not None:
        return score
    try:
        return float(module.pesq(SPEECH_RATE, clean, heard, "wb"))
    except (ValueError, RuntimeError):  # too short, or no utterance found
        return math.nan


@lru_cache(maxsize=1)
def _visqol_api() -> tuple[Any, str]:
    module = packages.load("visqol")
    # The report names the mapping; the package would print the same as a warning in every process.
    logging.getLogger("visqol").setLevel(logging.ERROR)
    api = module.VisqolApi()
    try:
        api.create(mode="speech", use_lattice_model=True)
        return api, "lattice"
    except ImportError:
        api.create(mode="speech", use_lattice_model=False)
        return api, "polynomial"


def visqol_mapping() -> str:
    """How similarity becomes a score: "lattice" as the original program does, or "polynomial" without its runtime.

    The polynomial gives higher scores: figures of the two must not be compared with each other.
    """
    return _visqol_api()[1]


def visqol(reference: Any, degraded: Any, rate: int) -> float:
    """ViSQOL in speech mode at 16 kHz, 1 to 5."""
    api = _visqol_api()[0]
    clean, heard = _speech(reference, degraded, rate)
    if (score := _silence(clean, heard, worst=1.0)) is not None:
        return score
    try:
        result = api.measure_from_arrays(clean.astype(np.float64), heard.astype(np.float64), SPEECH_RATE)
        return float(result.moslqo)
    except (ValueError, IndexError, RuntimeError, ZeroDivisionError):  # shorter than one patch
        return math.nan


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
