"""A folder as the documentation takes it for granted: `pictures/`, `mask.png`, `recordings/`, `untranscribed/` and
`speech.wav`."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import soundfile
import torch
from blocks import ROOT
from PIL import Image


def voice(seconds: float, seed: int, rate: int = 16000) -> np.ndarray:
    """A gliding tone with harmonics and syllables, and some noise: [samples]."""
    rng, time = np.random.default_rng(seed), np.arange(round(seconds * rate)) / rate
    pitch = rng.uniform(110, 220) * (1 + 0.1 * np.sin(2 * np.pi * 3 * time))
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    tone = sum(np.sin(number * phase) / number for number in range(1, 12))
    return 0.2 * tone * np.sin(2 * np.pi * 2.3 * time) ** 2 + 0.003 * rng.standard_normal(len(time))


def make_pictures(folder: Path) -> None:
    """Eight pictures of patches, each with its caption; two have the same."""
    folder.mkdir()
    for number in range(8):
        patches = np.random.default_rng(number).integers(0, 255, (4, 4, 3)).astype(np.uint8)
        Image.fromarray(patches).resize((64, 64), Image.Resampling.NEAREST).save(folder / f"{number}.png")
        (folder / f"{number}.txt").write_text(f"patches {number // 2}")


@pytest.fixture(scope="session")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six short recordings, each with its text."""
    folder = tmp_path_factory.mktemp("made") / "recordings"
    folder.mkdir()
    for number in range(6):
        soundfile.write(folder / f"{number}.wav", voice(1.2, number), 16000)
        (folder / f"{number}.txt").write_text(f"tone {number}")
    return folder


@pytest.fixture
def workplace(tmp_path: Path, recordings: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: pictures, a mask, recordings, the same without texts, one to compress or to go on from."""
    shutil.copytree(recordings, tmp_path / "recordings")
    shutil.copytree(recordings, tmp_path / "untranscribed", ignore=shutil.ignore_patterns("*.txt"))
    make_pictures(tmp_path / "pictures")
    Image.fromarray(np.pad(np.full((32, 32), 255, np.uint8), 16)).save(tmp_path / "mask.png")
    soundfile.write(tmp_path / "speech.wav", voice(2.0, 99), 16000)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def options_script() -> ModuleType:
    """scripts/write_options.py."""
    spec = importlib.util.spec_from_file_location("write_options", ROOT / "scripts" / "write_options.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Models this small only lose by sharing their work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
