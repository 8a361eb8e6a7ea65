"""Magnitude and mel spectra in numpy, independent of the layers that models are trained with."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

Spectrum = npt.NDArray[np.float64]


@lru_cache(maxsize=16)
def hann(size: int) -> Spectrum:
    """A periodic Hann window scaled so that a full-scale sine has magnitude 0.5."""
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)
    return np.asarray(window / window.sum())


def magnitudes(wave: npt.NDArray[Any], size: int, hop: int) -> Spectrum:
    """[samples] -> [frames, size // 2 + 1]; frames are centred on multiples of hop, edges are zero-padded."""
    padded = np.pad(np.asarray(wave, dtype=np.float64), (size // 2, size // 2 + hop))
    frames = np.lib.stride_tricks.sliding_window_view(padded, size)[: len(wave) + 1 : hop]
    return np.abs(np.fft.rfft(frames * hann(size)))


def hertz_to_mel(hertz: npt.ArrayLike) -> Spectrum:
    return np.asarray(2595.0 * np.log10(1.0 + np.asarray(hertz, dtype=np.float64) / 700.0))


def mel_to_hertz(mel: npt.ArrayLike) -> Spectrum:
    return np.asarray(700.0 * (10.0 ** (np.asarray(mel, dtype=np.float64) / 2595.0) - 1.0))


@lru_cache(maxsize=32)
def mel_filters(rate: int, size: int, bands: int) -> Spectrum:
    """Triangles over 0 to rate / 2, each a weighted mean of bins: [size // 2 + 1, bands].

    A band too narrow to hold a bin takes the nearest one, so that no band is empty at any rate.
    """
    bins = np.arange(size // 2 + 1) * rate / size
    edges = mel_to_hertz(np.linspace(0.0, float(hertz_to_mel(rate / 2)), bands + 2))
    rising = (bins[:, None] - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - bins[:, None]) / (edges[2:] - edges[1:-1])
    weights = np.maximum(0.0, np.minimum(rising, falling))
    for band in np.flatnonzero(weights.sum(axis=0) == 0):
        weights[np.argmin(np.abs(bins - edges[band + 1])), band] = 1.0
    return np.asarray(weights / weights.sum(axis=0))


def mel_spectrum(wave: npt.NDArray[Any], rate: int, size: int, hop: int, bands: int) -> Spectrum:
    """[samples] -> mel magnitudes [frames, bands]."""
    return np.asarray(magnitudes(wave, size, hop) @ mel_filters(rate, size, bands))


def decibels(magnitude: Spectrum, peak: float, depth: float) -> Spectrum:
    """Level under `peak`, in dB from 0 down to -depth, so that inaudible differences do not count."""
    return np.asarray(20.0 * np.log10(np.maximum(magnitude / peak, 10.0 ** (-depth / 20.0))))
