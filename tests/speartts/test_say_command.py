"""`madrigal say`, `madrigal pseudo-label` and `madrigal evaluate` of a speaking run: what they write and refuse."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from commanding import Command
from tiny_speech import RATE, TOKEN, speaking_run, voice
from tiny_speech import speech as tiny_speech
from untranscribed import reading_run, speech

import madrigal.speartts_evaluation as judge
from madrigal.cli import main
from madrigal.errors import UserError
from madrigal.judge.speech_page import write_spoken
from madrigal.judge.spoken import Sentence, evaluate_spoken
from madrigal.speaking.speech import PAUSE_SECONDS, Speech
from madrigal.speartts.model import TextToSemantic
from madrigal.speartts.speech import TextToSpeech


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return speaking_run(tmp_path_factory.mktemp("runs") / "speech")


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    monkeypatch.chdir(tmp_path)
    voice(Path("voice.wav"))
    return Command(capsys)


def heard(path: str | Path) -> np.ndarray:
    wave, rate = soundfile.read(path)
    assert rate == RATE
    return np.asarray(wave)


def test_a_text_becomes_a_file(command: Command, run: Path) -> None:
    say = ("say", "Hello.", "--run", run, "--voice", "voice.wav", "--seed", "1")
    assert command.done(*say, "-o", "one.wav") == "one.wav\n"
    assert len(heard("one.wav")) % 640 == 0
    command.done(*say, "-o", "new/two.wav")
    assert np.array_equal(heard("one.wav"), heard("new/two.wav"))
    command.done(
        "say", "Hello.", "--run", run, "--voice", "voice.wav", "--seed", "1", "--temperature", "0", "-o", "3.wav"
    )
    assert not np.array_equal(heard("one.wav"), heard("3.wav"))


def test_what_was_said_as_json(command: Command, run: Path) -> None:
    Path("text.txt").write_text("It is 5. Hello 日本.", encoding="utf-8")
    status, out, err = command(
        "say", "--file", "text.txt", "--run", run, "--voice", "voice.wav", "-o", "o.wav", "--json"
    )
    assert status == 0
    said = json.loads(out)
    assert said["pieces"] == ["It is five.", "Hello."]
    assert said["unknown"] == ["日", "本"]
    assert said["seconds"] == pytest.approx(len(heard("o.wav")) / RATE)
    assert err.startswith("Left out, because they cannot be said here: '日', '本'.")


def test_a_stream_is_as_long_as_the_whole(command: Command, run: Path) -> None:
    say = ("say", "It is early. Hello.", "--run", run, "--voice", "voice.wav")
    command.done(*say, "-o", "whole.wav")
    command.done(*say, "-o", "stream.wav", "--stream")
    assert heard("whole.wav").shape == heard("stream.wav").shape


def test_sound_goes_into_a_pipe(run: Path, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    prompt = voice(tmp_path / "voice.wav")
    main(["say", "Hello.", "--run", str(run), "--voice", str(prompt), "-o", "-"])
    samples = np.frombuffer(capfdbinary.readouterr().out, "<i2")
    main(["say", "Hello.", "--run", str(run), "--voice", str(prompt), "-o", str(tmp_path / "o.wav"), "--stream"])
    assert len(samples) == len(heard(tmp_path / "o.wav"))


SAID = {
    "five thousand characters": "One more line, and it is the last. " * 143,
    "only digits": "1234567890",
    "emoji": "😀😀",
    "mixed scripts": "Hello, мир, 世界, مرحبا!",
    "an accent": "Café.",
    "one letter": "a",
}


PIECES = {"five thousand characters": 143}
"""Of all others there is one."""


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that speaks until it is stopped."""
    run = speaking_run(tmp_path_factory.mktemp("runs") / "endless")
    speaker = TextToSemantic.from_pretrained(run / "speak")
    with torch.no_grad():
        speaker.tables["speech"].weight[-1] = 0
        speaker.tables["speech"].weight[:-1] *= 10
    speaker.save_pretrained(run / "speak")
    return run


