"""Holes in recordings, durations and processor time: what goes into the report beside the sentences."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from synthetic import synthetic_voice

from madrigal.errors import UserError
from madrigal.judge.mending import (
    EDGE,
    HOLED,
    MENDED,
    ORIGINAL,
    MendedRecording,
    evaluate_mending,
    hole_in,
    speech_bounds,
)
from madrigal.judge.speech_page import show_spoken, write_spoken
from madrigal.judge.speed import Stopwatch, one_thread
from madrigal.judge.spoken import SPOKEN, Sentence, SpokenReport, evaluate_spoken
from madrigal.judge.timing import duration_errors

RATE = 16_000


def recording(silence: float = 0.5, speech: float = 2.0) -> np.ndarray:
    voice = synthetic_voice(speech)
    edge = np.zeros(round(silence * RATE), dtype=np.float32)
    return np.concatenate([edge, voice, edge])[None].astype(np.float32)


def test_holes_lie_inside_the_speech_and_are_fixed_by_the_seed() -> None:
    wave = recording()
    first, last = speech_bounds(wave, RATE)
    assert first == pytest.approx(0.5, abs=0.05)
    assert last == pytest.approx(2.5, abs=0.05)
    holes = [hole_in(wave, RATE, 1.0, seed) for seed in range(20)]
    assert len(set(holes)) == 20
    assert holes == [hole_in(wave, RATE, 1.0, seed) for seed in range(20)]
    for hole in holes:
        assert hole is not None
        assert first + EDGE <= hole[0]
        assert hole[1] == pytest.approx(hole[0] + 1.0)
        assert hole[1] <= last - EDGE
    assert hole_in(wave, RATE, 1.6, 0) is None
    assert hole_in(np.zeros((1, RATE)), RATE, 0.1, 0) is None


class WordCounter:
    """Hears "one two" where the middle of the wave sounds, "one" where it is silent."""

    def transcribe(self, wave: Any, rate: int) -> str:
        return "one two" if np.abs(wave[0, RATE : 2 * RATE]).max() > 0 else "one"


@pytest.fixture
def mend() -> MendedRecording:
    wave = recording()
    return MendedRecording("one", "One two.", RATE, wave, 0.5 * wave, 1.0, 2.0)


def test_the_hole_costs_words_and_the_mend_brings_them_back(mend: MendedRecording) -> None:
    pytest.importorskip("jiwer")
    found = evaluate_mending([mend, mend], recognisers={"Stub": WordCounter()})
    rates = {way.label: way.words["Stub"].mean for way in found.ways}
    assert rates == {MENDED: 0.0, HOLED: 0.5, ORIGINAL: 0.0}
    assert found.repaired("Stub") == 1.0
    assert found.count == 2
    assert found.hole_seconds == pytest.approx(1.0)
    with pytest.raises(UserError, match="nothing to mend"):
        evaluate_mending([], recognisers={})


def test_a_mend_that_hears_nothing_brings_nothing_back(mend: MendedRecording) -> None:
    pytest.importorskip("jiwer")
    dead = MendedRecording("one", mend.text, RATE, mend.original, mend.holed, 1.0, 2.0)
    found = evaluate_mending([dead], recognisers={"Stub": WordCounter()})
    assert found.repaired("Stub") == 0.0
    # Where nothing was lost nothing can come back.
    whole = MendedRecording("one", mend.text, RATE, mend.original, mend.original, 0.0, 0.1)
    assert evaluate_mending([whole], recognisers={"Stub": WordCounter()}).repaired("Stub") is None


def test_only_the_hole_is_silent(mend: MendedRecording) -> None:
    holed, whole = mend.holed, mend.original
    assert not holed[:, RATE : 2 * RATE].any()
    np.testing.assert_array_equal(holed[:, :RATE], whole[:, :RATE])
    np.testing.assert_array_equal(holed[:, 2 * RATE :], whole[:, 2 * RATE :])


def test_durations_are_held_against_those_that_were_heard() -> None:
    found = duration_errors([([2, 4, 6], [2, 3, 7]), ([1, 1], [3, 3])], 0.01)
    assert found is not None
    assert (found.sentences, found.symbols) == (2, 5)
    assert found.symbol_ms is not None
    assert found.symbol_ms.mean == pytest.approx(10 * (1 + 1 + 2 + 2) / 5)
    assert found.even_ms is not None
    assert found.even_ms.mean == pytest.approx(10 * (2 + 1 + 3) / 5)
    assert found.total is not None
    assert found.total.mean == pytest.approx((0 + 4 / 6) / 2)
    assert found.length is not None
    assert found.length.mean == pytest.approx(14 / 18)
    assert duration_errors([], 0.01) is None
    with pytest.raises(ValueError, match="cannot be compared"):
        duration_errors([([1, 2], [1])], 0.01)


def test_processor_time_is_its_own_and_that_of_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    own, children, clock = iter([1.0, 1.5]), iter([2.0, 5.0]), iter([100.0, 107.0])
    monkeypatch.setattr("time.process_time", lambda: next(own))
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    monkeypatch.setattr("os.times", lambda: SimpleNamespace(children_user=next(children), children_system=0.25))
    with Stopwatch() as watch:
        pass
    with Stopwatch(clock=True) as wall:
        pass
    monkeypatch.undo()
    assert watch.seconds == pytest.approx(3.5)
    assert wall.seconds == pytest.approx(7.0)


def test_threads_come_back() -> None:
    before = torch.get_num_threads()
    with one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_the_page_tells_and_plays_all_of_it(mend: MendedRecording, tmp_path: Path) -> None:
    pytest.importorskip("jiwer")
    listener = {"Stub": WordCounter()}
    report = evaluate_spoken([Sentence("said", "One two.", RATE, {SPOKEN: recording()})], recognisers=listener)
    report = report.model_copy(
        update={
            "durations": duration_errors([([2, 4], [2, 3])], 0.01),
            "mending": evaluate_mending([mend], recognisers=listener),
        }
    )
    files = write_spoken(report, tmp_path)
    page = files["page"].read_text()
    assert page.count("<audio") == 4
    assert "100 % of the lost words came back by Stub" in page
    loaded = SpokenReport.load(files["json"])
    assert loaded.durations == report.durations
    assert loaded.mending is not None
    assert loaded.mending.heard == {"one": {MENDED: ["one two"], HOLED: ["one"], ORIGINAL: ["one two"]}}
    with Console(record=True, width=140) as console:
        show_spoken(report, console)
    text = console.export_text()
    assert "50.0" in text
    assert "Durations" in text
