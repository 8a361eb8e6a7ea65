"""A folder of recordings and a codec trained on it: made once, copied into each test's own working folder."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import soundfile
import torch
from shell import RATES, PlainUser, done, train
from spoiled import RATE, voice


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        before = torch.get_num_threads()
        torch.set_num_threads(1)
        yield
        torch.set_num_threads(before)


@pytest.fixture(scope="session")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """recordings/ (six of them), runs/codec (trained for four steps), exported/, speech.mgl and other.mgl."""
    folder = tmp_path_factory.mktemp("workshop")
    (folder / "recordings").mkdir()
    for number in range(6):
        soundfile.write(folder / f"recordings/{number}.wav", voice(pitch=120 + 20 * number), RATE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        done(*train(run="runs/codec"))
        done(*train("plan.seed=1", run="runs/other"))
        done("export", "runs/codec", "exported")
        done("compress", "recordings/0.wav", "speech.mgl", "--codec", "exported", "--kbps", RATES[1])
        done("compress", "recordings/0.wav", "other.mgl", "--codec", "runs/other", "--kbps", RATES[1])
    return folder


@pytest.fixture
def here(tmp_path: Path, workshop: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder of a test: a copy of the workshop, without links back to it."""
    shutil.copytree(workshop, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture(scope="session")
def plain_user() -> Iterator[PlainUser]:
    """Runs commands as somebody who obeys permissions."""
    user = PlainUser()
    yield user
    user.close()
