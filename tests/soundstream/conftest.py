from pathlib import Path

import numpy as np
import pytest
import soundfile


@pytest.fixture
def recordings(tmp_path: Path) -> Path:
    """Eight recordings of three quarters of a second: tones under a moving level, and some noise."""
    folder = tmp_path / "recordings"
    folder.mkdir()
    rng = np.random.default_rng(0)
    time = np.arange(12000) / 16000
    for number in range(8):
        tone = np.sin(2 * np.pi * rng.uniform(100, 600) * time) * (0.5 + 0.5 * np.sin(2 * np.pi * 3 * time))
        soundfile.write(folder / f"{number}.wav", 0.2 * tone + 0.02 * rng.standard_normal(len(time)), 16000)
    return folder
