"""Editing, filling and denoising: what is outside stays, what is inside is made from what is around it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from commanding import Command
from voicebox_speaking import HOP, RATE, hum, speaking_run, speech

from madrigal.errors import UserError
from madrigal.voicebox.drawing import Drawing
from madrigal.voicebox.editing import REACH, Editor
from madrigal.voicebox.expand import expand
from madrigal.voicebox.hidden_words import in_their_holes
from madrigal.voicebox.mending import Sound
from madrigal.voicebox.speech import VoiceboxSpeech

TEXT = "one two three"


@pytest.fixture(scope="module")
def model() -> VoiceboxSpeech:
    return speech()


@pytest.fixture
def editor(model: VoiceboxSpeech) -> Editor:
    return Editor(model, drawing=Drawing(steps=1))


@pytest.mark.parametrize(("rate", "channels"), [(24000, 1), (16000, 2), (44100, 1), (48000, 2), (8000, 1)])
def test_filling_touches_the_span_alone(editor: Editor, tmp_path: Path, rate: int, channels: int) -> None:
    sound = Sound.read(hum(tmp_path / "in.wav", rate=rate, channels=channels))
    done = editor.fill(sound, [(0.7, 1.1)])
    assert (done.sound.rate, done.sound.data.shape) == (rate, sound.data.shape)
    changed = np.flatnonzero((done.sound.data != sound.data).any(1))
    assert 0.7 * rate <= changed[0] < 0.71 * rate
    assert 1.09 * rate < changed[-1] < 1.1 * rate
    assert done.old == done.new == [(0.7, 1.1)]


def test_several_holes_and_a_seed(model: VoiceboxSpeech, tmp_path: Path) -> None:
    sound = Sound.read(hum(tmp_path / "in.wav"))
    spans = [(0.2, 0.4), (1.0, 1.3)]
    one, same, other = (
        Editor(model, seed=seed, drawing=Drawing(steps=1)).fill(sound, spans).sound for seed in (0, 0, 1)
    )
    assert np.array_equal(one.data, same.data)
    assert not np.array_equal(one.data, other.data)
    rest = np.ones(len(sound.data), dtype=bool)
    for start, stop in spans:
        rest[round(start * RATE) : round(stop * RATE)] = False
        assert not np.array_equal(one.data[~rest], sound.data[~rest])
    assert np.array_equal(one.data[rest], sound.data[rest])


def test_what_is_filled_in_depends_on_what_is_around_and_not_on_what_was_there(editor: Editor, tmp_path: Path) -> None:
    sound = Sound.read(hum(tmp_path / "in.wav"))
    inside, outside = sound.data.copy(), sound.data.copy()
    inside[round(0.75 * RATE) : round(1.05 * RATE)] = 0
    outside[: round(0.3 * RATE)] = 0
    whole, holed, changed = (
        editor.fill(Sound(data, RATE, sound.subtype), [(0.7, 1.1)]).sound.data[round(0.72 * RATE) : round(1.08 * RATE)]
        for data in (sound.data, inside, outside)
    )
    assert np.array_equal(whole, holed)
    assert not np.array_equal(whole, changed)


def test_a_text_changes_what_is_filled_in(editor: Editor, tmp_path: Path) -> None:
    sound = Sound.read(hum(tmp_path / "in.wav"))
    untold, told = (editor.fill(sound, [(0.7, 1.1)], text).sound.data for text in (None, TEXT))
    assert not np.array_equal(untold, told)
    assert np.array_equal(told[: round(0.7 * RATE)], sound.data[: round(0.7 * RATE)])


def test_new_words_take_the_time_that_they_need(editor: Editor, model: VoiceboxSpeech, tmp_path: Path) -> None:
    sound = Sound.read(hum(tmp_path / "in.wav"))
    done = editor.replace(sound, TEXT, "two", "seventeen hundred")
    assert done.text == "one seventeen hundred three"
    (start, stop), (new_start, new_stop) = done.old[0], done.new[0]
    symbols, durations, _ = model.aligner.align_text(sound.mono(RATE)[: 187 * HOP], TEXT)
    word = model.aligner.symbols.words(symbols.tolist())[1]
    ends = durations.cumsum(0)
    assert start == pytest.approx(int(ends[word.start - 1]) * HOP / RATE)
    assert stop == pytest.approx(int(ends[word.stop - 1]) * HOP / RATE)
    assert new_start == start
    first, last = round(start * RATE), round(stop * RATE)
    assert len(done.sound.data) - len(sound.data) == round((new_stop - stop) * RATE)
    assert np.array_equal(done.sound.data[:first], sound.data[:first])
    assert np.array_equal(done.sound.data[round(new_stop * RATE) :], sound.data[last:])
    assert not np.array_equal(done.sound.data[first : first + 2000], sound.data[first : first + 2000])


@pytest.mark.parametrize(("old", "new"), [("one", "four"), ("three", "nine"), ("two three", ""), (TEXT, "all else")])
def test_words_at_the_ends_and_words_that_go(editor: Editor, tmp_path: Path, old: str, new: str) -> None:
    sound = Sound.read(hum(tmp_path / "in.wav", rate=22050, channels=2))
    done = editor.replace(sound, TEXT, old, new)
    first, last = round(done.old[0][0] * 22050), round(done.old[0][1] * 22050)
    assert np.array_equal(done.sound.data[:first], sound.data[:first])
    assert np.array_equal(done.sound.data[round(done.new[0][1] * 22050) :], sound.data[last:])
    assert np.isfinite(done.sound.data).all()


def test_edits_that_cannot_be_made_are_refused(editor: Editor, tmp_path: Path) -> None:
    sound = Sound.read(hum(tmp_path / "in.wav"))
    with pytest.raises(UserError, match="'four' are not said"):
        editor.replace(sound, TEXT, "four", "five")
    with pytest.raises(UserError, match="nothing to change"):
        editor.replace(sound, TEXT, "two", "Two")
    with pytest.raises(UserError, match="shorter than half a second"):
        editor.replace(Sound.read(hum(tmp_path / "short.wav", seconds=0.3)), TEXT, "two", "four")
    with pytest.raises(UserError, match="beyond the end"):
        editor.fill(sound, [(1.5, 2.5)])
    with pytest.raises(UserError, match="180 at most"):
        editor.replace(Sound(np.zeros((8000 * 181, 1)), 8000, "DOUBLE"), TEXT, "two", "four")


def test_words_of_a_hole_are_those_that_the_rest_does_not_need(
    model: VoiceboxSpeech, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With an aligner that hears everything but the hole, the words in it are found, and what is heard stays."""
    symbols = torch.tensor(model.aligner.symbols.encode(TEXT))
    durations = torch.randint(4, 12, (len(symbols),), generator=torch.Generator().manual_seed(0))
    truth = expand(torch.arange(len(symbols))[None], durations[None])[0]
    frames = len(truth)
    hole = (frames // 3, 2 * frames // 3)

    def hears(mels: Any, given: Any, **sizes: Any) -> torch.Tensor:
        scores = torch.full((1, frames, len(symbols)), -10.0)
        scores[0, torch.arange(frames), truth] = -0.1
        scores[0, hole[0] : hole[1]] = -10.0  # there it hears something else
        scores[0, hole[0] : hole[1], 0] = 0.0
        return scores

    monkeypatch.setattr(model.aligner, "forward", hears)
    found, lasting = in_their_holes(model, torch.randn(frames * HOP), TEXT, [hole])
    assert torch.equal(found, symbols)
    assert int(lasting.sum()) == frames
    assert int(lasting.min()) >= 1
    ids = expand(torch.arange(len(symbols))[None], lasting[None])[0]
    assert torch.equal(ids[: hole[0]], truth[: hole[0]])
    assert torch.equal(ids[hole[1] :], truth[hole[1] :])


def test_frames_that_hear_into_the_hole_are_made_anew(model: VoiceboxSpeech) -> None:
    """As far as a window reaches, a frame beside the hole changes with what is in the hole."""
    wave = torch.randn(1, 60 * HOP, generator=torch.Generator().manual_seed(0))
    other = wave.clone()
    other[:, 30 * HOP : 40 * HOP] = 0
    one, two = model.features.encode(wave), model.features.encode(other)
    changed = (one != two).any(-1)[0].nonzero()[:, 0]
    assert int(changed[0]) >= 30 - REACH
    assert int(changed[-1]) < 40 + REACH


def test_a_soft_recording_is_heard_as_loud_as_others_and_stays_soft(
    model: VoiceboxSpeech, editor: Editor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.voice(hum(tmp_path / "hum.wav"), text="A hum.").save(tmp_path / "v.safetensors")
    monkeypatch.setattr(model, "voices", {"v": tmp_path / "v.safetensors"})
    monkeypatch.setattr(model, "_levels", None)
    loud = Sound(soundfile.read(tmp_path / "hum.wav", always_2d=True)[0], RATE, "DOUBLE")
    soft = Sound(loud.data / 20, RATE, "DOUBLE")
    near = Sound(loud.data / 1.5, RATE, "DOUBLE")
    assert editor._heard(loud).gain == editor._heard(near).gain == 1.0
    assert editor._heard(soft).gain == pytest.approx(20, rel=0.05)
    one, other = (editor.fill(each, [(0.7, 1.1)]).sound.data for each in (loud, soft))
    inside = slice(round(0.72 * RATE), round(1.08 * RATE))
    assert np.abs(20 * other[inside] - one[inside]).max() < 0.1 * np.abs(one[inside]).max()
    voices = [model.voice(each.wave(), RATE).features for each in (loud, soft)]
    torch.testing.assert_close(*voices, atol=0.05, rtol=0.05)


# The commands.


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return speaking_run(tmp_path_factory.mktemp("runs") / "voicebox")


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    monkeypatch.chdir(tmp_path)
    hum(Path("in.wav"), rate=16000)
    return Command(capsys)


def heard(path: str) -> np.ndarray:
    return np.asarray(soundfile.read(path, dtype="int16")[0])


def test_words_are_replaced_from_the_command(command: Command, run: Path) -> None:
    edit = ("edit", "in.wav", "--replace", "two", "four", "--run", run)
    told = json.loads(command.done(*edit, "--text", TEXT, "-o", "out.wav", "--json"))
    assert told["text"] == "one four three"
    assert told["sample_rate"] == 16000
    first = round(told["old"][0][0] * 16000)
    assert np.array_equal(heard("out.wav")[:first], heard("in.wav")[:first])
    Path("in.txt").write_text(TEXT)
    assert command.done(*edit, "-o", "beside.wav") == "beside.wav\n"
    assert np.array_equal(heard("out.wav"), heard("beside.wav"))


def test_words_that_nobody_wrote_down_are_heard(command: Command, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Listener:
        def transcribe(self, wave: Any, rate: int) -> str:
            return f" {TEXT} "

    edit = ("edit", "in.wav", "--replace", "two", "four", "--run", run, "-o", "out.wav")
    monkeypatch.setattr("madrigal.judge.recognisers.find_recognisers", dict)
    assert "give its text with --text, or in in.txt" in command.refused(*edit)
    monkeypatch.setattr("madrigal.judge.recognisers.find_recognisers", lambda: {"Stub": Listener()})
    assert json.loads(command.done(*edit, "--json"))["text"] == "one four three"


def test_a_hole_is_filled_from_the_command(command: Command, run: Path) -> None:
    told = json.loads(
        command.done("edit", "in.wav", "--fill", "0.5-0.8,1.2-1.4", "--run", run, "-o", "out.wav", "--json")
    )
    assert told["old"] == [[0.5, 0.8], [1.2, 1.4]]
    one, other = heard("in.wav"), heard("out.wav")
    changed = np.flatnonzero(one != other) / 16000
    assert ((changed >= 0.5) & (changed < 0.8) | (changed >= 1.2) & (changed < 1.4)).all()
    assert len(changed) > 1000


def test_bursts_are_taken_out(command: Command, run: Path) -> None:
    wave = soundfile.read("in.wav")[0]
    wave[12000:15000] += 0.3 * np.random.default_rng(3).standard_normal(3000)
    soundfile.write("noisy.wav", wave, 16000)
    told = json.loads(command.done("denoise", "noisy.wav", "--run", run, "-o", "out.wav", "--json"))
    ((start, stop),) = told["old"]
    assert start == pytest.approx(0.75, abs=0.06)
    assert stop == pytest.approx(0.9375, abs=0.06)
    one, other = heard("noisy.wav"), heard("out.wav")
    changed = np.flatnonzero(one != other) / 16000
    assert changed[0] >= start - 1e-3
    assert changed[-1] <= stop + 1e-3
    command.done("denoise", "in.wav", "--run", run, "-o", "clean.wav")  # nothing to do
    assert np.array_equal(heard("clean.wav"), heard("in.wav"))
    command.done("denoise", "in.wav", "--spans", "0.2-0.4", "--run", run, "-o", "told.wav")
    assert not np.array_equal(heard("told.wav"), heard("in.wav"))


def test_mistakes_are_one_sentence(command: Command, run: Path) -> None:
    edit = ("edit", "in.wav", "--run", run, "-o", "o.wav")
    assert "Say what to do" in command.refused(*edit)
    assert "Say what to do" in command.refused(*edit, "--fill", "1-2", "--replace", "a", "b")
    assert "--fill is 'soon'" in command.refused(*edit, "--fill", "soon")
    assert "--spans is '2-1'" in command.refused("denoise", "in.wav", "--run", run, "-o", "o.wav", "--spans", "2-1")
    assert "is there already" in command.refused("edit", "in.wav", "--fill", "1-2", "--run", run, "-o", "in.wav")
    assert "no such file" in command.refused("edit", "no.wav", "--fill", "1-2", "--run", run, "-o", "o.wav")
    assert "is no run of a voicebox" in command.refused("edit", "in.wav", "--fill", "1-2", "--run", "x", "-o", "o.wav")
    assert "The solver" in command.refused(*edit, "--fill", "1-2", "--method", "fast")
    assert "goes into a file" in command.refused("edit", "in.wav", "--fill", "1-2", "--run", run, "-o", "-")
    assert not Path("o.wav").exists()


def test_a_text_is_said_from_the_command(command: Command, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    say = ("say", "Hello there.", "--run", run, "--voice", "in.wav", "--voice-text", "A hum.")
    told = json.loads(command.done(*say, "--seconds", "1.5", "-o", "out.wav", "--json"))
    assert told["seconds"] == pytest.approx(1.5, abs=HOP / RATE)
    assert told["first_sound_seconds"] > 0
    assert soundfile.info("out.wav").samplerate == RATE
    command.done(*say, "--seconds", "1.5", "-o", "stream.wav", "--stream")
    assert np.abs(heard("stream.wav").astype(int) - heard("out.wav").astype(int)).max() <= 5
    exported = command.done("export", run, "voice").strip()
    command.done("say", "Hello there.", "--run", exported, "--rate", "2", "--steps", "1", "-o", "fast.wav")
    assert "--temperature is for speartts" in command.refused(*say, "--temperature", "1", "-o", "x.wav")
    assert "its voices are" not in command.refused("say", "Hello.", "--run", run, "--voice", "nobody", "-o", "x.wav")
    assert "speaks alone" in command.refused(*say, "--run", run, "-o", "x.wav")
    monkeypatch.setattr("madrigal.voicebox.loading.SHIPPED", Path("nowhere"))
    assert "name the run that speaks with --run" in command.refused("say", "Hello.", "-o", "x.wav")
