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
from small_codecs import small_codec
from voicebox_speaking import HOP, RATE, hum, speaking_run, speech

from madrigal.errors import UserError
from madrigal.voicebox.codec_features import CodecFeatures
from madrigal.voicebox.drawing import Drawing
from madrigal.voicebox.editing import Editor
from madrigal.voicebox.expand import expand
from madrigal.voicebox.hidden_words import in_their_holes
from madrigal.voicebox.mending import Sound
from madrigal.voicebox.reach import HEARD, PROBED, reach_of
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


@pytest.mark.parametrize("span", [(0.7, 1.1), (0.0, 0.4), (1.6, 2.0)])
def test_with_a_text_too_nobody_hears_what_was_in_the_hole(tmp_path: Path, span: tuple[float, float]) -> None:
    """The aligner hears neighbours, as far as its convolutions and slopes reach; a burst must not draw words to it."""
    editor = Editor(speech(aligner={"depth": 2}), drawing=Drawing(steps=1))
    sound = Sound.read(hum(tmp_path / "in.wav"))
    drowned, silent = sound.data.copy(), sound.data.copy()
    place = slice(round(span[0] * RATE), round(span[1] * RATE))
    drowned[place] += np.random.default_rng(0).integers(-20000, 20000, drowned[place].shape, dtype=np.int16)
    silent[place] = 0
    inside = slice(place.start + 200, place.stop - 200)
    whole, noisy, empty = (
        editor.fill(Sound(data, RATE, sound.subtype), [span], TEXT).sound.data[inside]
        for data in (sound.data, drowned, silent)
    )
    assert np.array_equal(whole, noisy)
    assert np.array_equal(whole, empty)


def test_a_hole_is_as_if_the_sound_beside_it_went_on(model: VoiceboxSpeech, monkeypatch: pytest.MonkeyPatch) -> None:
    """Silence in the hole would draw the silence of the text to its edges."""
    seen: list[torch.Tensor] = []
    forward = model.aligner.forward

    def noted(mels: Any, *rest: Any, **sizes: Any) -> Any:
        seen.append(mels[0])
        return forward(mels, *rest, **sizes)

    monkeypatch.setattr(model.aligner, "forward", noted)
    wave = torch.randn(100 * HOP, generator=torch.Generator().manual_seed(0))
    in_their_holes(model, wave, TEXT, [(0, 10), (40, 51), (90, 100)])
    mels = model.aligner.mels(wave[None])[0]
    for first, last, source in ((0, 10, 10), (40, 45, 39), (45, 51, 51), (90, 100, 89)):
        assert torch.equal(seen[0][first:last], mels[source].expand(last - first, -1))
    assert torch.equal(seen[0][10:40], mels[10:40])


