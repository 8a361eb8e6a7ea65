"""Text to speech: lengths, voices, batches, streaming, and parts that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_speech import HOP, RATE, TOKEN, delayed, parts, speaking_run, speech, voice
from torch import Tensor

from madrigal.audiolm.draws import Draws
from madrigal.errors import UserError
from madrigal.layers.sampling import Sampling
from madrigal.speaking.script import MAX_CHARACTERS, script_of
from madrigal.speaking.speech import PAUSE_SECONDS, piece_seed
from madrigal.speartts.loading import load_text_to_speech
from madrigal.speartts.speech import DRAWING, LONGEST_TOKEN, TextToSpeech
from madrigal.tokenizers.text import TextSpec, make_text_tokenizer
from madrigal.verbs.sampling import samplings
from madrigal.verbs.say import TEMPERATURE

LETTERS = make_text_tokenizer(TextSpec(kind="characters"))
TEXT = "Good morning. It is early."
PAUSE = round(PAUSE_SECONDS * RATE)


@pytest.fixture(scope="module")
def model() -> TextToSpeech:
    return speech()


@pytest.fixture
def prompt(tmp_path: Path) -> Path:
    return voice(tmp_path / "voice.wav")


def test_sound_lasts_as_long_as_the_tokens_of_all_pieces(model: TextToSpeech, prompt: Path) -> None:
    said = model.say(TEXT, voice=prompt, seed=3)
    pieces, rows = zip(
        *(model.semantic([text], [piece_seed(3, n)]) for n, text in enumerate(model.script(TEXT).pieces))
    )
    assert [piece.text for piece in said.pieces] == [one[0].text for one in pieces] == ["Good morning.", "It is early."]
    tokens = sum(len(one[0]) for one in rows)
    assert said.wave.shape == (tokens * TOKEN + PAUSE,)
    assert said.seconds == said.wave.shape[0] / RATE
    assert all(0 < piece.confidence <= 1 for piece in said.pieces)


def test_the_prompt_is_not_heard_but_changes_what_is(model: TextToSpeech, prompt: Path) -> None:
    hiss = torch.randn(RATE, generator=torch.Generator().manual_seed(0))
    one, other, nobody = (model.say("Hello.", voice=each, seed=1).wave for each in (prompt, hiss, None))
    assert one.shape == other.shape == nobody.shape
    assert not torch.equal(one, other)
    assert not torch.equal(one, nobody)


def test_a_seed_repeats_and_another_does_not(model: TextToSpeech, prompt: Path) -> None:
    first = model.say(TEXT, voice=prompt, seed=3).wave
    assert torch.equal(first, model.say(TEXT, voice=prompt, seed=3).wave)
    assert not torch.equal(first, model.say(TEXT, voice=prompt, seed=4).wave)
    greedy = Sampling(temperature=0.0)
    waves = [model.say("Hello.", voice=prompt, seed=seed, sampling=greedy).wave for seed in (3, 4)]
    assert torch.equal(*waves)


def test_python_draws_as_the_command_does(model: TextToSpeech, prompt: Path) -> None:
    assert samplings(TEMPERATURE) == DRAWING
    plain = model.say("Hello.", voice=prompt, seed=3).wave
    assert torch.equal(plain, model.say("Hello.", voice=prompt, seed=3, sampling=samplings(TEMPERATURE)).wave)
    other = {"semantic": Sampling(temperature=0.0)}  # the stages that it does not name draw as they do
    named = model.say("Hello.", voice=prompt, seed=3, sampling=other).wave
    assert torch.equal(named, model.say("Hello.", voice=prompt, seed=3, sampling={**DRAWING, **other}).wave)


def test_a_batch_holds_at_least_one_piece() -> None:
    model = speech()
    with pytest.raises(UserError, match="batch_size is 0; say at least one piece"):
        model(["Hello."], batch_size=0)


def test_tokens_without_durations_are_stopped(prompt: Path) -> None:
    """A coarse stage that finds no end would go on for ever."""
    model = speech(unique=True)
    with torch.no_grad():
        for head in model.coarse_transformer.heads.parameters():
            head.zero_()
    row = torch.arange(3)
    (wave,) = model.acoustic_of([row], model.voice(prompt), Draws([0], {"coarse": Sampling(temperature=0.0)}))
    assert 0 < wave.shape[-1] <= LONGEST_TOKEN * len(row) * TOKEN


def test_a_text_is_said_in_a_batch_as_it_is_alone(model: TextToSpeech, prompt: Path) -> None:
    texts = ["One two three.", TEXT, "Hello.", "A somewhat longer sentence, with a pause in it."]
    for size in (3, 8):
        together = model(texts, voice=prompt, seed=5, batch_size=size)
        for number, text in enumerate(texts):
            alone = model.say(text, voice=prompt, seed=5 + number)
            torch.testing.assert_close(alone.wave, together[number].wave, atol=1e-5, rtol=0)
            assert alone.confidence == pytest.approx(together[number].confidence, abs=1e-4)


def test_streaming_is_the_whole(prompt: Path) -> None:
    model = delayed()
    pieces = list(model.stream(TEXT, voice=prompt, seed=2, chunk_seconds=0.1))
    whole = model.say(TEXT, voice=prompt, seed=2).wave
    assert len(pieces) > 3
    torch.testing.assert_close(torch.cat(pieces), whole, atol=1e-5, rtol=0)


def test_streaming_with_a_fine_stage_has_the_same_length(model: TextToSpeech, prompt: Path) -> None:
    pieces = torch.cat(list(model.stream(TEXT, voice=prompt, seed=2, chunk_seconds=0.1)))
    assert pieces.shape == model.say(TEXT, voice=prompt, seed=2).wave.shape


def test_the_first_sentence_is_heard_before_the_second_is_thought_of(
    model: TextToSpeech, prompt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    made = TextToSpeech.semantic

    def note(self: TextToSpeech, texts: list[str], *more: Any) -> Any:
        asked.extend(texts)
        return made(self, texts, *more)

    monkeypatch.setattr(TextToSpeech, "semantic", note)
    stream = model.stream(TEXT, voice=prompt, seed=2, chunk_seconds=0.1)
    next(stream)
    assert asked == ["Good morning."]
    list(stream)
    assert asked == ["Good morning.", "It is early."]


@pytest.mark.parametrize(("rate", "channels"), [(8000, 2), (44100, 1), (16000, 2)])
def test_a_prompt_of_any_rate_and_channels(model: TextToSpeech, tmp_path: Path, rate: int, channels: int) -> None:
    given = model.voice(voice(tmp_path / "prompt.wav", rate=rate, channels=channels))
    plain = model.voice(voice(tmp_path / "plain.wav"))
    assert given.ids[0].shape == plain.ids[0].shape == (RATE // TOKEN,)
    assert given.codes[0].shape == plain.codes[0].shape == (RATE // HOP, 4)


def test_three_seconds_of_a_prompt_are_heard(model: TextToSpeech, tmp_path: Path) -> None:
    long = model.voice(voice(tmp_path / "long.wav", seconds=7.3))
    assert len(long.ids[0]) == 3 * RATE // TOKEN
    assert len(long.codes[0]) == 3 * RATE // HOP
    wave = torch.randn(2, 5 * RATE)
    assert len(model.voice(wave, RATE).codes[0]) == 3 * RATE // HOP
    assert len(model.voice(wave[0, : RATE // 2]).codes[0]) == 12 * TOKEN // HOP  # whole tokens of both


def test_a_prompt_of_nothing_is_refused(model: TextToSpeech, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"shorter than 0\.04 seconds"):
        model.say("Hello.", voice=torch.zeros(100))
    with pytest.raises(UserError, match="there is no such file"):
        model.say("Hello.", voice=tmp_path / "nowhere.wav")


def test_tokens_without_durations_are_ended_by_the_coarse_stage(prompt: Path) -> None:
    model = speech(unique=True)
    ids = [torch.tensor([1, 2, 3]), torch.tensor([4, 5, 6, 7, 8])]
    waves = model.acoustic_of(ids, model.voice(prompt), Draws([1, 2], {}))
    assert all(wave.shape[0] % HOP == 0 for wave in waves)
    assert waves[0].shape[0] <= 3 * 8 * TOKEN
    alone = model.acoustic_of(ids[:1], model.voice(prompt), Draws([1], {}))[0]
    torch.testing.assert_close(alone, waves[0], atol=1e-5, rtol=0)


def test_a_model_that_says_nothing_gives_no_sound(prompt: Path) -> None:
    model = speech()
    for given in (prompt, None):
        waves = model.acoustic_of([torch.tensor([], dtype=torch.long)], model.voice(given), Draws([0], {}))
        assert waves[0].shape == (0,)


def test_what_is_not_said_has_no_pause_and_is_told(
    model: TextToSpeech, prompt: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, semantic = model.say(TEXT, voice=prompt, seed=3), TextToSpeech.semantic

    def silent(self: TextToSpeech, texts: Any, *rest: Any) -> Any:
        pieces, rows = semantic(self, texts, *rest)
        return pieces, [row[: 0 if "early" in text else None] for text, row in zip(texts, rows, strict=True)]

    monkeypatch.setattr(TextToSpeech, "semantic", silent)
    said = model.say(TEXT, voice=prompt, seed=3)
    assert torch.equal(said.wave, whole.wave[: said.wave.shape[0]])
    assert said.seconds == said.pieces[0].seconds > 0 == said.pieces[1].seconds
    assert said.warnings == ["Nothing was said of 'It is early.'."]
    assert sum(piece.shape[-1] for piece in model.stream(TEXT, voice=prompt, seed=3)) == said.wave.shape[0]
    assert model.say("It is early. So early.", voice=prompt).wave.shape == (0,)


def test_numbers_are_read_out_in_english_alone() -> None:
    for language, said in (("en-us", "It costs five."), ("de", "It costs 5.")):
        spec = TextSpec(kind="phonemes", language=language)
        model = speech(text=spec)
        assert model.script("It costs 5.").pieces == [said]


def test_other_scripts_are_said_where_nothing_is_read_out() -> None:
    spoken = speech(text=TextSpec(kind="bytes", read=None)).script("Привет мир 5.")
    assert (spoken.pieces, spoken.unknown) == (["Привет мир 5."], [])
    with pytest.raises(UserError, match=r"model\.text\.read=null"):
        speech(text=TextSpec(kind="bytes")).script("Привет мир.")


def test_a_model_without_an_end_is_stopped() -> None:
    model = speech()
    with torch.no_grad():
        model.text_to_semantic.tables["speech"].weight[-1] = 0
        model.text_to_semantic.tables["speech"].weight[:-1] *= 10
    pieces, rows = model.semantic(["Hello.", "Good morning."], [1, 2], Sampling(temperature=0.0))
    assert [piece.ended for piece in pieces] == [False, False]
    # Nobody needs longer than two seconds, and a second for five letters.
    assert [len(row) for row in rows] == [80, 115]


def test_an_early_exit_drafts_and_changes_nothing_of_what_is_said(prompt: Path) -> None:
    model = speech(speaker={"target_early_exit_layer": 1})
    speaker, greedy, asked = model.text_to_semantic, Sampling(temperature=0.0), []
    speaker.upper.register_forward_hook(lambda module, args, out: asked.append(out.shape[1]))
    pieces, rows = model.semantic(["Hello.", "Good morning."], [1, 2], greedy)
    assert max(asked) > 1  # drafts are checked together
    for text, row, piece in zip(["Hello.", "Good morning."], rows, pieces, strict=True):
        plain = speaker.generate([text], source_type="text", target_type="speech", sampling=greedy, max_length=115)
        assert plain.rows()[0][: len(row)].tolist() == row.tolist()
        assert piece.ended == bool(plain.ended[0])


def test_a_prompt_without_a_tokenizer_is_refused(prompt: Path) -> None:
    model = TextToSpeech(**{**parts(), "wav2vec": None})
    with pytest.raises(UserError, match="needs the semantic tokenizer: give it as wav2vec"):
        model.say("Hello.", voice=prompt)


MISFITS: dict[str, tuple[dict[str, Any], str]] = {
    "tokens": (
        {"coarse": {"num_semantic_tokens": 13}},
        "the coarse stage's num_semantic_tokens is 13, and the text-to-semantic model's is 12",
    ),
    "repeats": (
        {"speaker": {"unique_consecutive": True}},
        "the coarse stage's unique_consecutive is False, and the text-to-semantic model's is True",
    ),
    "codec": ({"coarse": {"codebook_size": 32}}, "the coarse stage's codebook_size is 32, and the codec's is 16"),
    "levels": ({"fine": {"num_fine_quantizers": 3}}, "the stages draw 5 codebooks, and the codec has 4"),
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_parts_that_do_not_fit_are_refused(misfit: str) -> None:
    changes, sentence = MISFITS[misfit]
    with pytest.raises(UserError, match=f"^The parts of TextToSpeech do not fit: {sentence}"):
        TextToSpeech(**parts(**changes))


def test_a_model_of_ids_cannot_read(prompt: Path) -> None:
    model = speech(speaker={"text": None, "num_text_token_ids": 9})
    with pytest.raises(UserError, match="trained on ids of text and cannot read"):
        model.say("Hello.", voice=prompt)


# The script.


def test_a_long_text_is_said_in_pieces_of_a_sentence() -> None:
    text = " ".join(f"This is sentence number {n}, and it is not the last." for n in range(100))[:5000]
    script = script_of(text, LETTERS)
    assert max(map(len, script.pieces)) <= MAX_CHARACTERS
    assert len(script.pieces) > 80
    assert script.pieces[0] == "This is sentence number zero, and it is not the last."
    assert script.warning is None


def test_what_cannot_be_said_is_told_and_the_rest_is_said() -> None:
    script = script_of("Good morning, 日本!", LETTERS)
    assert script.unknown == ["日", "本"]
    assert "日" in (script.warning or "")
    assert script.pieces[0].startswith("Good morning")
    assert LETTERS.unknown(" ".join(script.pieces)) == []


@pytest.mark.parametrize("text", ["", "  \n ", "…", "!?", "日本語"])
def test_nothing_to_say_is_one_sentence(text: str) -> None:
    with pytest.raises(UserError, match=r"^There is nothing to say"):
        script_of(text, LETTERS)


@pytest.mark.parametrize("text", ["12345", "😀", "3.14 %", "naïve café"])
def test_digits_emoji_and_accents_are_said(text: str) -> None:
    assert len(script_of(text, LETTERS).pieces) == 1


# From a run.


def test_a_run_says_what_its_parts_say(tmp_path: Path, prompt: Path) -> None:
    run = speaking_run(tmp_path / "run")
    whole, apart = load_text_to_speech([run]), load_text_to_speech([run / "fine", run / "speak", run / "coarse"])
    wanted = speech().say("Hello.", voice=prompt, seed=1).wave
    for model in (whole, apart):
        torch.testing.assert_close(model.say("Hello.", voice=prompt, seed=1).wave, wanted)


def test_runs_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    run = speaking_run(tmp_path / "run")
    with pytest.raises(UserError, match="no coarse in"):
        load_text_to_speech([run / "speak"])
    with pytest.raises(UserError, match="There are two coarse stages"):
        load_text_to_speech([run, run / "coarse"])
    with pytest.raises(UserError, match="which does not speak: name a run of voicebox or speartts"):
        load_text_to_speech([tmp_path])
    recipe = run / "speak/recipe.yaml"
    recipe.write_text(recipe.read_text().replace("tokenizer: ", "tokenizer: other-", 2))
    with pytest.raises(UserError, match=r"The text-to-semantic stage .* was trained with the tokenizer other-"):
        load_text_to_speech([run])
    Path(run / "coarse/config.json").unlink()
    with pytest.raises(UserError, match="is not there yet"):
        load_text_to_speech([run])


def test_the_wave_of_a_codec_with_two_channels_has_two(tmp_path: Path, prompt: Path) -> None:
    model = speech(codec={"input_channels": 2})
    said: Tensor = model.say(TEXT, voice=prompt).wave
    assert said.shape[0] == 2
    streamed = torch.cat(list(model.stream(TEXT, voice=prompt)), -1)
    assert streamed.shape == said.shape
