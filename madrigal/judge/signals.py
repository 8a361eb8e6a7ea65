"""Small operations on waves as numpy arrays; torch stays out so that metric processes start quickly."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import soxr

Wave = npt.NDArray[np.float32]


def as_channels(wave: Any) -> Wave:
    """Array or CPU tensor of [samples], [channels, samples] or [1, channels, samples] -> [channels, samples]."""
    if hasattr(wave, "detach"):
        wave = wave.detach().cpu()
    array = np.asarray(wave, dtype=np.float32)
    if array.ndim == 3 and array.shape[0] == 1:
        array = array[0]
    if array.ndim == 1:
        array = array[None]
    if array.ndim != 2:
        raise ValueError(f"A wave has the shape [samples] or [channels, samples], not {list(array.shape)}.")
    return np.ascontiguousarray(array)


def mono(wave: Any) -> Wave:
    """The mean of all channels, [samples]."""
    return np.asarray(as_channels(wave).mean(axis=0), dtype=np.float32)


def fit(wave: Wave, samples: int) -> Wave:
    """Cut or zero-pad the end so that [channels, n] becomes [channels, samples]."""
    wave = wave[:, :samples]
    return np.pad(wave, ((0, 0), (0, samples - wave.shape[1])))


def resample(wave: Wave, from_rate: int, to_rate: int) -> Wave:
    """[channels, n] at `from_rate` -> [channels, m] at `to_rate`."""
    if from_rate == to_rate:
        return wave
    return np.asarray(np.ascontiguousarray(soxr.resample(wave.T, from_rate, to_rate).T), dtype=np.float32)


def lag(reference: Wave, other: Wave, limit: int) -> int:
    """How many samples `other` is late behind `reference`: the peak of their cross-correlation.

    Both are [samples]; only lags from -limit to +limit are looked at. The peak keeps its sign, so an inverted
    copy does not count as aligned.
    """
    size = 1 << (len(reference) + len(other) + 1).bit_length()
    late, early = (np.fft.rfft(wave.astype(np.float64), size) for wave in (other, reference))
    correlation = np.fft.irfft(late * np.conj(early), size)
    around_zero = np.concatenate([correlation[-limit:], correlation[: limit + 1]]) if limit else correlation[:1]
    return int(np.argmax(around_zero)) - limit


def advance(wave: Wave, samples: int) -> Wave:
    """Move [channels, n] earlier by `samples` (later where negative), keeping its length."""
    length = wave.shape[1]
    if samples >= 0:
        return fit(wave[:, samples:], length)
    return np.pad(wave, ((0, 0), (-samples, 0)))[:, :length]
