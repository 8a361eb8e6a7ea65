"""Plain descriptors of a clip of music: its tempo, how high it is, how bright, and whether its key is minor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from madrigal.judge.music_features import HOP, RATE, log_mels
from madrigal.judge.signals import as_channels, mono, resample
from madrigal.judge.spectra import magnitudes

SHORTEST, LONGEST = 0.25, 1.35
"""Seconds between beats that are looked for."""

SIZE, STEP = 4096, 1024
LOWEST, HIGHEST = 60.0, 2500.0
"""Hertz between which a tone is looked for."""

MAJOR = np.array([6.35, 2.23, 3.48, 2.33, 4.38, 4.09, 2.52, 5.19, 2.39, 3.66, 2.29, 2.88])
MINOR = np.array([6.33, 2.68, 3.52, 5.38, 2.60, 3.53, 2.54, 4.75, 3.98, 2.69, 3.34, 3.17])
"""How well each of the twelve tones fits a key (Krumhansl and Kessler, 1982), from the tonic on."""

MODES = {"major": MAJOR, "minor": MINOR}


class Described(NamedTuple):
    """Beats in a minute, MIDI pitch of the lowest tone, Hertz of the centre of the spectrum, and "major" or "minor"."""

    beats: float
    pitch: float
    centroid: float
    mode: str

    @property
    def sounds(self) -> bool:
        """Whether it is more than silence."""
        return bool(np.isfinite(self.centroid))


def describe(wave: Any, rate: int) -> Described:
    """All of them of one clip; what cannot be found in silence is no number."""
    samples = mono(resample(as_channels(wave), rate, RATE))
    spectra = magnitudes(samples, SIZE, STEP)
    loud = spectra[spectra.max(1) > 0.03 * max(float(spectra.max(initial=0.0)), 1e-9)]
    if not len(loud) or float(spectra.max()) < 1e-6:
        return Described(np.nan, np.nan, np.nan, "")
    hertz = np.arange(spectra.shape[1]) * RATE / SIZE
    centroid = float((loud.sum(0) * hertz).sum() / loud.sum())
    return Described(beats_per_minute(samples), _pitch(loud, hertz), centroid, _mode(loud, hertz))


def beats_per_minute(samples: npt.NDArray[Any], rate: int = RATE) -> float:
    """The first strong peak of the autocorrelation of the onsets; a beat's multiples are as strong as the beat."""
    rises = np.maximum(np.diff(log_mels(samples, rate), axis=0), 0.0).mean(1)
    first, last = round(SHORTEST * RATE / HOP), min(round(LONGEST * RATE / HOP), len(rises) - 2)
    if last <= first + 2:
        return float("nan")
    rises = np.convolve(rises, np.hanning(5) / np.hanning(5).sum(), mode="same")
    rises -= rises.mean()
    lags = np.arange(first, last + 1)
    alike = np.array([(rises[lag:] * rises[:-lag]).mean() for lag in lags])
    peaks = [i for i in range(1, len(alike) - 1) if alike[i] >= alike[i - 1] and alike[i] > alike[i + 1]]
    strong = [i for i in peaks if alike[i] >= 0.6 * max(alike[j] for j in peaks)]
    return 60.0 * RATE / (HOP * float(lags[strong[0]])) if strong else float("nan")


def _pitch(spectra: npt.NDArray[Any], hertz: npt.NDArray[Any]) -> float:
    """Median over frames of the lowest peak within 20 dB of the frame's highest."""
    band = (hertz >= LOWEST) & (hertz <= HIGHEST)
    found = []
    for frame in spectra[:, band]:
        inner = (frame[1:-1] >= frame[:-2]) & (frame[1:-1] > frame[2:]) & (frame[1:-1] >= 0.1 * frame.max())
        if inner.any():
            found.append(hertz[band][1:-1][inner][0])
    return float(69 + 12 * np.log2(np.median(found) / 440.0)) if found else float("nan")


def _mode(spectra: npt.NDArray[Any], hertz: npt.NDArray[Any]) -> str:
    """The key whose profile the twelve tones fit best says whether it is major or minor."""
    band = (hertz >= 100.0) & (hertz <= 2000.0)
    tones = np.rint(69 + 12 * np.log2(hertz[band] / 440.0)).astype(int) % 12
    heard = np.bincount(tones, weights=np.sqrt(spectra[:, band]).sum(0), minlength=12)
    chroma = heard / np.maximum(np.bincount(tones, minlength=12), 1)
    best = {
        name: max(float(np.corrcoef(np.roll(profile, tonic), chroma)[0, 1]) for tonic in range(12))
        for name, profile in MODES.items()
    }
    return max(best, key=lambda name: best[name])


class NearestCentre:
    """Names for a number: the name whose median is nearest, in the numbers of clips of which the name is known.

    "" is no name.
    """

    def __init__(self, values: Sequence[float], names: Sequence[str]) -> None:
        known = np.asarray(values, dtype=np.float64)
        own = {name: known[[n == name for n in names]] for name in dict.fromkeys(names) if name}
        self.centres = {name: float(np.nanmedian(part)) for name, part in own.items() if np.isfinite(part).any()}

    def __call__(self, value: float) -> str:
        """ "" for what is no number, or where nothing is known."""
        if not np.isfinite(value) or not self.centres:
            return ""
        return min(self.centres, key=lambda name: abs(self.centres[name] - value))
