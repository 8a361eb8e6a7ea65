"""Small recordings, good and bad, for the tests of the data room."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

Record = Callable[..., Path]


def noise(frames: int, channels: int = 1, seed: int = 0) -> np.ndarray:
    """Band-limited noise [frames, channels] below ±0.5: no two places of it are alike."""
    rough = np.random.default_rng(seed).standard_normal((frames + 8, channels))
    smooth = sum(rough[shift : shift + frames] for shift in range(8)) / 8
    return np.clip(smooth * 0.3, -0.5, 0.5).astype(np.float32)


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """Write noise to a file below tmp_path: record("a/b.flac", seconds=1.0, rate=16000, …) -> its path."""

    def write(
        name: str, seconds: float = 0.5, rate: int = 16000, channels: int = 1, seed: int = 0, subtype: str | None = None
    ) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        wave = noise(round(seconds * rate), channels, seed)
        opus = path.suffix.lower() == ".opus"
        soundfile.write(path, wave, rate, format="OGG" if opus else None, subtype="OPUS" if opus else subtype)
        return path

    return write
