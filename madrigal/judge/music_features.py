"""What a clip of music sounds like, as statistics of its log-mels: no network, nothing of a model that is judged."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from madrigal.judge.signals import as_channels, mono, resample
from madrigal.judge.spectra import decibels, mel_spectrum

RATE, SIZE, HOP, BANDS = 16_000, 1024, 256, 64
DEPTH = 80.0
Vector = npt.NDArray[np.float64]


def log_mels(wave: Any, rate: int) -> Vector:
    """Level under the clip's loudest band in dB, [frames, BANDS]: how loud the clip is makes no difference."""
    samples = mono(resample(as_channels(wave), rate, RATE))
    mels = mel_spectrum(samples, RATE, SIZE, HOP, BANDS)
    return decibels(mels, max(float(mels.max(initial=0.0)), 1e-9), DEPTH)


def clip_features(wave: Any, rate: int) -> Vector:
    """Means, deviations and rises of every band, [3 * BANDS], in tens of dB; of the frames that sound.

    Means are over the mean of all bands: the loudest moment of sound that was made anew is louder than the recording's,
    and tells nothing of the instrument.
    """
    mels = log_mels(wave, rate)
    sounding = mels[mels.max(1) > -0.75 * DEPTH]
    mels = sounding if len(sounding) > 1 else mels
    rises = np.maximum(np.diff(mels, axis=0), 0.0).mean(0) if len(mels) > 1 else np.zeros(BANDS)
    means = mels.mean(0)
    return np.concatenate([means - means.mean(), mels.std(0), 5.0 * rises]) / 10.0
