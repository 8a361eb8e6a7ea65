"""Speech from text by flow matching: lengths, voices, batches, streaming, voices on disk, and parts that do not fit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from voicebox_speaking import HOP, MELS, RATE, codec_run, hum, speaking_run, speech

from madrigal.engine.machine import has_bf16
from madrigal.errors import UserError
from madrigal.judge.speed import counted
from madrigal.speaking.speech import PAUSE_SECONDS
from madrigal.voicebox.drawing import Drawing
from madrigal.voicebox.editing import Editor
from madrigal.voicebox.filling import fill
from madrigal.voicebox.loading import export_voicebox, is_voicebox, load_voicebox, weight_of
from madrigal.voicebox.mending import Sound
from madrigal.voicebox.model import VoiceBox
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


def test_VB3_seconds_and_a_rate_are_not_given_both(model: VoiceboxSpeech) -> None:
    for rate in (1.0, 2.0, 99.0):
        with pytest.raises(UserError, match="both say how fast it is spoken"):
            model.say("Hello.", seconds=2.0, rate=rate)
        with pytest.raises(UserError, match="both say how fast it is spoken"):
            next(model.stream("Hello.", seconds=2.0, rate=rate))


def test_VB3_with_seconds_too_every_seed_has_a_rhythm_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    model = speech(durations={"kind": "flow"})
    seen: list[list[int]] = []
    true = model.features_of

    def noted(lines: Any, *rest: Any) -> Any:
        seen.append([int(number) for line in lines for number in line.durations])
        return true(lines, *rest)

    monkeypatch.setattr(model, "features_of", noted)
    for seed in (0, 1, 1):
        model.say("Good morning.", seconds=1.5, seed=seed, **FEW)
    list(model.stream("Good morning.", seconds=1.5, seed=1, **FEW))
    model(["Good morning.", "Good morning."], seconds=1.5, seed=[0, 1], **FEW)
    zero, one, again, streamed, both = seen
    assert zero != one == again == streamed
    assert both == zero + one
    assert sum(zero) == sum(one)


def test_how_often_the_durations_are_asked_for_can_be_told() -> None:
    model, flow = speech(), speech(durations={"kind": "flow"})
    for given, calls in ((None, 16), (2, 4)):
        with counted(flow.durations.network.to_flow) as asked:
            flow.say("Hello.", duration_steps=given, **FEW)
        assert len(asked) == calls
    with pytest.raises(UserError, match="this predictor's is regression"):
        model.say("Hello.", duration_steps=2, **FEW)


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


def test_of_a_long_prompt_only_the_beginning_is_read(
    model: VoiceboxSpeech, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = hum(tmp_path / "long.wav", seconds=20.0)
    whole = model.voice(file).features
    heard: list[int] = []
    encode = model.features.encode

    def noted(wave: Any, *rest: Any) -> Any:
        heard.append(wave.shape[-1])
        return encode(wave, *rest)

    monkeypatch.setattr(model.features, "encode", noted)
    assert torch.equal(model.voice(file).features, whole)
    model.voice(file, text="one two three four five six seven")
    assert max(heard) <= 4 * RATE
    # What is too long to be aligned is heard without the text beside it, and refused with one that was given.
    monkeypatch.setattr("madrigal.voicebox.parts.MOST_SECONDS", 10.0)
    monkeypatch.setattr("madrigal.voicebox.aligner.MOST_SECONDS", 10.0)
    (tmp_path / "long.txt").write_text("one two")
    assert model.voice(file).symbols is None
    with pytest.raises(UserError, match=r"long\.wav has 20 seconds, and words are found in 10 at most"):
        model.voice(file, text="one two")


def test_a_text_of_a_voice_that_is_no_recording_is_refused(
    model: VoiceboxSpeech, prompt: Voice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt.save(tmp_path / "v.safetensors")
    monkeypatch.setattr(model, "voices", {"v": tmp_path / "v.safetensors"})
    for voice in (None, "v", prompt):
        with pytest.raises(UserError, match="voice_text is for an audio file or a wave"):
            model.say("Hello.", voice=voice, voice_text="A hum.")
        with pytest.raises(UserError, match="voice_rate is for a wave"):
            model.say("Hello.", voice=voice, voice_rate=8000)


def test_a_foreign_voice_among_the_voices_breaks_no_prompt(
    model: VoiceboxSpeech, prompt: Voice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Voice(torch.zeros(9, MELS + 3), "0" * 16).save(tmp_path / "foreign.safetensors")
    prompt.save(tmp_path / "own.safetensors")
    monkeypatch.setattr(model, "voices", {name: tmp_path / f"{name}.safetensors" for name in ("foreign", "own")})
    monkeypatch.setattr(model, "_levels", None)
    assert len(model.voice(hum(tmp_path / "hum.wav")).features)
    assert len(model._levels or []) == 1
    with pytest.raises(UserError, match="made for other features"):
        model.voice("foreign")
    monkeypatch.setattr(model, "_levels", None)


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
    with pytest.raises(UserError, match=r"^\S*short\.wav has 28 frames .* each needs a frame"):
        model.voice(hum(tmp_path / "short.wav", seconds=0.3), text="far too many words for so short a time")
    (tmp_path / "short.txt").write_bytes(b"caf\xe9")
    with pytest.raises(UserError, match=r"short\.txt is no text in UTF-8"):
        model.voice(tmp_path / "short.wav")


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


def test_a_folder_that_is_exported_anew_is_never_half_an_old_one(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = export_voicebox(run, tmp_path / "voice")
    assert list(load_voicebox(target).voices) == ["anna", "bert"]
    other = speaking_run(tmp_path / "other")

    def killed(self: Path, to: Path) -> Path:
        assert not (target / "config.json").exists()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        patch.setattr("madrigal.voicebox.loading._export_part", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            export_voicebox(other, target, overwrite=True)
    assert not is_voicebox(target)
    export_voicebox(other, target, overwrite=True)
    assert load_voicebox(target).voices == {}  # those of the old run would be refused


def test_the_voice_that_was_learned_most_of_speaks_where_none_is_named(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    model = load_voicebox(run)
    for name, seconds in (("bert", "90.5"), ("cora", "700")):
        voice = model.voice("anna")
        Voice(voice.features, voice.fingerprint, about={"seconds": seconds}).save(
            tmp_path / "run" / "voices" / f"{name}.safetensors"
        )
    assert list(load_voicebox(tmp_path / "run").voices) == ["cora", "bert", "anna"]
    folder = export_voicebox(tmp_path / "run", tmp_path / "voice")
    config = json.loads((folder / "config.json").read_text())
    assert config["voice"] == "cora"
    (folder / "config.json").write_text(json.dumps({**config, "voice": "anna"}))
    assert next(iter(load_voicebox(folder).voices)) == "anna"


def test_a_student_is_computed_as_its_run_says(tmp_path: Path) -> None:
    run = speaking_run(tmp_path / "run", flow={"distilled_steps": 2})
    (run / "flow").rename(run / "student")
    recipe = {"system": "voicebox", **{name: {} for name in ("aligner", "vocoder", "durations", "flow", "student")}}
    say = {"steps": 8, "cond_scale": 2.0, "bf16": "auto", "duration_steps": 3}
    (run / "recipe.yaml").write_text(yaml.safe_dump({**recipe, "say": say}))
    assert load_voicebox(run).drawing == Drawing(bf16="auto", duration_steps=3)


def test_what_a_voice_weighs_is_what_it_weighs_on_the_disk(run: Path, tmp_path: Path) -> None:
    folder = export_voicebox(run, tmp_path / "voice")
    told = weight_of(folder, load_voicebox(folder))
    assert told == pytest.approx(sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()) / 1e6)
    of_weights = sum(file.stat().st_size for file in folder.rglob("model.safetensors")) / 1e6
    # Of a run that is not exported, what its weights would weigh; headers and statistics are small beside them.
    assert weight_of(run, load_voicebox(run)) == pytest.approx(of_weights, rel=0.35)


# Latents of a codec in the place of log-mels.


def test_VB8_a_voicebox_of_a_codec_speaks_edits_and_is_exported(tmp_path: Path) -> None:
    run = codec_run(tmp_path / "run", tmp_path / "codec")
    model = load_voicebox(run)
    assert (model.sample_rate, model.features.hop) == (16000, 320)
    assert float(model.features.std.mean()) == 0.5  # as the flow has learned them
    voice = model.voice(hum(tmp_path / "hum.wav"), text="A hum.")
    voice.save(run / "voices" / "hum.safetensors")
    said = model.say("Hello.", voice=voice, seconds=1.0, **FEW)
    assert said.seconds == pytest.approx(1.0, abs=0.02)
    assert said.wave.isfinite().all()
    sound = Sound.read(tmp_path / "hum.wav")
    done = Editor(model, drawing=Drawing(steps=1)).fill(sound, [(0.7, 1.1)], "A hum.").sound.data
    assert np.array_equal(done[: round(0.7 * RATE)], sound.data[: round(0.7 * RATE)])
    assert not np.array_equal(done, sound.data)
    again = load_voicebox(export_voicebox(run, tmp_path / "voice"))
    assert again.features.fingerprint() == model.features.fingerprint()
    assert again.voice("hum").features.shape == voice.features.shape
    # A flow that never saw latents does not know what is usual of them.
    flow = VoiceBox.from_pretrained(run / "flow")
    flow.std.zero_()
    flow.save_pretrained(run / "flow")
    with pytest.raises(UserError, match="has not learned what is usual of the latents"):
        load_voicebox(run)


def test_parts_that_are_missing_are_told(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="is no run of a voicebox"):
        load_voicebox(tmp_path)
    (tmp_path / "recipe.yaml").write_text((run / "recipe.yaml").read_text())
    with pytest.raises(UserError, match=r"The part aligner of .* is not there yet"):
        load_voicebox(tmp_path)
    monkeypatch.setattr("madrigal.voicebox.loading.SHIPPED", tmp_path)
    with pytest.raises(UserError, match="The voice voice-24k is not in this installation"):
        load_voicebox()
