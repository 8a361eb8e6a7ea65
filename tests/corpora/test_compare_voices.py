"""Voices beside each other: the same sentences, one table."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import soundfile

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import compare_voices
import espeak
from compare_voices import RATE, RECORDING, Voice, compare, distinct, megabytes, synthetic

TEXTS = ["Good morning.", "Good evening.", "Good morning."]


class Loudness:
    """Hears the first text in what is loud, and likes it."""

    told = "Weights of nothing."

    def transcribe(self, wave: np.ndarray, rate: int) -> str:
        return "good morning" if np.abs(wave).max() > 0.3 else "good evening"

    def score(self, wave: np.ndarray, rate: int) -> float:
        return 4.5 if np.abs(wave).max() > 0.3 else 1.5


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    rows = []
    for number, text in enumerate(TEXTS):
        soundfile.write(tmp_path / f"{number}.wav", np.full(8000, 0.5 if "morning" in text else 0.1), 16_000)
        row = {"path": f"{number}.wav", "duration": 0.5, "sample_rate": 16_000, "channels": 1, "text": text}
        rows.append(json.dumps({**row, "speaker": "anna", "synthetic": True}))
    (tmp_path / "manifest.jsonl").write_text("\n".join(rows))
    return tmp_path


def a_voice(level: float, rate: int, size: float) -> Voice:
    return Voice(rate, lambda text: np.full(rate, level, dtype=np.float32), size)


def test_every_voice_says_every_sentence_once(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jiwer")
    monkeypatch.setattr("madrigal.judge.recognisers.find_recognisers", lambda: {"Stub": Loudness()})
    monkeypatch.setattr("madrigal.judge.naturalness.find_naturalness", Loudness)
    voices = {"loud": lambda: a_voice(0.5, 22_050, 3.0), "quiet": lambda: a_voice(0.1, RATE, 40.0)}
    table = compare(voices, corpus, 10, tmp_path / "out")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    assert [row[0] for row in rows[2:]] == ["loud", "quiet", RECORDING]
    assert rows[0][1:3] == ["WER %, Stub", "DistillMOS"]
    assert [row[1].split()[0] for row in rows[2:]] == ["25.0", "25.0", "0.0"]
    assert [row[2].split()[0] for row in rows[2:]] == ["4.50", "1.50", "3.00"]
    assert [row[4] for row in rows[2:]] == ["3.0", "40.0", ""]
    assert rows[4][3] == ""
    report = json.loads((tmp_path / "out/report.json").read_text())
    assert len(report["said"]) == 2  # the third text was said before
    assert any("synthetic speech, by anna" in note for note in report["notes"])
    wave, rate = soundfile.read(tmp_path / "out/loud/000.wav")
    assert (rate, len(wave)) == (RATE, RATE)
    assert (tmp_path / "out/table.md").read_text() == table


def test_a_corpus_without_texts_is_refused(tmp_path: Path) -> None:
    row = {"path": "a.wav", "duration": 0.5, "sample_rate": 16_000, "channels": 1}
    (tmp_path / "manifest.jsonl").write_text(json.dumps(row))
    with pytest.raises(SystemExit, match="has a text"):
        compare({}, tmp_path, 1, tmp_path / "out")


def test_an_unknown_voice_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["compare_voices.py", "--data", str(tmp_path), "--out", str(tmp_path), "--voices", "hibari,siri"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit, match="no voice 'siri'"):
        compare_voices.main()


def test_sizes_count_files_and_not_links(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(bytes(500_000))
    (tmp_path / "link.bin").symlink_to(tmp_path / "model.bin")
    assert megabytes(tmp_path) == pytest.approx(0.5)
    assert megabytes(tmp_path / "model.bin") == pytest.approx(0.5)


def test_only_synthetic_recordings_are_called_so() -> None:
    real = SimpleNamespace(text="a", speaker="b", synthetic=False)
    assert synthetic([real]) == []
    assert distinct([real, SimpleNamespace(text="a"), SimpleNamespace(text="c")])[0] is real


def test_an_espeak_that_does_not_run_is_told_in_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "usr/bin/espeak-ng"
    (tmp_path / "usr/lib/any/espeak-ng-data").mkdir(parents=True)
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'error while loading shared libraries: libpulse.so.0' >&2\nexit 127\n")
    program.chmod(0o755)
    monkeypatch.setattr(espeak, "PACKAGES", ("one",))
    monkeypatch.setattr(espeak, "debian_package", lambda name, cache: tmp_path)
    with pytest.raises(SystemExit, match=r"libpulse\.so\.0\); install it with: apt-get install libpulse0$"):
        espeak.speak("Hello.", tmp_path)
