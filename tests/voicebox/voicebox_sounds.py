"""Recordings like vowels and hiss, and a vocoder that builds in milliseconds."""

from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
from torch import Tensor

from madrigal.voicebox.vocoder.model import Vocoder

RATE = 16000
TINY: dict[str, Any] = {
    "target_sample_hz": RATE,
    "hop": 64,
    "n_fft": 256,
    "n_mels": 24,
    "iterations": 2,
    "dim": 16,
    "depth": 2,
    "discr_spectrogram_n_ffts": (128,),
    "discr_spectrogram_channels": 2,
    "multi_spectral_window_powers_of_two": (6, 8),
    "multi_spectral_n_mels": (8, 24),
}


def tiny_vocoder(*, discriminators: bool = False, **options: Any) -> Vocoder:
    torch.manual_seed(0)
    return Vocoder(discriminators=discriminators, **{**TINY, **options})


def vowel(seconds: float = 0.75, seed: int = 0) -> Tensor:
    """[samples]: ten harmonics of a gliding tone under a moving level, and some noise."""
    rng = np.random.default_rng(seed)
    time = np.arange(int(seconds * RATE)) / RATE
    phase = 2 * np.pi * np.cumsum(rng.uniform(110, 220) * (1 + 0.1 * np.sin(6 * time))) / RATE
    tone = sum(np.sin(number * phase) / number for number in range(1, 11)) * (0.6 + 0.4 * np.sin(2 * np.pi * 3 * time))
    return torch.tensor(0.1 * tone + 0.01 * rng.standard_normal(len(time)), dtype=torch.float32)


def write_vowels(folder: Path, count: int = 8) -> Path:
    """`count` recordings of three quarters of a second."""
    folder.mkdir(parents=True)
    for number in range(count):
        soundfile.write(folder / f"{number}.wav", vowel(seed=number).numpy(), RATE)
    return folder
