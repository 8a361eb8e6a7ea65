from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from madrigal.errors import UserError
from madrigal.judge import packages
from madrigal.judge.packages import MissingPackage
from madrigal.judge.recognition import MOST_TOKENS, Recogniser, find_recogniser, word_error_rate, word_errors


class FakeWhisper:
    """Hears one word for each second of sound, and remembers how it was called."""

    made: tuple[Any, ...] = ()

    def __init__(self, folder: str, **options: Any) -> None:
        type(self).made = (folder, options)

    def transcribe(self, sound: np.ndarray, **options: Any) -> tuple[list[SimpleNamespace], None]:
        self.options = options
        return [SimpleNamespace(text=" word ")] * round(len(sound) / 16_000), None


@pytest.fixture
def model_folder(tmp_path: Path) -> Path:
    (tmp_path / "model.bin").write_bytes(b"")
    return tmp_path


def test_the_variable_names_the_model_folder(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MADRIGAL_RECOGNISER", str(model_folder))
    assert find_recogniser() == model_folder


def test_a_variable_that_names_no_model_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MADRIGAL_RECOGNISER", str(tmp_path))
    with pytest.raises(UserError, match="MADRIGAL_RECOGNISER"):
        find_recogniser()


def test_the_installed_package_is_found_without_importing_it(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MADRIGAL_RECOGNISER", raising=False)
    package = model_folder / "package"
    (package / "model").mkdir(parents=True)
    (package / "model" / "model.bin").write_bytes(b"")
    spec = SimpleNamespace(submodule_search_locations=[str(package)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    assert find_recogniser() == package / "model"


def test_without_variable_and_package_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MADRIGAL_RECOGNISER", raising=False)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert find_recogniser() is None


def test_the_recogniser_hears_one_channel_at_16_khz_from_a_local_folder(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "faster_whisper", SimpleNamespace(WhisperModel=FakeWhisper))
    recogniser = Recogniser(model_folder)
    assert recogniser.transcribe(np.zeros((2, 72_000)), 24_000) == "word word word"
    assert FakeWhisper.made[0] == str(model_folder)
    assert FakeWhisper.made[1]["local_files_only"] is True
    # One that repeats itself is stopped where nobody could have said so much.
    assert recogniser.model.options["max_new_tokens"] == 3 * MOST_TOKENS
    recogniser.transcribe(np.zeros(16_000 * 90), 16_000)
    assert recogniser.model.options["max_new_tokens"] == 30 * MOST_TOKENS


def test_a_missing_folder_and_a_missing_package_are_named(
    model_folder: Path, without: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"no model\.bin"):
        Recogniser(model_folder / "nowhere")
    without("recogniser")
    with pytest.raises(MissingPackage, match="pip install faster-whisper"):
        Recogniser(model_folder)


def test_a_damaged_model_is_a_clear_error(model_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(folder: str, **options: Any) -> None:
        raise RuntimeError("unexpected end of file")

    monkeypatch.setitem(sys.modules, "faster_whisper", SimpleNamespace(WhisperModel=broken))
    with pytest.raises(UserError, match="does not load"):
        Recogniser(model_folder)


def test_an_installed_recogniser_listens(voice: np.ndarray) -> None:
    folder = find_recogniser()
    if folder is None or not packages.available("recogniser"):
        assert "pip install faster-whisper" in str(MissingPackage("recogniser"))
        return
    assert isinstance(Recogniser(folder, threads=1).transcribe(voice, 16_000), str)


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without jiwer, a stand-in that counts words in the same place, which is all that these tests need."""
    if packages.available("wer"):
        return

    def process_words(expected: str, heard: str) -> SimpleNamespace:
        first, second = expected.split(), heard.split()
        wrong = sum(one != other for one, other in zip(first, second))
        missing = max(0, len(first) - len(second))
        return SimpleNamespace(substitutions=wrong, deletions=missing, insertions=max(0, len(second) - len(first)))

    monkeypatch.setitem(sys.modules, "jiwer", SimpleNamespace(process_words=process_words))


@pytest.mark.usefixtures("words")
@pytest.mark.parametrize(
    ("reference", "heard", "counts"),
    [
        ("Press 1, please.", "press one please", (0, 3)),
        ("it's late", "it is early", (1, 3)),
        ("one two three", "", (3, 3)),
        ("", "ghost words", (2, 0)),
        ("go on", "go on now", (1, 2)),
        ("...", "", (0, 0)),
    ],
)
def test_word_errors(reference: str, heard: str, counts: tuple[int, int]) -> None:
    assert word_errors(reference, heard) == counts


@pytest.mark.usefixtures("words")
def test_word_error_rate_is_pooled_over_words() -> None:
    rate = word_error_rate([("a b c d e f g h i", "a b c d e f g h i"), ("x", "y")])
    assert rate is not None
    assert (rate.mean, rate.count) == (0.1, 2)
    assert word_error_rate([]) is None


def test_without_jiwer_the_rate_names_the_command(without: Callable[..., None]) -> None:
    without("wer")
    with pytest.raises(MissingPackage, match="pip install jiwer"):
        word_errors("a", "b")