def test_a_fill_at_the_end_of_a_recording_is_sound_to_its_last_sample(editor: Editor, tmp_path: Path) -> None:
    sound = Sound.read(hum(tmp_path / "in.wav", seconds=48120 / RATE))
    assert len(sound.data) % HOP
    done = editor.fill(sound, [(1.5, sound.seconds)])
    assert done.sound.data.shape == sound.data.shape
    # Behind the last whole frame, and before the mend fades out.
    assert done.sound.data[48120 // HOP * HOP : 48120 - 120].any()


def test_nothing_to_fill_is_nothing_to_do(editor: Editor) -> None:
    """A text that does not fit, or a recording that is too long for one, matters to nobody then."""
    sound = Sound(np.zeros((8000 * 200, 1), dtype=np.int16), 8000, "PCM_16")
    done = editor.fill(sound, [], "no " * 5000)
    assert done.sound is sound
    assert done.old == done.new == []


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
    symbols, durations, _ = model.aligner.align_text(
        torch.nn.functional.pad(sound.mono(RATE), (0, 188 * HOP - 48000)), TEXT
    )
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


@pytest.mark.parametrize(("n_fft", "frames"), [(512, 1), (1024, 2), (2048, 4)])
def test_frames_that_hear_into_the_hole_are_made_anew(n_fft: int, frames: int) -> None:
    """As far as a window reaches, a frame beside the hole changes with what is in the hole."""
    features = speech(vocoder={"n_fft": n_fft}).features
    wave = torch.randn(1, 60 * HOP, generator=torch.Generator().manual_seed(0))
    other = wave.clone()
    other[:, 30 * HOP : 40 * HOP] = 0
    changed = (features.encode(wave) != features.encode(other)).any(-1)[0].nonzero()[:, 0]
    assert reach_of(features) == frames
    assert int(changed[0]) >= 30 - frames
    assert int(changed[-1]) < 40 + frames
    assert Editor(speech(aligner={"n_fft": 2048}, vocoder={"n_fft": 512})).reach == 4


def test_frames_of_a_codec_that_hear_into_the_hole_are_found_by_trial() -> None:
    features = CodecFeatures(small_codec(16, 2))
    features.take_statistics(torch.zeros(features.dim), torch.full((features.dim,), 0.01))
    reach = reach_of(features)
    assert 0 < reach < PROBED
    hop, wave = features.hop, 0.1 * torch.randn(1, 200 * features.hop, generator=torch.Generator().manual_seed(1))
    other = wave.clone()
    other[:, 100 * hop : 120 * hop] = 0
    changed = (features.encode(wave) - features.encode(other)).abs().amax(-1)[0]
    assert float(changed[: 100 - reach].max()) < 2 * HEARD
    assert float(changed[120 + reach :].max()) < 2 * HEARD


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


@pytest.mark.parametrize("rate", [8000, 11025, 16000])
def test_bursts_are_found_at_every_rate(command: Command, run: Path, rate: int) -> None:
    wave = soundfile.read(hum(Path("low.wav"), rate=rate))[0]
    begin, end = round(0.75 * rate), round(0.94 * rate)
    wave[begin:end] += 0.3 * np.random.default_rng(3).standard_normal(end - begin)
    soundfile.write("noisy.wav", wave, rate)
    told = json.loads(command.done("denoise", "noisy.wav", "--run", run, "-o", f"{rate}.wav", "--json"))
    ((start, stop),) = told["old"]
    assert start == pytest.approx(0.75, abs=0.06)
    assert stop == pytest.approx(0.94, abs=0.06)


def test_a_clean_recording_needs_no_text_that_fits(command: Command, run: Path) -> None:
    Path("in.txt").write_text("no " * 500)
    command.done("denoise", "in.wav", "--run", run, "-o", "clean.wav")
    assert np.array_equal(heard("clean.wav"), heard("in.wav"))
    assert "in.wav has" in command.refused("denoise", "in.wav", "--spans", "0.2-0.4", "--run", run, "-o", "x.wav")


def test_bursts_nearly_everywhere_are_told_to_who_named_no_spans(
    command: Command, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("madrigal.voicebox.bursts.find_bursts", lambda wave, rate: [(0.0, 0.95), (1.0, 1.95)])
    said = command.refused("denoise", "in.wav", "--run", run, "-o", "x.wav")
    assert "cover nearly all of in.wav" in said
    assert "name shorter spans" not in said


def test_a_file_that_cannot_hold_the_samples_is_refused_before_the_work(command: Command, run: Path) -> None:
    wave = 1.5 * soundfile.read("in.wav")[0]
    soundfile.write("float.wav", wave, 16000, subtype="FLOAT")
    edit = ("edit", "float.wav", "--fill", "0.5-0.8", "--run")
    for out in ("out.flac", "in.wav/out.wav", "out.xyz", "out"):
        said = command.refused(*edit, "nowhere", "-o", out)  # the run is not looked for
        assert out in said
    assert "cannot hold the samples of this recording (FLOAT)" in command.refused(*edit, run, "-o", "out.flac")
    command.done(*edit, run, "-o", "out.wav")
    same = soundfile.read("out.wav", dtype="float32")[0] == soundfile.read("float.wav", dtype="float32")[0]
    assert same[:8000].all()
    assert same[12800:].all()


def test_a_recording_that_is_replaced_stays_until_the_new_one_is_whole(
    command: Command, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, write = Path("in.wav").read_bytes(), soundfile.write

    def full(path: Any, data: Any, *rest: Any, **options: Any) -> None:
        write(path, data[:100], *rest, **options)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(soundfile, "write", full)
    edit = ("edit", "in.wav", "--fill", "0.5-0.8", "--run", run, "-o", "in.wav", "--overwrite")
    assert "in.wav could not be written (No space left on device)" in command.refused(*edit)
    assert Path("in.wav").read_bytes() == before
    assert sorted(file.name for file in Path().iterdir()) == ["in.wav"]
    monkeypatch.undo()


def test_mistakes_are_one_sentence(command: Command, run: Path) -> None:
    edit = ("edit", "in.wav", "--run", run, "-o", "o.wav")
    assert "Say what to do" in command.refused(*edit)
    assert "Say one thing to do at a time" in command.refused(*edit, "--fill", "1-2", "--replace", "a", "b")
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
    assert "both say how fast" in command.refused(*say, "--seconds", "2", "--rate", "3", "-o", "x.wav")
    plain = ("say", "Hello.", "--run", run, "-o", "x.wav")
    assert "--voice names none" in command.refused(*plain, "--voice-text", "A hum.")
    assert "in.wav is no folder" in command.refused("say", "Hello.", "--run", run, "-o", "in.wav/x.wav")
    assert "its ending is no format" in command.refused("say", "Hello.", "--run", run, "-o", "x.sound")
    Path("in.txt").write_bytes("Café".encode("latin-1"))
    assert "in.txt is no text in UTF-8" in command.refused(*plain, "--voice", "in.wav")
    Path("in.txt").write_text("a hum " * 200)
    said = command.refused(*plain, "--voice", "in.wav")
    assert said.startswith("madrigal: in.wav has 187 frames and its text")
    assert "hop" not in said
    monkeypatch.setattr("madrigal.voicebox.loading.SHIPPED", Path("nowhere"))
    assert "or name a run with --run" in command.refused("say", "Hello.", "-o", "x.wav")
