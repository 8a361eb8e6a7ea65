"""Speech from text by flow matching: lengths, voices, batches, streaming, voices on disk, and parts that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from voicebox_speaking import HOP, RATE, hum, speaking_run, speech

from madrigal.engine.machine import has_bf16
from madrigal.errors import UserError
from madrigal.speaking.speech import PAUSE_SECONDS
from madrigal.voicebox.drawing import Drawing
from madrigal.voicebox.filling import fill
from madrigal.voicebox.loading import export_voicebox, is_voicebox, load_voicebox
from madrigal.voicebox.parts import PROMPT_SECONDS
from madrigal.voicebox.speech import LONGEST_PIECE, VoiceboxSpeech
from madrigal.voicebox.voice import Voice

TEXT = "Good morning. It is early."
FEW: dict[str, Any] = {"steps": 1}


@pytest.fixture(scope="module")
def model() -> VoiceboxSpeech:
    return speech()


@pytest.fixture(scope="module")
def prompt(model: VoiceboxSpeech, tmp_path_factory: pytest.TempPathFactory) -> Voice:
    return model.voice(hum(tmp_path_factory.mktemp("voices") / "hum.wav"), text="A hum.")


def assert_sounds_alike(one: torch.Tensor, other: torch.Tensor) -> None:
    """To -70 dB of the loudest sample: phases of an untrained vocoder are directions of almost nothing."""
    torch.testing.assert_close(one, other, atol=3e-4 * float(one.abs().max()), rtol=0)


def test_sound_lasts_as_long_as_its_symbols(model: VoiceboxSpeech, prompt: Voice) -> None:
    said = model.say(TEXT, voice=prompt, **FEW)
    script = model.script(TEXT)
    frames = sum(line.frames for line in model.lines(script.pieces, prompt))
    assert [piece.text for piece in said.pieces] == ["Good morning.", "It is early."]
    assert said.wave.shape == (frames * HOP + round(PAUSE_SECONDS * RATE),)
    assert said.sample_rate == RATE
    assert said.confidence is None


@pytest.mark.parametrize("seconds", [1.5, 2.0, 7.77])
def test_VB3_the_length_in_seconds_is_within_a_frame_of_the_request(
    model: VoiceboxSpeech, prompt: Voice, seconds: float
) -> None:
    for text in (TEXT, "Good morning."):
        assert model.say(text, voice=prompt, seconds=seconds, **FEW).seconds == pytest.approx(seconds, abs=HOP / RATE)
    with pytest.raises(UserError, match="are too few for this text"):
        model.say(TEXT, voice=prompt, seconds=0.2, **FEW)


def test_a_rate_speaks_faster(model: VoiceboxSpeech, prompt: Voice) -> None:
    slow, fast = (model.say("Good morning.", voice=prompt, rate=rate, **FEW).seconds for rate in (0.5, 2.0))
    assert slow > 2.5 * fast
    with pytest.raises(UserError, match="rate is 9"):
        model.say(TEXT, rate=9.0)


def test_VB2_two_prompts_give_two_outputs(model: VoiceboxSpeech, prompt: Voice, tmp_path: Path) -> None:
    other = model.voice(hum(tmp_path / "other.wav", pitch=220.0), text="A hum.")
    waves = [model.say("Hello.", voice=each, seconds=1.0, **FEW).wave for each in (prompt, other, model.nobody())]
    assert waves[0].shape == waves[1].shape == waves[2].shape
    assert not torch.allclose(waves[0], waves[1])
    assert not torch.allclose(waves[0], waves[2])


def test_VB10_no_prompt_speaks_too(model: VoiceboxSpeech) -> None:
    assert model.say("Hello.", **FEW).wave.isfinite().all()


def test_a_prompt_without_a_transcript_has_no_ids(model: VoiceboxSpeech, tmp_path: Path) -> None:
    voice = model.voice(hum(tmp_path / "hum.wav"))
    assert voice.symbols is None
    assert (voice.ids == -1).all()
    (tmp_path / "hum.txt").write_text("A hum.\n")
    told = model.voice(tmp_path / "hum.wav")
    assert model.aligner.symbols.decode(told.symbols) == "a hum."  # type: ignore[arg-type]
    assert torch.equal(told.features, voice.features[: len(told.features)])
    one, other = (model.say("Hello.", voice=each, seconds=1.0, **FEW).wave for each in (voice, told))
    assert not torch.allclose(one, other)


def test_a_seed_repeats_and_another_does_not(model: VoiceboxSpeech, prompt: Voice) -> None:
    first = model.say(TEXT, voice=prompt, seed=3, seconds=3.0, **FEW).wave
    assert torch.equal(first, model.say(TEXT, voice=prompt, seed=3, seconds=3.0, **FEW).wave)
    assert not torch.equal(first, model.say(TEXT, voice=prompt, seed=4, seconds=3.0, **FEW).wave)


def test_VB4_a_text_is_said_in_a_batch_as_it_is_alone(model: VoiceboxSpeech, prompt: Voice) -> None:
    texts = ["One two.", TEXT, "A longer sentence, with a pause in it."]
    alone = [model.say(text, voice=prompt, seed=5 + number, **FEW).wave for number, text in enumerate(texts)]
    for size in (3, 8):
        together = model(texts, voice=prompt, seed=5, batch_size=size, **FEW)
        for one, other in zip(alone, together, strict=True):
            assert_sounds_alike(one, other.wave)


def test_streaming_is_the_whole(model: VoiceboxSpeech, prompt: Voice) -> None:
    pieces = list(model.stream(TEXT, voice=prompt, seed=2, chunk_seconds=0.2, **FEW))
    assert len(pieces) > 4
    whole = model.say(TEXT, voice=prompt, seed=2, **FEW).wave
    assert_sounds_alike(torch.cat(pieces), whole)
    timed = torch.cat(list(model.stream(TEXT, voice=prompt, seconds=2.0, **FEW)))
    assert len(timed) / RATE == pytest.approx(2.0, abs=HOP / RATE)


def test_the_first_sentence_is_heard_before_the_second_is_made(
    model: VoiceboxSpeech, prompt: Voice, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def note(*words: Any, **options: Any) -> Any:
        asked.append(1)
        return fill(*words, **options)

    monkeypatch.setattr("madrigal.voicebox.drawing.fill", note)
    stream = model.stream(TEXT, voice=prompt, chunk_seconds=0.1, **FEW)
    next(stream)
    assert len(asked) == 1
    list(stream)
    assert len(asked) == 2


def test_how_the_flow_is_followed_can_be_told(model: VoiceboxSpeech, prompt: Voice) -> None:
    ways: list[dict[str, Any]] = [
        {"steps": 1, "method": "euler"},
        {"steps": 2, "method": "euler"},
        {"steps": 1, "method": "midpoint"},
        {"steps": 2, "method": "euler", "sway": -1.0},
        {"steps": 1, "method": "euler", "cond_scale": 2.0},
        {"steps": 1, "method": "euler", "bf16": True},
    ]
    waves = [model.say("Hello.", voice=prompt, seconds=1.0, **way).wave for way in ways]
    for number, wave in enumerate(waves):
        for other in waves[:number]:
            assert not torch.equal(wave, other)
    torch.testing.assert_close(waves[-1], waves[0], atol=0.05 * float(waves[0].abs().max()), rtol=0.1)
    auto = model.say("Hello.", voice=prompt, seconds=1.0, steps=1, method="euler", bf16="auto").wave
    assert torch.equal(auto, waves[-1] if has_bf16("cpu") else waves[0])
    unguided = speech(flow={"cond_drop_prob": 0.0})
    with pytest.raises(UserError, match="cond_drop_prob"):
        unguided.say("Hello.", cond_scale=2.0, **FEW)


def test_a_voice_is_as_long_as_a_prompt_and_ends_with_a_word(model: VoiceboxSpeech, tmp_path: Path) -> None:
    file = hum(tmp_path / "long.wav", seconds=7.0)
    most = round(PROMPT_SECONDS * RATE / HOP)
    assert len(model.voice(file).features) == most
    told = model.voice(file, text="one two three four five six seven")
    assert most // 2 < len(told.features) <= most
    assert len(told.ids) == len(told.features)
    symbols, durations = torch.tensor([0, 5, 6, 0, 7, 0]), torch.tensor([10, 30, 10, 20, 30, 10])
    whole = Voice(torch.zeros(110, 2), "", symbols, durations)
    for frames, wanted in ((200, 100), (110, 100), (99, 50), (60, 50), (45, 45)):
        assert len(whole.first(frames, silence=0).features) == wanted
    assert whole.first(200, silence=0).symbols.tolist() == [0, 5, 6, 0, 7]  # type: ignore[union-attr]
    assert whole.first(45, silence=0).durations.tolist() == [10, 30, 5]  # type: ignore[union-attr]


@pytest.mark.parametrize(("rate", "channels"), [(8000, 2), (44100, 1)])
def test_a_prompt_of_any_rate_and_channels(model: VoiceboxSpeech, tmp_path: Path, rate: int, channels: int) -> None:
    given = model.voice(hum(tmp_path / "hum.wav", rate=rate, channels=channels))
    assert len(given.features) == 2 * RATE // HOP
    wave = torch.randn(channels, 2 * rate)
    assert len(model.voice(wave, rate).features) == 2 * RATE // HOP


def test_a_voice_is_kept_in_a_file(model: VoiceboxSpeech, prompt: Voice, tmp_path: Path) -> None:
    prompt.save(tmp_path / "v.safetensors")
    again = Voice.load(tmp_path / "v.safetensors")
    torch.testing.assert_close(again.features, prompt.features, atol=2e-3, rtol=1e-3)
    assert torch.equal(again.ids, prompt.ids)
    assert again.about == {"text": "A hum."}
    foreign = Voice(prompt.features, "0" * 16)
    with pytest.raises(UserError, match="made for other features"):
        model.say("Hello.", voice=foreign)
    (tmp_path / "w.safetensors").write_text("nothing")
    with pytest.raises(UserError, match="holds no voice"):
        Voice.load(tmp_path / "w.safetensors")


def test_voices_that_cannot_be_heard_are_refused(model: VoiceboxSpeech, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"shorter than 0\.2 seconds"):
        model.voice(torch.zeros(100))
    with pytest.raises(UserError, match="There is no voice and no audio file nobody"):
        model.voice("nobody")
    with pytest.raises(UserError, match="each needs a frame"):
        model.voice(hum(tmp_path / "short.wav", seconds=0.3), text="far too many words for so short a time")


def test_a_long_text_is_said_in_pieces(model: VoiceboxSpeech) -> None:
    text = ", ".join(["and this is a part of a sentence that will not end"] * 6)
    pieces = model.script(text).pieces
    assert len(pieces) == 3
    assert max(map(len, pieces)) <= LONGEST_PIECE


def test_nothing_to_say_is_one_sentence(model: VoiceboxSpeech) -> None:
    for text in ("", "…", "日本"):
        with pytest.raises(UserError, match="There is nothing to say"):
            model.say(text)
    said = model.say("Hello 日本, it is 5.", **FEW)
    assert said.unknown == ["日", "本"]
    assert said.pieces[0].text.endswith("it is five.")


MISFITS: dict[str, tuple[dict[str, Any], str]] = {
    "features": ({"flow": {"dim_in": 21}}, "the flow's dim_in is 21, and the features' dimension is 20"),
    "symbols": ({"flow": {"num_cond_tokens": 9}}, "the flow's num_cond_tokens is 9"),
    "hop": ({"aligner": {"hop": 240}}, "the aligner's hop is 240, and the features' is 256"),
    "rate": ({"aligner": {"sample_rate": 16000}}, "the aligner's sample_rate is 16000"),
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_parts_that_do_not_fit_are_refused(misfit: str) -> None:
    changes, sentence = MISFITS[misfit]
    with pytest.raises(UserError, match=f"^The parts of a voicebox do not fit: {sentence}"):
        speech(**changes)


# On disk.


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = speaking_run(tmp_path_factory.mktemp("runs") / "voicebox")
    model = load_voicebox(run)
    for name, pitch in (("anna", 220.0), ("bert", 110.0)):
        file = hum(run / f"{name}.wav", pitch=pitch)
        model.voice(file, text="A hum.").save(run / "voices" / f"{name}.safetensors")
    return run


def test_a_run_says_what_its_parts_say(run: Path, model: VoiceboxSpeech) -> None:
    loaded = load_voicebox(run)
    assert loaded.drawing == Drawing(steps=2)
    assert list(loaded.voices) == ["anna", "bert"]
    wanted = model.say("Hello.", voice=loaded.voice("anna"), seed=1, steps=2).wave
    torch.testing.assert_close(loaded.say("Hello.", voice="anna", seed=1).wave, wanted)
    assert torch.equal(loaded.say("Hello.").wave, loaded.say("Hello.", voice="anna").wave)  # the first is the default
    assert not torch.equal(loaded.say("Hello.", voice="bert", seconds=1).wave, loaded.say("Hello.", seconds=1).wave)


def test_an_exported_folder_says_about_the_same_at_half_the_size(run: Path, tmp_path: Path) -> None:
    folder = export_voicebox(run, tmp_path / "voice")
    assert is_voicebox(folder)
    assert is_voicebox(run)
    assert not is_voicebox(run / "flow")
    whole, half = load_voicebox(run), load_voicebox(folder)
    assert half.drawing == whole.drawing
    assert list(half.voices) == ["anna", "bert"]
    one, other = (each.say("Hello.", voice="bert", seconds=1.0).wave for each in (whole, half))
    torch.testing.assert_close(one, other, atol=0.02, rtol=0.05)
    sizes = [sum(file.stat().st_size for file in (path / "flow").glob("*.safetensors")) for path in (run, folder)]
    assert sizes[1] < 0.65 * sizes[0]
    with pytest.raises(UserError, match="holds a model already"):
        export_voicebox(run, tmp_path / "voice")
    export_voicebox(folder, tmp_path / "voice-2")
    export_voicebox(run, tmp_path / "voice", overwrite=True)
    assert not list(tmp_path.glob("**/.partial-*"))


def test_parts_that_are_missing_are_told(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="is no run of a voicebox"):
        load_voicebox(tmp_path)
    (tmp_path / "recipe.yaml").write_text((run / "recipe.yaml").read_text())
    with pytest.raises(UserError, match=r"The part aligner of .* is not there yet"):
        load_voicebox(tmp_path)
    monkeypatch.setattr("madrigal.voicebox.loading.SHIPPED", tmp_path)
    with pytest.raises(UserError, match="The voice voice-24k is not a part of this version yet"):
        load_voicebox()
