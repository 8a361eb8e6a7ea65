"""A run of all parts on recordings with captions: made once for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_music import recorded

from madrigal.musiclm.loading import load_musiclm
from madrigal.musiclm.music import MusicLM
from madrigal.verbs.systems import load_recipe


@pytest.fixture(scope="session")
def music_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of `musiclm/tiny`, in some seconds."""
    folder = tmp_path_factory.mktemp("musiclm")
    data = recorded(folder / "recordings", count=8, seconds=2.0)
    load_recipe("musiclm/tiny", [f"data={data}"]).trainer(folder / "run").train()
    return folder / "run"


@pytest.fixture(scope="session")
def music(music_run: Path) -> MusicLM:
    return load_musiclm(music_run)
