"""Judging a voicebox: who is prompted by whom, what is counted, what is mended, and the command."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from commanding import Command
from level_judge import LevelJudge
from voicebox_speaking import RATE, hum, speaking_run

import madrigal.voicebox_evaluation as judge
from madrigal.data.manifest import Manifest
from madrigal.judge.cast import Cast
from madrigal.judge.mending import HOLED, MENDED, ORIGINAL
from madrigal.judge.speed import FIRST_WORDS
from madrigal.judge.spoken import CEILING, RECORDING, SPOKEN
from madrigal.voicebox.loading import load_voicebox, weight_of
from madrigal.voicebox.speech import VoiceboxSpeech

SPEAKERS = ("anna", "boris")


class Ear:
    """Hears the same in everything."""

    def transcribe(self, wave: Any, rate: int) -> str:
        return "hum"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return speaking_run(tmp_path_factory.mktemp("runs") / "voicebox")


@pytest.fixture(scope="module")
def model(run: Path) -> VoiceboxSpeech:
    return load_voicebox(run)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    rows = []
    for number in range(6):
        speaker = SPEAKERS[number % 2]
        hum(folder / f"{number}.wav", seconds=3.0, pitch=100.0 + 90 * (number % 2) + 2 * number)
        text = f"Hum number {'abcdef'[number]}."
        row = {"path": f"{number}.wav", "duration": 3.0, "sample_rate": RATE, "channels": 1}
        rows.append(json.dumps({**row, "text": text, "speaker": speaker}))
    (folder / "manifest.jsonl").write_text("\n".join(rows))
    return folder


@pytest.fixture(autouse=True)
def stubs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judge, "find_recognisers", lambda folder: {"Stub": Ear()})
    monkeypatch.setattr(judge, "find_speaker_judges", lambda: [LevelJudge()])
    monkeypatch.setattr(judge, "find_naturalness", lambda: None)


def spoken(model: VoiceboxSpeech, data: Path, **options: Any) -> list[judge.SaidSentence]:
    manifest = Manifest.load(data)
    entries = list(manifest)
    recordings = judge.Prompts(model, manifest)
    return judge.sentences(model, recordings, Cast(entries), entries[:2], drawing=model.drawing, **options)


def test_every_sentence_is_said_like_its_speaker_beside_its_recording(model: VoiceboxSpeech, data: Path) -> None:
    said = spoken(model, data)
    for one, speaker in zip(said, SPEAKERS, strict=True):
        sentence = one.sentence
        assert list(sentence.waves) == [SPOKEN, CEILING, RECORDING]
        assert sentence.speaker == speaker
        assert not np.array_equal(sentence.prompt[:, :RATE], sentence.waves[RECORDING][:, :RATE])
        assert abs(sentence.waves[CEILING].shape[1] - sentence.waves[RECORDING].shape[1]) < model.features.hop
        assert sentence.spent[SPOKEN] > 0
        assert one.evaluations == 4  # two intervals of the midpoint method, as the run says
        assert one.duration_evaluations == 1
        assert one.timing is not None
        foretold, heard = one.timing
        assert foretold.shape == heard.shape
        assert int(heard.sum()) == sentence.waves[RECORDING].shape[1] // model.features.hop


def test_a_voice_of_its_own_is_for_all_and_nobody_is_to_be_known(model: VoiceboxSpeech, data: Path) -> None:
    said = spoken(model, data, voice=str(data / "5.wav"))
    assert [one.sentence.speaker for one in said] == [None, None]
    assert [one.timing for one in said] == [None, None]
    assert said[0].sentence.prompt is said[1].sentence.prompt


def test_seeds_make_the_speech(model: VoiceboxSpeech, data: Path) -> None:
    first, again, other = (spoken(model, data, seed=seed)[1].sentence.waves[SPOKEN] for seed in (0, 0, 7))
    np.testing.assert_array_equal(first, again)
    assert first.shape != other.shape or not np.array_equal(first, other)


def test_a_hole_is_filled_without_a_look_at_what_was_there(model: VoiceboxSpeech, data: Path, tmp_path: Path) -> None:
    manifest = Manifest.load(data)
    options: dict[str, Any] = {"count": 2, "drawing": model.drawing}
    mends, failed = judge.mended_recordings(model, manifest, list(manifest), **options)
    assert len(mends) == 2
    assert failed == []
    mend = mends[0]
    start, stop = round(mend.start * RATE), round(mend.stop * RATE)
    assert stop - start == RATE
    for edge in (np.s_[:, :start], np.s_[:, stop:]):
        np.testing.assert_array_equal(mend.mended[edge], mend.original[edge])
    assert mend.mended[:, start:stop].any()
    # The same recording with other sound in the hole is mended alike.
    (tmp_path / "other").mkdir()
    other = mend.original.copy()
    other[:, start:stop] *= 0.5
    soundfile.write(tmp_path / "other" / "0.wav", other[0], RATE, subtype="FLOAT")
    soundfile.write(tmp_path / "other" / "whole.wav", mend.original[0], RATE, subtype="FLOAT")
    entry = next(iter(manifest))
    pair = [entry.model_copy(update={"path": name}) for name in ("whole.wav", "0.wav")]
    spans = iter([(mend.start, mend.stop)] * 2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judge, "hole_in", lambda *_: next(spans))
        found = [
            judge.mended_recordings(model, Manifest(tmp_path / "other", [one]), [one], count=1, drawing=model.drawing)[
                0
            ][0]
            for one in pair
        ]
    np.testing.assert_array_equal(found[0].mended, found[1].mended)


def test_a_text_that_does_not_fit_costs_its_own_figures_alone(model: VoiceboxSpeech, data: Path) -> None:
    manifest = Manifest.load(data)
    wrong, *others = [
        entry.model_copy(update={"text": "no " * 500}) if entry.path == "0.wav" else entry for entry in manifest
    ]
    mends, failed = judge.mended_recordings(model, manifest, [wrong, *others], count=2, drawing=model.drawing)
    assert [mend.text for mend in mends] == [others[0].text]  # one of two, and no other in the place of the other
    assert len(failed) == 1
    assert "0.wav could not be mended" in failed[0]
    voice = judge.Prompts(model, manifest).voice(wrong)[1]
    assert voice.symbols is None
    timing = judge._timing(model, judge.Prompts(model, manifest).wave(wrong), wrong.text or "", voice, model.drawing, 0)
    assert timing is None


def test_calls_for_durations_are_counted_and_the_first_words_cost_nobody_time(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = load_voicebox(speaking_run(tmp_path / "run", durations={"kind": "flow"}))
    said: list[str] = []
    true = model.forward

    def noted(texts: list[str], **options: Any) -> Any:
        said.extend(texts)
        return true(texts, **options)

    monkeypatch.setattr(model, "forward", noted)
    for steps, calls in ((None, 16), (3, 6)):
        drawing = model.drawing.but(steps=1, duration_steps=steps)
        manifest = Manifest.load(data)
        entries = list(manifest)[:1]
        prompts, cast = judge.Prompts(model, manifest), Cast(manifest)
        (one,) = judge.sentences(model, prompts, cast, entries, drawing=drawing)
        assert (one.evaluations, one.duration_evaluations) == (2, calls)
    assert said == 2 * [FIRST_WORDS, entries[0].text]


def test_the_report_has_all_of_it(run: Path, data: Path, tmp_path: Path) -> None:
    report, folder = judge.evaluate_voicebox(run, data=data, out=tmp_path / "report", limit=4, holes=2)
    assert [way.label for way in report.ways] == [SPOKEN, CEILING, RECORDING]
    assert report.way(RECORDING).matches[0].right.count == 4
    assert report.way(RECORDING).matches[0].speakers == 2
    assert report.evaluations is not None
    assert report.evaluations.mean == 4
    assert report.duration_evaluations is not None
    assert report.duration_evaluations.mean == 1
    assert report.way(SPOKEN).megabytes == pytest.approx(weight_of(run, load_voicebox(run)))
    assert judge.GIVEN in report.notes
    assert report.durations is not None
    assert report.durations.sentences == 4
    assert report.mending is not None
    assert [way.label for way in report.mending.ways] == [MENDED, HOLED, ORIGINAL]
    assert report.way().real_time is not None
    # Four sentences and two mended recordings, three ways each.
    assert (folder / "report.html").read_text().count("<audio") == 18


def test_the_command_judges_and_refuses(
    run: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = Command(capsys)
    words = ("evaluate", run, "--data", data, "-o", "report", "--limit", "2", "--holes", "0")
    report = json.loads(command.done(*words, "--steps", "3", "--method", "euler", "--json"))
    assert report["evaluations"]["mean"] == 3
    assert report["mending"] is None
    for more, said in (
        (("--temperature", "0.5"), "--temperature is for an audiolm or a speartts"),
        (("--kbps", "3"), "--kbps is for a codec"),
        (("--no-opus",), "--opus is for a codec"),
        (("--seconds", "2"), "--seconds is for an audiolm"),
        (("--prompt-seconds", "2"), "--prompt-seconds is for an audiolm"),
        (("--steps", "1", "--method", "runge"), "method"),
    ):
        assert said in command.refused(*words, *more)
    assert "--data" in command.refused("evaluate", run)
