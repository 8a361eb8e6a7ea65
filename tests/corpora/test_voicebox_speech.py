"""The corpus of Voicebox: many voices, sentences of the test that nobody says, and voices that are spoken once."""

import sys
from pathlib import Path

import hibari_heart
import numpy as np
import pytest
import voicebox_speech
from hibari_heart import Voice
from sentences import normalise

from madrigal.data.manifest import Manifest

ORDER = [f"Sentence number {number} is here." for number in range(400)]
NAMES = ["af_one", "am_two", "bf_three", "bm_four", "af_five"]
SETS = ("train", "valid", "test", "test-voices")


@pytest.fixture(autouse=True)
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Voices that hum each sentence for half a second in an instant; gives who said what."""
    said: list[str] = []

    def speaking(name: str) -> voicebox_speech.Speak:
        def hum(text: str) -> np.ndarray:
            said.append(f"{name}: {text}")
            return np.full(12_000, 0.1, dtype=np.float32)

        return hum

    def sentences(cache: Path, key: str, without: set[str] | None = None) -> list[str]:
        return [text for text in ORDER if normalise(text) not in (without or ())]

    monkeypatch.setattr(hibari_heart, "heart", lambda seed: Voice(24_000, speaking("heart")))
    monkeypatch.setattr(voicebox_speech, "chosen_sentences", sentences)
    monkeypatch.setattr(voicebox_speech, "kokoro_voices", lambda cache, count, seed: NAMES[:count])
    monkeypatch.setattr(voicebox_speech, "kokoro_speak", lambda name, cache, seed: speaking(name))
    return said


def built(out: Path) -> dict[str, Manifest]:
    voicebox_speech.build(out, out / "cache", seed=0, hours=1 / 60, voices=5, minutes=0.5)
    return {name: Manifest.load(out / name) for name in SETS}


def test_every_voice_has_its_minutes_text_and_place(tmp_path: Path) -> None:
    sets = built(tmp_path)
    seconds: dict[str, float] = {}
    for entry in [*sets["train"], *sets["valid"]]:
        assert entry.text
        assert entry.speaker is not None
        seconds[entry.speaker] = seconds.get(entry.speaker, 0.0) + entry.duration
    speakers = ["hibari-heart", *(f"kokoro-{name}" for name in NAMES)]
    assert sorted(seconds) == sorted(speakers)
    assert seconds["hibari-heart"] > 55
    for manifest in sets.values():
        for entry in manifest:
            assert entry.sample_rate == 24_000
            assert manifest.resolve(entry).is_file()
    assert {entry.speaker for entry in sets["valid"]} == set(speakers)


def test_the_tests_sentences_are_said_in_no_other_set(tmp_path: Path) -> None:
    sets = built(tmp_path)
    assert [entry.text for entry in sets["test"]] == [*ORDER[-100:], *[None] * 80]
    assert {entry.speaker for entry in sets["test"] if entry.text} == {"hibari-heart"}
    assert len({entry.speaker for entry in sets["test"]}) == 5
    counts: dict[str | None, list[str | None]] = {}
    for entry in sets["test-voices"]:
        counts.setdefault(entry.speaker, []).append(entry.text)
    assert list(counts) == ["hibari-heart", *(f"kokoro-{name}" for name in NAMES[:4])]
    assert all(texts == ORDER[-100:-80] for texts in counts.values())
    heard = {entry.text for entry in [*sets["train"], *sets["valid"]]}
    assert not heard & set(ORDER[-100:])
    assert not {entry.text for entry in sets["train"]} & {entry.text for entry in sets["valid"]}


def test_what_was_spoken_is_not_spoken_again(
    tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = built(tmp_path)
    (tmp_path / "recordings/kokoro-bm_four/manifest.jsonl").unlink()  # as if it had been interrupted there
    said.clear()
    command = ["voicebox_speech.py", "--out", str(tmp_path), "--hours", "0.0166", "--voices", "5", "--minutes", "0.5"]
    monkeypatch.setattr(sys, "argv", command)
    voicebox_speech.main()
    assert {line.partition(":")[0] for line in said} == {"bm_four"}
    assert {name: list(Manifest.load(tmp_path / name)) for name in SETS} == {n: list(m) for n, m in before.items()}
    assert "6 speakers" in capsys.readouterr().out
