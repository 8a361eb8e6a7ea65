from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from level_judge import LevelJudge
from rich.console import Console
from synthetic import synthetic_voice

from madrigal.errors import UserError
from madrigal.judge import packages
from madrigal.judge.chart import Series
from madrigal.judge.continuation import (
    Continuation,
    ContinuationReport,
    StagePerplexity,
    evaluate_continuations,
)
from madrigal.judge.continuation_page import continuation_page, picture_of, show_continuations, write_continuations
from madrigal.judge.language import Perplexity
from madrigal.judge.report import Report
from madrigal.judge.words import WordList

RATE = 16_000


class Listener:
    """Hears the same sentence in every sound."""

    def __init__(self, text: str) -> None:
        self.text = text

    def transcribe(self, wave: Any, rate: int) -> str:
        return self.text


def items(original: bool = True, count: int = 4) -> list[Continuation]:
    made = []
    for index in range(count):
        level = 1.0 if index % 2 else 0.1
        prompt, after, true = (level * synthetic_voice(0.4, seed=3 * index + part) for part in range(3))
        made.append(
            Continuation(
                name=f"case-{index}",
                speaker="loud" if index % 2 else "quiet",
                rate=RATE,
                prompt=prompt,
                continuation=after if index else 10 * after,  # the first one shouts
                original=true if original else None,
                text="<b>What</b> was said",
            )
        )
    return made


def stage(better: bool) -> StagePerplexity:
    model, other = Perplexity(), Perplexity()
    for index in range(5):
        model.add(20.0 + index, 10)
        other.add((30.0 if better else 12.0) + index, 10)
    return StagePerplexity.of("coarse", model, {"unigram": other, "5-gram": other})


@pytest.fixture(scope="module")
def report() -> ContinuationReport:
    second = Listener("glorp was here") if packages.available("wer") else None
    return evaluate_continuations(
        items(),
        judges=[LevelJudge()],
        recogniser=Listener("Someone was here"),
        second_recogniser=second,
        words=WordList("few", ["someone", "was"]),
        impostors=[("middle", 0.6 * synthetic_voice(0.3))],
        stages=[stage(True), stage(False)],
        title="Held-out speakers",
        examples=2,
    )


def test_voices_are_judged_with_the_originals_beside(report: ContinuationReport) -> None:
    continued, original = report.system().voices[0], report.system("Original").voices[0]
    assert [case.won for case in continued.cases] == [False, True, True, True]
    assert original.share.mean == 1.0
    assert report.speakers == ["loud", "quiet"]
    assert {case.wrong_speaker for case in continued.cases} > {"middle"}
    with pytest.raises(KeyError):
        report.system("Opus")


def test_words_are_counted(report: ContinuationReport) -> None:
    system = report.system()
    assert system.words is not None
    assert system.words.valid is not None
    assert system.words.valid.mean == pytest.approx(2 / 3)
    if packages.available("wer"):
        assert system.agreement is not None
        assert system.agreement.mean == pytest.approx(2 / 3)
    assert report.heard[0].heard["Continuation"][0] == "Someone was here"


def test_stages_say_which_baselines_they_beat() -> None:
    good, bad = stage(True), stage(False)
    assert good.model == pytest.approx(math.exp(2.2))
    assert good.versus["5-gram"].mean == pytest.approx(-1.0)
    assert bad.versus["5-gram"].mean > 0


def test_the_report_survives_its_file(report: ContinuationReport, tmp_path: Path) -> None:
    path = report.write(tmp_path / "deep" / "report.json")
    again = ContinuationReport.load(path)
    assert again.systems == report.systems
    assert again.examples == []
    with pytest.raises(UserError, match="not the report of a codec"):
        Report.load(path)
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**content, "version": 9}), encoding="utf-8")
    with pytest.raises(UserError, match="version 9"):
        ContinuationReport.load(path)
    path.write_text(json.dumps({**content, "title": 3}), encoding="utf-8")
    with pytest.raises(UserError, match="damaged"):
        ContinuationReport.load(path)
    path.write_text("[]", encoding="utf-8")
    with pytest.raises(UserError, match="not the report of continuations"):
        ContinuationReport.load(path)


def test_the_page_has_players_pictures_tables_and_curves(report: ContinuationReport) -> None:
    page = continuation_page(report, [Series("valid/loss", [0, 1], [3.0, 2.0])], "Made from prompts.").render()
    assert page.count("<audio") == 6  # prompt, continuation and original of two examples
    assert page.count("<img") == 2
    assert "<svg" in page
    assert "3 of 4" in page
    assert "5-gram" in page
    assert "Someone was here" in page
    assert "<b>What</b>" not in page
    assert 'class="good"' in page
    assert 'class="bad"' in page


def test_files_are_written(report: ContinuationReport, tmp_path: Path) -> None:
    written = write_continuations(report, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "report.json", "spectrograms.png"]
    assert set(written) == {"json", "picture", "page"}


def test_the_terminal_shows_the_same_figures(report: ContinuationReport) -> None:
    console = Console(width=160, record=True, file=None, quiet=False)
    with console.capture() as captured:
        show_continuations(report, console)
    text = captured.get()
    assert "3 of 4" in text
    assert "0123456789abcdef" in text
    assert "Voices by resemblyzer were left out: run `pip install --no-deps resemblyzer`" in text


def test_little_can_be_said_without_judges_and_originals(tmp_path: Path) -> None:
    report = evaluate_continuations(items(original=False), examples=1)
    assert [system.label for system in report.systems] == ["Continuation"]
    assert any("for want of a recogniser" in note for note in report.notes)
    assert picture_of(report.examples[0]).width > 0
    write_continuations(report, tmp_path)
    show_continuations(report, Console(quiet=True))


def test_a_lone_recogniser_is_not_taken_for_proof() -> None:
    report = evaluate_continuations(items(count=2), recogniser=Listener("Thank you."), examples=0)
    assert any("second recogniser" in note for note in report.notes)
    assert any("want of a word list" in note for note in report.notes)


def test_progress_counts_every_judgement() -> None:
    steps: list[tuple[int, int]] = []
    evaluate_continuations(
        items(count=2),
        judges=[LevelJudge()],
        recogniser=Listener("a"),
        progress=lambda done, total, what: steps.append((done, total)),
    )
    assert steps[-1] == (8, 8)


def test_silence_is_lost_and_heard_as_nothing() -> None:
    case = items(count=2)
    silent = [
        Continuation(one.name, one.speaker, one.rate, one.prompt, np.zeros(size, dtype=np.float32))
        for one, size in zip(case, (8000, 0))
    ]
    report = evaluate_continuations(
        silent, judges=[LevelJudge()], recogniser=Listener("Thank you."), words=WordList("few", ["thank", "you"])
    )
    assert report.system().voices[0].share.mean == 0.0
    assert report.system().words is not None
    assert report.system().words.wordless == 1  # type: ignore[union-attr]
    assert continuation_page(report).render()


def test_nothing_and_mixed_rates_are_refused() -> None:
    with pytest.raises(UserError, match="at least one continuation"):
        evaluate_continuations([])
    first = items(count=1)[0]
    second = Continuation("other", "x", 8000, first.prompt, first.continuation)
    with pytest.raises(UserError, match="one rate"):
        evaluate_continuations([first, second])
