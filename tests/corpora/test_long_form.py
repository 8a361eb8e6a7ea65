from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import bodies
import long_form
import numpy as np
import pytest
import soundfile
from corpus import MANIFEST, CorpusWriter, read_manifest

RATE = 16_000


@pytest.fixture
def utterances(tmp_path: Path) -> Path:
    """Eight utterances of a second each, half of them of either speaker: tones of 1000 Hz."""
    tone = 0.5 * np.sin(2 * np.pi * 1000 * np.arange(RATE) / RATE).astype(np.float32)
    with CorpusWriter(tmp_path / "in", "CC0", synthetic=True) as writer:
        for number in range(8):
            speaker = "ab"[number % 2]
            writer.add(f"{speaker}/{number}", tone, RATE, f"Sentence {number}.", speaker)
    return tmp_path / "in" / MANIFEST


def loudest_hertz(path: Path) -> float:
    wave, rate = soundfile.read(path)
    return float(np.abs(np.fft.rfft(wave)).argmax() * rate / len(wave))


def test_utterances_of_one_speaker_are_joined_and_none_is_lost(utterances: Path, tmp_path: Path) -> None:
    long_form.build(utterances, tmp_path / "out", seconds=2, seed=0)
    rows = read_manifest(tmp_path / "out" / MANIFEST)
    assert [row["speaker"] for row in rows] == ["a", "a", "b", "b"]
    said = "".join(row["text"] for row in rows)
    assert all(said.count(f"Sentence {number}.") == 1 for number in range(8))
    assert all(2.2 <= row["duration"] <= 2.4 for row in rows)
    assert all(abs(loudest_hertz(tmp_path / "out" / row["path"]) - 1000) < 2 for row in rows)


def test_a_speed_moves_pitch_and_length_together_and_each_recording_has_its_own(
    utterances: Path, tmp_path: Path
) -> None:
    long_form.build(utterances, tmp_path / "plain", seconds=2, seed=0)
    long_form.build(utterances, tmp_path / "fast", seconds=2, seed=0, speeds=(0.8, 1.25))
    plain, fast = (read_manifest(tmp_path / name / MANIFEST) for name in ("plain", "fast"))
    speeds = [before["duration"] / after["duration"] for before, after in zip(plain, fast, strict=True)]
    assert len({round(speed, 3) for speed in speeds}) == len(speeds)
    for speed, row in zip(speeds, fast, strict=True):
        assert 0.8 <= speed <= 1.25
        assert loudest_hertz(tmp_path / "fast" / row["path"]) == pytest.approx(1000 * speed, rel=0.01)


def test_speakers_of_whom_there_is_little_get_more_copies_and_nobody_more_than_the_most(
    utterances: Path, tmp_path: Path
) -> None:
    rows = read_manifest(utterances)
    few = [row for row in rows if row["speaker"] == "a" or row["path"].endswith(("1.wav", "3.wav"))]
    groups = long_form.grouped(few, 2, 0)
    assert [len(group) for group in long_form.at_most(groups, 2)] == [2, 2]
    options = {"speeds": (0.8, 1.25), "copies": 3, "most_minutes": 4 / 60}
    long_form.build(utterances, tmp_path / "even", 2, 0, **options)
    rows = read_manifest(tmp_path / "even" / MANIFEST)
    assert [row["speaker"] for row in rows] == ["a", "a", "b", "b"]  # four seconds of each are enough
    long_form.build(utterances, tmp_path / "more", 2, 0, **{**options, "most_minutes": 8 / 60})
    rows = read_manifest(tmp_path / "more" / MANIFEST)
    assert [row["speaker"] for row in rows].count("a") == 4
    assert len({round(loudest_hertz(tmp_path / "more" / row["path"])) for row in rows}) == len(rows) == 8


