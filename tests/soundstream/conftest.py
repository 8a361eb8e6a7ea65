from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch
from recorded_sounds import SPECTRAL, build

from madrigal.soundstream.codec import SoundStream


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


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Layers this small only lose by sharing their work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module", params=[{}, SPECTRAL], ids=["waveform", "spectral"])
def codec(request: pytest.FixtureRequest) -> SoundStream:
    return build(**request.param)


@pytest.fixture(scope="module")
def light() -> SoundStream:
    return build(**SPECTRAL)
