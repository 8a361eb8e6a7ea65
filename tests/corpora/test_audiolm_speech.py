from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import audiolm_speech
import kokoro
import numpy as np
import pytest
from codec_speech import check_held_out
from corpus import CorpusWriter, read_manifest

from madrigal.data.manifest import Manifest

VOICES = [f"kokoro-{name}" for name in ("one", "two", "three", "four")]


def write_part(folder: Path, said: dict[str, list[str]]) -> None:
    """A part with a short clip for every sentence of each speaker."""
    with CorpusWriter(folder, "CC0", synthetic=True) as writer:
        for speaker, texts in said.items():
            for number, text in enumerate(texts):
                writer.add(f"{speaker}/{number:05d}", np.zeros(1600, dtype=np.float32), 16_000, text, speaker)


def spoken(*voices: str) -> dict[str, list[str]]:
    """Voices with sentences of their own; the first of all has one of the last, which is held out."""
    texts = {voice: [f"Sentence {number} of {voice}." for number in range(3)] for voice in voices}
    if VOICES[0] in texts:
        texts[VOICES[0]].append("Sentence 1, of KOKORO four!")
    return texts


@pytest.fixture
def builders(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Parts that are built in an instant; gives the names of those that were."""
    built: list[str] = []

    def building(name: str, said: dict[str, list[str]]) -> Callable[[Path], None]:
        def build(folder: Path) -> None:
            built.append(name)
            write_part(folder, said)

        return build

    parts = {
        "hibari": building("hibari", {"hibari-heart": ["Only hibari says this.", "Sentence 2 of kokoro-three."]}),
        audiolm_speech.TEST: building(audiolm_speech.TEST, spoken(*VOICES[-2:])),
        "kokoro-voices": building("kokoro-voices", spoken(*VOICES[:2])),
    }
    monkeypatch.setattr(audiolm_speech, "part_builders", lambda cache, seed: parts)
    return built


def test_the_last_voices_and_their_sentences_are_held_out(tmp_path: Path, builders: list[str]) -> None:
    audiolm_speech.build(tmp_path / "out", tmp_path / "cache", 0)
    train, test = (Manifest.load(tmp_path / "out" / name) for name in ("train", "test"))
    assert {entry.speaker for entry in test} == set(VOICES[-2:])
    assert {entry.speaker for entry in train} == {"hibari-heart", *VOICES[:2]}
    assert not {entry.text for entry in train} & {entry.text for entry in test}
    # One clip of hibari and one of the first voice said what a held-out voice says.
    assert len(train) == 1 + 3 + 3
    assert len(test) == 3 + 3
    for manifest in (train, test):
        assert all(manifest.resolve(entry).is_file() for entry in manifest)
    assert json.loads((tmp_path / "out" / "test" / "manifest.jsonl").read_text().splitlines()[0])["licence"] == "CC0"


def test_finished_parts_are_used_where_they_lie(tmp_path: Path, builders: list[str]) -> None:
    elsewhere = tmp_path / "codec" / "train"
    write_part(elsewhere / "hibari", {"hibari-heart": ["Built long ago."]})
    (elsewhere / audiolm_speech.TEST).mkdir()  # not finished: it has no manifest
    audiolm_speech.build(tmp_path / "out", tmp_path / "cache", 0, [elsewhere])
    assert builders == [audiolm_speech.TEST, "kokoro-voices"]
    train = Manifest.load(tmp_path / "out" / "train")
    assert train.entries[0].text == "Built long ago."
    assert train.resolve(train.entries[0]).resolve().is_relative_to(elsewhere)
    audiolm_speech.build(tmp_path / "out", tmp_path / "cache", 0, [elsewhere])
    assert builders == [audiolm_speech.TEST, "kokoro-voices"]
    assert read_manifest(tmp_path / "out" / "train" / "manifest.jsonl") == [
        entry.model_dump(exclude_none=True) for entry in train
    ]


def test_a_leak_is_refused() -> None:
    row = {"speaker": "a", "text": "Good morning."}
    with pytest.raises(ValueError, match="good morning"):
        check_held_out([row], [{"speaker": "b", "text": "good morning"}])
    with pytest.raises(ValueError, match="'a'"):
        check_held_out([row], [{"speaker": "a", "text": "Good night."}])
    check_held_out([row], [{"speaker": "b", "text": "Good night."}])


def test_blends_are_pairs_of_training_voices_fixed_by_the_seed(tmp_path: Path) -> None:
    for name in ("af_a", "am_b", "bf_c", "bm_d", "af_e"):
        (tmp_path / f"{name}.bin").touch()
    held_out = set(kokoro.choose_voices(tmp_path, 5, 0)[-2:])
    voices = kokoro.choose_voices(tmp_path, 3, 0)
    blends = kokoro.blend_voices(voices, 3, 0)
    assert blends == kokoro.blend_voices(voices, 3, 0)
    assert len(set(blends)) == 3
    assert not held_out & {name for blend in blends for name in blend.split("+")}
    with pytest.raises(SystemExit, match="3 blends"):
        kokoro.blend_voices(voices, 4, 0)


def test_the_many_are_blends_of_all_voices_but_the_tests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"{group}_{number}" for group in ("af", "am", "bf", "bm", "jf") for number in range(4)]
    for name in names:
        (tmp_path / f"{name}.bin").touch()
    asked: list[dict[str, Any]] = []
    monkeypatch.setattr(kokoro, "voices_folder", lambda cache: tmp_path)
    monkeypatch.setattr(kokoro, "build", lambda out, cache, seed, **options: asked.append({"seed": seed, **options}))
    parts = audiolm_speech.part_builders(tmp_path, 0)
    for number in (1, 2):
        parts[f"kokoro-many-{number}"](tmp_path / "out")
    held_out = kokoro.choose_voices(tmp_path, audiolm_speech.VOICES, 0)[-audiolm_speech.HELD_OUT :]
    assert [made["but"] for made in asked] == [held_out, held_out]
    assert asked[0]["seed"] != asked[1]["seed"]
    assert "jf_0" in kokoro.every_voice_but(tmp_path, held_out)


def test_the_tests_voices_are_those_that_the_training_voices_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        for group in kokoro.GROUPS:
            (tmp_path / f"{group}_{number}.bin").touch()
    spoken: dict[Path, list[str]] = {}
    monkeypatch.setattr(kokoro, "voices_folder", lambda cache: tmp_path)
    monkeypatch.setattr(kokoro, "load_model", lambda cache, seed: None)
    monkeypatch.setattr(kokoro, "chosen_sentences", lambda *given: [])
    monkeypatch.setattr(kokoro, "speaking", lambda model, voice, folder: voice)
    monkeypatch.setattr(
        kokoro, "speak_for", lambda m, t, who, rate, voice, writer: spoken.setdefault(writer.folder, []).append(voice)
    )
    parts = audiolm_speech.part_builders(tmp_path, 0)
    for name in (audiolm_speech.TEST, "kokoro-voices"):
        parts[name](tmp_path / name)
    test, train = (spoken[tmp_path / name] for name in (audiolm_speech.TEST, "kokoro-voices"))
    assert [*train, *test] == kokoro.choose_voices(tmp_path, audiolm_speech.VOICES, 0)
    assert len(test) == audiolm_speech.HELD_OUT


def test_many_voices_take_the_place_of_the_codecs_twelve(tmp_path: Path) -> None:
    parts = audiolm_speech.part_builders(tmp_path, 0)
    assert "kokoro" not in parts
    assert [name for name in parts if name.startswith("kokoro")] == [
        "kokoro-test",
        "kokoro-voices",
        *(f"kokoro-many-{number}" for number in range(1, 4)),
    ]
    assert {"festvox-ru", "asterisk-fr", "asterisk-ru", "hibari", "piper-joe", "flite"} < set(parts)


def test_the_command_line_takes_several_folders_of_parts(
    tmp_path: Path, builders: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_part(tmp_path / "b" / "hibari", {"hibari-heart": ["Somewhere else."]})
    command = ["audiolm_speech.py", "--out", str(tmp_path / "out"), "--parts", str(tmp_path / "a")]
    monkeypatch.setattr(sys, "argv", [*command, "--parts", str(tmp_path / "b")])
    audiolm_speech.main()
    assert builders == [audiolm_speech.TEST, "kokoro-voices"]
    assert "test: 6 clips, 2 speakers" in capsys.readouterr().out
