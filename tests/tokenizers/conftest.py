from pathlib import Path

import numpy as np
import pytest
import soundfile


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    """Eight recordings of half a second to two: vowel-like sounds that change four times a second, and some noise."""
    folder = tmp_path / "recordings"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(8):
        length = int(16000 * rng.uniform(0.5, 2.0))
        time = np.arange(length) / 16000
        pitch, wave = rng.uniform(90, 250), np.zeros(length)
        resonance = rng.uniform(300, 3000, size=9)[(4 * time).astype(int)]
        for harmonic in range(1, 25):
            near = np.exp(-(((harmonic * pitch - resonance) / 300) ** 2))
            wave += near * np.sin(2 * np.pi * harmonic * pitch * time)
        soundfile.write(folder / f"{number}.wav", 0.1 * wave + 0.005 * rng.standard_normal(length), 16000)
    return folder
