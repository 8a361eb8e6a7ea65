"""A synthetic voice: enough like speech for every measure, and made in milliseconds."""

from __future__ import annotations

import numpy as np


def synthetic_voice(seconds: float = 1.5, rate: int = 16_000, seed: int = 0) -> np.ndarray:
    """Harmonics of a gliding pitch under two moving formants, in syllables with pauses; [samples], peak 0.5."""
    rng = np.random.default_rng(seed)
    time = np.arange(round(seconds * rate)) / rate
    pitch = 120 + 30 * np.sin(2 * np.pi * 0.7 * time + rng.uniform(0, 6))
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    wave = np.zeros_like(time)
    for harmonic in range(1, 40):
        frequency = harmonic * pitch
        formants = (500 + 200 * np.sin(7 * time), 1700 + 500 * np.sin(5 * time))
        gain = sum(np.exp(-(((frequency - formant) / 250) ** 2)) for formant in formants) + 0.02
        wave += gain * np.sin(harmonic * phase) * (frequency < 0.45 * rate)
    wave += 0.05 * rng.standard_normal(len(time))
    wave *= np.clip(np.sin(2 * np.pi * 2.5 * time) + 0.4, 0, 1)
    return (0.5 * wave / np.abs(wave).max()).astype(np.float32)
