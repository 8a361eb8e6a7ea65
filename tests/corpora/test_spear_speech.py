"""The corpus of SPEAR-TTS: sets that share recordings, a test that nobody has heard, prompts of three seconds."""

import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
import spear_speech
from corpus import read_manifest
from hibari_heart import Voice
from sentences import normalise

from madrigal.data.manifest import Manifest

ORDER = [f"Sentence number {number} is here." for number in range(300)]
SETS = ("parallel", "speech", "full", "test")


@pytest.fixture(autouse=True)
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """A voice that hums each sentence for 2 to 4 seconds in an instant; gives what it said."""
    said: list[str] = []

    def hum(text: str) -> np.ndarray:
        said.append(text)
        return np.full(1000 * (2 + len(said) % 3), 0.1, dtype=np.float32)

    monkeypatch.setattr(spear_speech, "heart", lambda seed: Voice(1000, hum))
    monkeypatch.setattr(spear_speech, "chosen_sentences", lambda cache, key: list(ORDER))
    return said


def built(out: Path) -> dict[str, Manifest]:
    spear_speech.build(out, out / "cache", seed=0, parallel_minutes=0.5, speech_minutes=2)
    return {name: Manifest.load(out / name) for name in SETS}


def test_the_sets_share_recordings_and_only_speech_has_no_text(tmp_path: Path) -> None:
    sets = built(tmp_path)
    paths = {name: [sets[name].resolve(entry).resolve() for entry in sets[name]] for name in SETS}
    assert paths["full"] == paths["parallel"] + paths["speech"]
    assert all(path.is_file() for name in SETS for path in paths[name])
    assert len(list((tmp_path / "recordings").rglob("*.wav"))) == len(paths["full"])
    assert 30 <= sets["parallel"].seconds < 34
    assert 120 - 4 <= sets["speech"].seconds < 124
    assert all(entry.text is None for entry in sets["speech"])
    assert "text" not in read_manifest(tmp_path / "speech" / "manifest.jsonl")[0]
    for name in ("parallel", "full", "test"):
        assert all(entry.text for entry in sets[name])
    assert all(entry.sample_rate == 16_000 for manifest in sets.values() for entry in manifest)


def test_the_test_and_the_prompts_are_heard_nowhere_else(tmp_path: Path, said: list[str]) -> None:
    sets = built(tmp_path)
    assert [entry.text for entry in sets["test"]] == ORDER[-100:]
    trained = {entry.text for entry in sets["full"]}
    prompts = said[len(sets["full"]) + 100 :]
    assert prompts
    assert not trained & {*ORDER[-100:], *prompts}
    assert not set(prompts) & set(ORDER[-100:])
    row = {"text": "Sentence number 7 is here."}
    with pytest.raises(ValueError, match=normalise(row["text"])):
        spear_speech.check_unheard([row], [{"text": "sentence number 7, is here!"}])


def test_prompts_are_three_seconds_long(tmp_path: Path) -> None:
    built(tmp_path)
    files = sorted((tmp_path / "voices").glob("*.wav"))
    assert len(files) == 3
    assert {(soundfile.info(file).frames, soundfile.info(file).samplerate) for file in files} == {(48_000, 16_000)}


def test_what_was_spoken_is_not_spoken_again(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = built(tmp_path)
    said.clear()
    command = ["spear_speech.py", "--out", str(tmp_path), "--parallel-minutes", "0.5", "--speech-minutes", "2"]
    monkeypatch.setattr(sys, "argv", command)
    spear_speech.main()
    assert len(said) <= 9  # the prompts alone
    assert {name: list(Manifest.load(tmp_path / name)) for name in SETS} == {n: list(m) for n, m in before.items()}
    assert "parallel: 1" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="smaller corpus"):
        spear_speech.build(tmp_path, tmp_path, seed=0, parallel_minutes=0.5, speech_minutes=9)