def test_breath_keeps_the_resonances_and_loses_the_pitch() -> None:
    time = np.arange(RATE) / RATE
    voice = sum(np.sin(2 * np.pi * 125 * n * time) / (1 + abs(125 * n - 1000) / 200) for n in range(1, 40))
    voice = np.asarray(0.1 * voice, dtype=np.float32)
    whisper = bodies.breathed(voice, 1.0, "seed")
    assert len(whisper) == len(voice)
    assert np.std(whisper) == pytest.approx(np.std(voice), rel=0.05)
    levels = [np.abs(np.fft.rfft(wave)) for wave in (voice, whisper)]
    # Of a voice all lies in its harmonics, of a breath hardly more there than between them.
    harmonics = np.arange(8, 25) * 125
    between = harmonics + 62
    assert levels[0][harmonics].sum() > 20 * levels[0][between].sum()
    assert levels[1][harmonics].sum() < 3 * levels[1][between].sum()
    bands = [np.array([level[a : a + 250].sum() for a in range(500, 3000, 250)]) for level in levels]
    assert np.corrcoef(*bands)[0, 1] > 0.9
    assert np.array_equal(bodies.breathed(voice, 0.0, "seed"), voice)


def test_a_share_of_the_recordings_is_breathed_and_the_others_are_as_before(utterances: Path, tmp_path: Path) -> None:
    options = {"seconds": 1, "seed": 0, "speeds": (0.8, 1.25)}
    long_form.build(utterances, tmp_path / "voiced", **options)
    long_form.build(utterances, tmp_path / "some", breath=0.5, **options)
    rows = read_manifest(tmp_path / "some" / MANIFEST)
    assert [row["duration"] for row in rows] == [
        row["duration"] for row in read_manifest(tmp_path / "voiced" / MANIFEST)
    ]
    pairs = [[soundfile.read(tmp_path / name / row["path"])[0] for name in ("voiced", "some")] for row in rows]
    assert 0 < sum(np.array_equal(*pair) for pair in pairs) < len(rows)


def test_other_resonances_keep_the_pitch_and_the_loudness() -> None:
    time = np.arange(RATE) / RATE
    voice = sum(np.sin(2 * np.pi * 125 * n * time) / (1 + ((125 * n - 1000) / 400) ** 2) for n in range(1, 40))
    voice = np.asarray(0.1 * voice, dtype=np.float32)
    moved = bodies.reshaped(voice, 1.25)
    assert len(moved) == len(voice)
    assert np.std(moved) == pytest.approx(np.std(voice), rel=0.01)
    levels = [np.abs(np.fft.rfft(wave)) for wave in (voice, moved)]
    harmonics = np.arange(4, 25) * 125
    assert levels[1][harmonics].sum() > 20 * levels[1][harmonics + 62].sum()
    centres = [float((level[harmonics] ** 2 @ harmonics) / (level[harmonics] ** 2).sum()) for level in levels]
    assert 1.1 < centres[1] / centres[0] < 1.3
    assert np.allclose(bodies.reshaped(voice, 1.0)[512:-512], voice[512:-512], atol=1e-3)


def test_each_copy_has_a_body_of_its_own(utterances: Path, tmp_path: Path) -> None:
    options = {"seconds": 2, "seed": 0, "copies": 3, "resonances": (0.8, 1.25)}
    long_form.build(utterances, tmp_path / "out", **options)
    rows = read_manifest(tmp_path / "out" / MANIFEST)
    waves = [soundfile.read(tmp_path / "out" / row["path"])[0] for row in rows]
    assert len(rows) == 12
    assert len({row["duration"] for row in rows if row["path"].startswith("a/00000")}) == 1
    assert not any(np.array_equal(*pair) for pair in pairwise(waves) if len(pair[0]) == len(pair[1]))


def test_bodies_that_cannot_be_are_refused(
    utterances: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [str(utterances), "--out", str(tmp_path / "out"), "--resonances", "1.2", "0.8"]
    monkeypatch.setattr("sys.argv", ["long_form.py", *words])
    with pytest.raises(SystemExit) as ended:
        long_form.main()
    assert ended.value.code == 2
    assert "--resonances are two numbers between 0.5 and 2, the lower first." in capsys.readouterr().err
