"""Whose voice is it: waves beside all speakers, who is a prompt for whom, and the report that tells it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from level_judge import LevelJudge
from rich.console import Console

from madrigal.data.manifest import Entry
from madrigal.judge.cast import KNOWN, PROMPTS, Cast
from madrigal.judge.gallery import Gallery, Recording
from madrigal.judge.speech_page import show_spoken, write_spoken
from madrigal.judge.spoken import RECORDING, SPOKEN, Sentence, SpokenReport, evaluate_spoken

RATE = 16_000


def at_level(level: float) -> np.ndarray:
    """A wave whose only voice is how loud it is."""
    return np.full((1, 4000), level, dtype=np.float32)


def recordings(speaker: str, levels: list[float]) -> list[Recording]:
    return [Recording(speaker, f"sentence {number}", at_level(level), RATE) for number, level in enumerate(levels)]


def match(gallery: list[Recording], waves: list[np.ndarray], texts: list[str], speakers: list[str]):  # type: ignore[no-untyped-def]
    judge = LevelJudge()
    return Gallery(judge, gallery).match([judge.embed(wave, RATE) for wave in waves], texts, speakers)


def test_a_voice_is_right_only_above_every_other_speaker() -> None:
    gallery = recordings("quiet", [0.05]) + recordings("middle", [0.2]) + recordings("loud", [0.4])
    waves = [at_level(0.06), at_level(0.39), at_level(0.19), np.zeros((1, 4000))]
    found = match(gallery, waves, ["new"] * 4, ["quiet", "loud", "loud", "quiet"])
    assert found is not None
    assert (found.right.mean, found.right.count, found.speakers) == (0.5, 4, 3)
    assert found.confused["loud: middle"] == 1
    assert sum(found.confused.values()) == 2
    assert found.own is not None
    assert found.own.count == 3  # silence has no likeness, and is not right


def test_a_recording_is_not_known_by_itself() -> None:
    """The odd recording of a speaker would be its own best likeness."""
    gallery = recordings("a", [0.05, 0.45]) + recordings("b", [0.4, 0.4])
    wave = [at_level(0.45)]
    itself = match(gallery, wave, ["sentence 1"], ["a"])
    other = match(gallery, wave, ["new"], ["a"])
    assert itself is not None
    assert other is not None
    assert itself.own is not None
    assert other.own is not None
    assert itself.own.mean < other.own.mean
    assert itself.right.mean == 0


def test_nobody_can_be_mistaken_for_nobody() -> None:
    assert match(recordings("a", [0.1, 0.2]), [at_level(0.1)], ["new"], ["a"]) is None
    assert match(recordings("a", [0.1]) + recordings("b", [0.2]), [at_level(0.1)], ["new"], ["stranger"]) is None


def entry(speaker: str | None, number: int, duration: float = 4.0) -> Entry:
    return Entry(
        path=f"{speaker}/{number}.wav",
        duration=duration,
        sample_rate=RATE,
        channels=1,
        text=f"Sentence {number}.",
        speaker=speaker,
    )


def test_prompts_are_of_the_same_speaker_and_of_another_text() -> None:
    entries = [entry(speaker, number) for speaker in ("a", "b") for number in range(30)]
    cast = Cast(entries, seed=1)
    for one in entries:
        prompt = cast.prompt(one)
        assert prompt is not None
        assert prompt.speaker == one.speaker
        assert prompt.text != one.text
    prompts = {cast.prompt(one) for one in entries}
    assert len(prompts) == 2 * PROMPTS
    known = cast.known()
    assert len(known) == 2 * KNOWN
    assert not prompts & set(known)
    assert Cast(entries, seed=1).known() == known
    assert Cast(entries, seed=2).known() != known


@pytest.mark.parametrize("speakers", [1, 2, 3, 4, 8])
def test_the_prompts_of_a_speaker_are_used_alike_whoever_speaks_in_turn(speakers: int) -> None:
    entries = [entry(f"speaker {number % speakers}", number) for number in range(100)]
    cast = Cast(entries)
    for speaker in cast.speakers:
        used = Counter(cast.prompt(one) for one in entries if one.speaker == speaker)
        assert len(used) == PROMPTS
        assert max(used.values()) <= 100 / speakers / PROMPTS + 3


def test_a_good_prompt_is_neither_short_nor_long() -> None:
    entries = [entry("a", number, 1.0) for number in range(10)] + [entry("a", 10, 5.0), entry("a", 11, 20.0)]
    cast = Cast(entries)
    assert entries[10] in {cast.prompt(one) for one in entries}
    assert entries[11] not in {cast.prompt(one) for one in entries}


def test_a_speaker_of_one_recording_has_no_prompt_and_one_alone_is_not_judged() -> None:
    cast = Cast([entry("a", 0), entry(None, 1)])
    assert cast.prompt(entry("a", 0)) is None
    assert cast.prompt(entry("nobody", 3)) is None
    assert cast.known() == []
    few = Cast([entry("a", 0), entry("b", 1)])
    assert {one.speaker for one in few.known()} == {"a", "b"}


class Steady:
    """Thinks half as well of what is quiet."""

    told = "Weights of nothing."

    def score(self, wave: np.ndarray, rate: int) -> float:
        return 4.0 if np.abs(wave).max() > 0.25 else 2.0


def test_a_report_tells_speakers_naturalness_speed_and_size(tmp_path: Path) -> None:
    gallery = recordings("quiet", [0.05, 0.06]) + recordings("loud", [0.4, 0.41])
    items = [
        Sentence(
            f"{speaker} one",
            "New.",
            RATE,
            {SPOKEN: at_level(0.07), RECORDING: at_level(level)},
            speaker=speaker,
            prompt=at_level(level),
            spent={SPOKEN: 0.05},
        )
        for speaker, level in (("quiet", 0.05), ("loud", 0.4))
    ]
    steps: list[tuple[int, int]] = []
    report = evaluate_spoken(
        items,
        recognisers={},
        judges=[LevelJudge()],
        gallery=gallery,
        listener=Steady(),
        megabytes={SPOKEN: 12.5},
        progress=lambda done, total, what: steps.append((done, total)),
    )
    spoken, recording = report.way(), report.way(RECORDING)
    assert spoken.matches[0].right.mean == 0.5
    assert recording.matches[0].right.mean == 1.0
    assert recording.voices["ecapa"].mean == pytest.approx(1.0)
    assert spoken.voices["ecapa"].mean < 1.0
    assert spoken.naturalness is not None
    assert recording.naturalness is not None
    assert (spoken.naturalness.mean, recording.naturalness.mean) == (2.0, 3.0)
    assert spoken.real_time is not None
    assert spoken.real_time.mean == pytest.approx(0.1 / 0.5)
    assert recording.real_time is None
    assert (spoken.megabytes, recording.megabytes) == (12.5, None)
    assert steps[-1] == (12, 12)
    files = write_spoken(report, tmp_path)
    assert SpokenReport.load(files["json"]) == report.model_copy(update={"examples": []})
    with Console(record=True, width=140) as console:
        show_spoken(report, console)
    text = console.export_text()
    for figure in ("1 of 2", "0.200", "12.5", "2.00"):
        assert figure in text
    assert "Weights of nothing." in files["page"].read_text()


def test_a_recording_without_a_text_is_no_prompt_and_somebody_to_be_mistaken_for() -> None:
    told = [entry("a", number) for number in range(30)]
    untold = [entry(speaker, number).model_copy(update={"text": None}) for speaker in ("a", "b") for number in (90, 91)]
    cast = Cast([*untold, *told])
    assert not {cast.prompt(one) for one in told} & set(untold)
    assert {one.speaker for one in cast.known()} == {"a", "b"}
