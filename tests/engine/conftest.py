"""What the engine's tests share: a nursery of processes, and one launch of two ranks."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from launching import on_two_ranks
from processes import HERE, Nursery


@pytest.fixture(scope="module")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    made = Nursery(tmp_path_factory.mktemp("nursery"))
    yield made
    made.close()


@pytest.fixture(scope="session")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that `two_ranks.py` wrote its results to, run once by torchrun, whoever asks first."""
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "two-ranks"
    with open(shared / "two-ranks.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            folder.mkdir()
            said = on_two_ranks(HERE / "two_ranks.py", folder)
            (folder / "said.txt").write_text(said)
    assert (folder / "said.txt").exists(), "the launch of two ranks failed in another test"
    return folder