@pytest.mark.parametrize("what", SAID)
def test_all_of_any_text_is_said(command: Command, endless: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Three tokens a piece: long pieces of an untrained model are not worth waiting for.
    monkeypatch.setattr("madrigal.speartts.speech.SLOWEST", 1e9)
    monkeypatch.setattr("madrigal.speartts.speech.GRACE_SECONDS", 3 * TOKEN / RATE)
    words = ("say", SAID[what], "--run", endless, "--voice", "voice.wav", "-o", "o.wav", "--temperature", "0", "--json")
    status, out, err = command(*words)
    assert status == 0, err
    pieces = json.loads(out)["pieces"]
    assert len(pieces) == PIECES.get(what, 1)
    wave = heard("o.wav")
    assert len(wave) == len(pieces) * 3 * TOKEN + (len(pieces) - 1) * round(PAUSE_SECONDS * RATE)
    assert np.isfinite(wave).all()


def test_a_model_that_says_nothing_is_told_in_one_sentence(
    command: Command, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TextToSpeech, "say", lambda self, *_, **__: Speech(torch.zeros(0), RATE, [], []))
    assert "The model ended before it said anything" in command.refused("say", "Hello.", "--run", run, "-o", "o.wav")
    assert not Path("o.wav").exists()


def test_a_file_that_is_replaced_stays_until_the_new_one_is_whole(
    command: Command, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    say = ("say", "Hello.", "--run", run, "-o", "o.wav", "--stream", "--overwrite")
    command.done(*say)
    first, made = Path("o.wav").read_bytes(), TextToSpeech.stream

    def breaks(self: TextToSpeech, *words: Any, **options: Any) -> Any:
        yield next(made(self, *words, **options))
        assert Path("o.wav").read_bytes() == first
        raise UserError("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(TextToSpeech, "stream", breaks)
        command.refused(*say, "--seed", "1")
    assert Path("o.wav").read_bytes() == first
    command.done(*say, "--seed", "1")
    assert Path("o.wav").read_bytes() != first
    assert sorted(path.name for path in Path().glob("*.wav")) == ["o.wav", "voice.wav"]


def test_a_prompt_of_any_kind_or_none(command: Command, run: Path) -> None:
    voice(Path("telephone.wav"), rate=8000, channels=2)
    for number, words in enumerate([("--voice", "telephone.wav"), ()]):
        command.done("say", "Hello.", "--run", run, *words, "-o", f"{number}.wav")
        assert len(heard(f"{number}.wav")) > 0


def test_a_prompt_is_never_written_over(command: Command, run: Path) -> None:
    before = Path("voice.wav").read_bytes()
    sentence = command.refused("say", "Hi.", "--run", run, "--voice", "voice.wav", "-o", "./voice.wav", "--overwrite")
    assert "voice.wav is the voice to speak like, and would be lost" in sentence
    assert Path("voice.wav").read_bytes() == before


def test_mistakes_are_one_sentence(command: Command, run: Path) -> None:
    assert "Give a text to say" in command.refused("say", "--run", run)
    assert "A text and --file both" in command.refused("say", "Hello.", "--file", "x.txt", "--run", run)
    assert "There is no run nowhere" in command.refused("say", "Hello.", "--run", "nowhere")
    for text in ("", "  ", "…", "日本語"):
        assert "There is nothing to say" in command.refused("say", text, "--run", run)
    assert "There is no file no.wav to take a voice from" in command.refused(
        "say", "Hello.", "--run", run, "--voice", "no.wav"
    )
    assert "--voice names no file" in command.refused("say", "Hello.", "--run", run, "--voice", "")
    assert "is a folder" in command.refused("say", "Hello.", "--run", run, "--voice", run)
    Path("text.wav").write_text("no sound")
    assert "its content is not audio" in command.refused("say", "Hello.", "--run", run, "--voice", "text.wav")
    soundfile.write("short.wav", np.zeros(9), RATE)
    assert "shorter than 0.04 seconds" in command.refused("say", "Hello.", "--run", run, "--voice", "short.wav")
    assert "is there already" in command.refused("say", "Hello.", "--run", run, "-o", "voice.wav")
    for stream in ((), ("--stream",)):
        assert "could not be written" in command.refused("say", "Hello.", "--run", run, "-o", "out.xyz", *stream)
        assert not Path("out.xyz").exists()
    Path("latin.txt").write_bytes(b"caf\xe9")
    assert "is no text in UTF-8" in command.refused("say", "--file", "latin.txt", "--run", run)
    assert "nowhere.txt cannot be read" in command.refused("say", "--file", "nowhere.txt", "--run", run)
    assert "write one number" in command.refused("say", "Hello.", "--run", run, "--temperature", "warm")


def test_labels_from_the_command(command: Command, tmp_path: Path) -> None:
    reader = reading_run(tmp_path / "reader")
    speech(tmp_path / "speech", 4).write(tmp_path / "speech/manifest.jsonl")
    words = ("pseudo-label", reader, "speech", "-o", "labels", "--threshold", "0", "--beam", "1", "--workers", "1")
    done = json.loads(command.done(*words, "--limit", "3", "--json"))
    assert done["recordings"] == 3
    assert 0 < done["passed"] <= 3
    assert "another set of recordings" in command.refused(*words)
    assert "of 4 readings passed" in command.done(*words, "--overwrite")
    assert "There is no run nowhere" in command.refused("pseudo-label", "nowhere", "speech", "-o", "x")


class Listener:
    """Hears the same in every sound."""

    def transcribe(self, wave: Any, rate: int) -> str:
        return "hello"


DRAWN = (("0",), ("1", "--top-k", "1"), ("1", "--top-p", "1e-5"))
"""Three ways to take the likeliest."""


def test_a_run_is_judged_beside_its_ceiling(
    command: Command, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "test").mkdir()
    for number, text in enumerate(["Hello.", "Hello there."]):
        voice(tmp_path / f"test/{number}.wav", pitch=120.0 + 40 * number)
        (tmp_path / f"test/{number}.txt").write_text(text)
    voice(tmp_path / "test/2.wav", pitch=200.0)
    (tmp_path / "test/2.txt").write_text("日本", encoding="utf-8")
    monkeypatch.setattr(judge, "find_recognisers", lambda folder: {"Stub": Listener()})
    monkeypatch.setattr(judge, "find_speaker_judges", list)
    monkeypatch.setattr(judge, "find_naturalness", lambda: None)
    words = ("evaluate", run, "--data", "test", "--voice", "voice.wav", "-o", "report")
    report = json.loads(command.done(*words, "--json"))
    assert [way["label"] for way in report["ways"]] == ["Spoken", "Ceiling", "Recording"]
    assert [said["name"] for said in report["said"]] == ["0", "1"]
    assert "1 of 3 texts cannot be said at all and were left out:" in report["notes"][1]
    assert "2.wav ('日本')." in report["notes"][1]
    rates = [way["errors"][0]["characters"]["mean"] for way in report["ways"]]
    assert rates == [pytest.approx(6 / 16)] * 3
    recording, ceiling = (way["seconds"] for way in report["ways"][:0:-1])
    assert ceiling == pytest.approx(recording, abs=0.1)
    without = json.loads(command.done(*words, "--json", "--no-ceiling"))
    assert without["ways"] == [report["ways"][0], report["ways"][2]]
    assert "Errors" in command.done(*words)
    assert "<audio" in Path("report/report.html").read_text()
    drawn = [json.loads(command.done(*words, "--json", "--temperature", *how)) for how in DRAWN]
    assert drawn[1]["notes"][0] == (
        "Drawn with seeds from 0 on: semantic with temperature 1, top_k 1; coarse with temperature 1, top_k 1; "
        "fine with temperature 1, top_k 1."
    )
    assert "semantic with temperature 1, top_p 1e-05;" in drawn[2]["notes"][0]
    assert drawn[0]["ways"] == drawn[1]["ways"] == drawn[2]["ways"] != report["ways"]
    (tmp_path / "none").mkdir()
    for kind in ("wav", "txt"):
        (tmp_path / f"none/2.{kind}").write_bytes((tmp_path / f"test/2.{kind}").read_bytes())
    assert "The model cannot say any text of none" in command.refused("evaluate", run, "--data", "none", "-o", "report")
    assert "Name recordings with texts" in command.refused("evaluate", run)
    assert "There is no file no.wav" in command.refused("evaluate", run, "--data", "test", "--voice", "no.wav")


def test_recordings_of_one_name_are_told_apart(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a/0.wav", "b/0.wav", "b/c/0.wav")]
    assert judge.names_of(files) == ["a/0", "b/0", "b/c/0"]
    assert judge.names_of(files[1:2]) == ["0"]
    assert judge.names_of([tmp_path / "0.wav", tmp_path / "0.flac"]) == ["0.wav", "0.flac"]

    class Counting:
        heard = 0

        def transcribe(self, wave: Any, rate: int) -> str:
            self.heard += 1
            return f"HEARD-{self.heard}"

    wave = 0.1 * np.random.default_rng(0).standard_normal((1, 8000)).astype("float32")
    items = [Sentence(name="0", text=text, rate=RATE, waves={"Spoken": wave}) for text in ("one", "two")]
    report = evaluate_spoken(items, recognisers={"Stub": Counting()}, examples=2)
    page = write_spoken(report, tmp_path)["page"].read_text()
    for number in (1, 2):
        assert page.count(f"HEARD-{number}") == 1


def test_the_ceiling_of_a_voice_without_repeats_has_none(tmp_path: Path) -> None:
    voice(tmp_path / "long.wav", seconds=1.0)
    plain, unique = (judge._tokens(tiny_speech(unique=each), tmp_path / "long.wav") for each in (False, True))
    assert len(unique) < len(plain)
    assert unique.tolist() == [token for token, _ in itertools.groupby(plain.tolist())]
