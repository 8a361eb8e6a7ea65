"""Judging speech from text: error rates by every recogniser, voices beside the prompt, and the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from level_judge import LevelJudge
from rich.console import Console
from synthetic import synthetic_voice

from madrigal.errors import UserError
from madrigal.judge.recognition import character_error_rate, character_errors
from madrigal.judge.speech_page import show_spoken, write_spoken
from madrigal.judge.spoken import CEILING, SPOKEN, Sentence, SpokenReport, evaluate_spoken

RATE = 16_000


class Listener:
    """Hears the second sentence wrong, wherever the sound is loud."""

    def transcribe(self, wave: Any, rate: int) -> str:
        return "the cat sat" if np.abs(wave).max() > 0.5 else "the hat sat"


@pytest.fixture
def items() -> list[Sentence]:
    loud = synthetic_voice(0.4)[None] / np.abs(synthetic_voice(0.4)).max()
    return [
        Sentence("one", "The cat sat.", RATE, {SPOKEN: 0.1 * loud, CEILING: loud}, confidence=0.5),
        Sentence(
            "two", "The cat sat!", RATE, {SPOKEN: np.zeros((1, 0)), CEILING: loud}, confidence=0.7, unknown=["日"]
        ),
    ]


def test_characters_are_counted_as_they_are_heard() -> None:
    pytest.importorskip("jiwer")
    assert character_errors("The cat sat.", "the hat sat") == (1, 11)
    assert character_errors("The cat sat.", "") == (11, 11)
    rate = character_error_rate([("The cat sat.", "the hat sat"), ("Yes.", "yes")])
    assert rate is not None
    assert rate.mean == pytest.approx(1 / 14)


def test_a_report_has_every_way_by_every_measure(items: list[Sentence], tmp_path: Path) -> None:
    pytest.importorskip("jiwer")
    steps: list[tuple[int, int]] = []
    report = evaluate_spoken(
        items,
        recognisers={"First": Listener(), "Second": Listener()},
        judges=[LevelJudge()],
        prompt=items[0].waves[CEILING],
        progress=lambda done, total, what: steps.append((done, total)),
    )
    spoken, ceiling = report.way(SPOKEN), report.way(CEILING)
    assert [errors.recogniser for errors in spoken.errors] == ["First", "Second"]
    # One letter of the first, and all of the second, of which there is no sound.
    assert spoken.errors[0].characters is not None
    assert spoken.errors[0].characters.mean == pytest.approx(12 / 22)
    assert ceiling.errors[0].words is not None
    assert ceiling.errors[0].words.mean == 0
    assert spoken.silent == 1
    assert ceiling.voices["ecapa"].mean == pytest.approx(1.0)
    assert spoken.voices["ecapa"].mean < 0.5
    assert report.confidence is not None
    assert report.confidence.mean == pytest.approx(0.6)
    assert steps[-1] == (12, 12)
    files = write_spoken(report, tmp_path)
    assert SpokenReport.load(files["json"]) == report.model_copy(update={"examples": []})
    page = files["page"].read_text()
    assert page.count("<audio") == 4
    assert "the hat sat" in page
    with Console(record=True, width=120) as console:
        show_spoken(report, console)
    text = console.export_text()
    assert "54.5" in text
    assert "In 1 of them are characters that could not be said." in text


def test_without_a_recogniser_or_a_prompt_it_says_so(items: list[Sentence]) -> None:
    report = evaluate_spoken(items, recognisers={}, judges=[LevelJudge()])
    assert report.way().voices == {}
    assert any("for want of a recogniser" in note for note in report.notes)
    with pytest.raises(UserError, match="nothing to evaluate"):
        evaluate_spoken([], recognisers={})
