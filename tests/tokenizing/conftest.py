from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile

from madrigal.data import token_writing
from madrigal.data.manifest import Entry, Manifest

SECONDS = (0.5, 0.31, 1.0, 0.8, 0.03, 0.7, 0.4)


@pytest.fixture(autouse=True)
def _two_recordings_a_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_writing, "SHARD_ENTRIES", 2)


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    """Seven recordings: in two rates, one too short for a token, one damaged, one in stereo."""
    rng = np.random.default_rng(0)
    entries = []
    for number, seconds in enumerate(SECONDS):
        rate, channels = (24000 if number == 1 else 16000), (2 if number == 2 else 1)
        level = np.repeat(rng.uniform(0, 0.4, 40), rate // 20)[: round(seconds * rate), None]
        path = tmp_path / f"{number}.wav"
        soundfile.write(path, level * rng.uniform(-1, 1, (len(level), channels)), rate)
        entries.append(Entry(path=path.name, duration=seconds, sample_rate=rate, channels=channels, speaker="x"))
    (tmp_path / "3.wav").write_bytes(b"no sound")
    manifest = Manifest(tmp_path, entries)
    manifest.write(tmp_path)
    return manifest


@pytest.fixture
def contents() -> Callable[[Path], dict[str, bytes]]:
    """Every file below a folder with its bytes."""
    return lambda folder: {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}
