"""Recordings, and an AudioLM trained on them: made once for all tests."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile

from madrigal.audiolm.loading import load_audiolm
from madrigal.audiolm.pipeline import AudioLM
from madrigal.verbs.systems import load_recipe


@pytest.fixture(scope="session")
def sounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight recordings of two seconds at 16 kHz: tones that glide, with harmonics, syllables and some noise."""
    folder = tmp_path_factory.mktemp("sounds")
    time = np.arange(32000) / 16000
    for number in range(8):
        rng = np.random.default_rng(number)
        phase = 2 * np.pi * np.cumsum(rng.uniform(100, 250) * (1 + 0.1 * np.sin(6 * np.pi * time))) / 16000
        tone = sum(np.sin(harmonic * phase) / harmonic for harmonic in range(1, 10))
        wave = 0.2 * tone * np.sin(5 * np.pi * time) ** 2 + 0.003 * rng.standard_normal(len(time))
        soundfile.write(folder / f"{number}.wav", wave, 16000)
    return folder


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory, sounds: Path) -> Path:
    """A run of `audiolm/tiny`: tokenizer, tokens and three stages in some seconds."""
    run = tmp_path_factory.mktemp("runs") / "audiolm"
    load_recipe("audiolm/tiny", [f"data={sounds}"]).trainer(run).train()
    return run


@pytest.fixture(scope="session")
def model(run: Path) -> AudioLM:
    return load_audiolm([run])
