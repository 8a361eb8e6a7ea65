"""What the prompts of a MusicLM do: texts, guidance, sounds in their place, sounds to go on from, and whose codes."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from commanding import Command
from small_music import small_mulan, small_quantizer, tones

from madrigal.audiolm.pipeline import AudioLM
from madrigal.data.audio import resample
from madrigal.errors import UserError
from madrigal.layers.sampling import Sampling
from madrigal.musiclm.loading import load_embed_quantizer
from madrigal.musiclm.music import MusicLM
from madrigal.musiclm.quantizer import MuLaNEmbedQuantizer
from madrigal.verbs import music as music_verb

FRAME = 320
TEXTS = ["a low hum", "a high whistle"]


def with_quantizer(music: MusicLM, quantizer: MuLaNEmbedQuantizer) -> MusicLM:
    """The same stages and codec, as if they had been trained with this quantizer."""
    lm, stages = music.audio_lm, {}
    for name in ("semantic", "coarse", "fine"):
        stages[name] = deepcopy(getattr(lm, f"{name}_transformer"))
        stages[name].audio_conditioner = quantizer.for_stage(name)
    return MusicLM(
        AudioLM(wav2vec=lm.wav2vec, codec=lm.codec, **{f"{name}_transformer": one for name, one in stages.items()}),
        quantizer,
    )


def listening(music: MusicLM, factor: float) -> MusicLM:
    """Stages that hear the condition so many times as loud: the few steps of training have taught them little."""
    made = with_quantizer(music, music.mulan_embed_quantizer)
    heard = [p for name, p in made.audio_lm.named_parameters() if name.endswith("cross.to_out.weight")]
    assert heard
    for weight in heard:
        weight.data *= factor
    return made


def test_two_texts_make_different_music_by_their_codes_alone(music: MusicLM) -> None:
    strong, deaf = listening(music, 10.0), listening(music, 0.0)
    ids = strong.mulan_embed_quantizer.ids_of(texts=TEXTS)
    assert not torch.equal(ids[0], ids[1])
    low, high = strong(TEXTS, seconds=0.4, seed=3)
    assert not torch.equal(low, high)
    low, high = deaf(TEXTS, seconds=0.4, seed=3)
    assert torch.equal(low, high)


@pytest.mark.parametrize("stage", ["semantic", "coarse", "fine"])
def test_guidance_changes_the_music_in_each_stage(music: MusicLM, stage: str) -> None:
    strong = listening(music, 10.0)
    guided = {one: Sampling(cond_scale=50.0 if one == stage else 1.0) for one in ("semantic", "coarse", "fine")}
    unguided = {one: Sampling(cond_scale=1.0) for one in guided}
    asked: dict[str, Any] = {"text": ["a low hum"] * 4, "seed": range(4), "seconds": 0.8}
    plain = strong(**asked)
    assert torch.equal(plain, strong(**asked, sampling=unguided))
    assert not torch.equal(plain, strong(**asked, sampling=guided))


def test_MU16_what_is_ranked_is_heard_at_the_rate_of_another_mulan(
    music: MusicLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The codec has 16 kHz, the MuLaN 8 kHz."""
    mulan = small_mulan(sample_rate=8000)
    slow = with_quantizer(music, small_quantizer(mulan, dims=music.mulan_embed_quantizer.config.conditioning_dims))
    waves = list(tones(3))
    monkeypatch.setattr(slow.audio_lm, "forward", lambda **_: waves)
    (drawn,) = slow.draw("a low hum", 3)
    latent = mulan.get_text_latents(["a low hum"])[0]
    right, wrong = (
        sorted((float(mulan.get_audio_latents(wave[None])[0] @ latent) for wave in heard), reverse=True)
        for heard in ([resample(wave, 16000, 8000) for wave in waves], [wave[:8000] for wave in waves])
    )
    assert drawn.scores == pytest.approx(right, abs=1e-4)
    assert drawn.scores != pytest.approx(wrong, abs=1e-3)


def test_codes_of_another_quantizer_are_refused(music: MusicLM) -> None:
    dims = music.mulan_embed_quantizer.config.conditioning_dims
    same_mulan = music.mulan_embed_quantizer.mulan
    for other in (
        small_quantizer(small_mulan(4), dims=dims),
        small_quantizer(same_mulan, dims=dims, codebook_size=16),
    ):
        with pytest.raises(UserError, match="semantic stage was trained with another quantizer"):
            MusicLM(music.audio_lm, other)


def test_a_quantizer_that_nobody_trained_makes_no_music(music: MusicLM) -> None:
    own = music.mulan_embed_quantizer
    untrained = with_quantizer(music, MuLaNEmbedQuantizer(own.mulan, config=own.config))
    with pytest.raises(UserError, match="no codes yet"):
        untrained("a low hum", seconds=0.2)


def test_the_quantizer_of_a_run_may_be_a_finished_one(music_run: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    (whole / "recipe.yaml").write_text(f"{{system: musiclm, quantizer: {music_run / 'quantizer'}}}")
    assert load_embed_quantizer(whole).fingerprint() == load_embed_quantizer(music_run).fingerprint()
    (whole / "recipe.yaml").write_text("{system: musiclm, quantizer: {recipe: mulan-quantizer/tiny}}")
    with pytest.raises(UserError, match="There is no quantizer"):
        load_embed_quantizer(whole)


def test_each_prompt_goes_on_from_its_own_wave(music: MusicLM) -> None:
    primes = tones(8)[[0, 7], : 20 * FRAME]
    both = music(TEXTS, prime_wave=primes, seconds=0.2, seed=1)
    assert both.shape == (2, 30 * FRAME)
    for text, prime, wave in zip(TEXTS, primes, both, strict=True):
        assert torch.equal(wave, music(text, prime_wave=prime, seconds=0.2, seed=1))
    one_for_all = music(TEXTS, prime_wave=primes[:1], seconds=0.2, seed=1)
    assert torch.equal(one_for_all[0], both[0])
    assert not torch.equal(one_for_all[1], both[1])
    alone = music(prime_wave=primes, seconds=0.2, seed=1)
    assert torch.equal(alone[1], music(prime_wave=primes[1], seconds=0.2, seed=1))


def test_samples_of_each_prompt_go_on_from_its_own_wave(music: MusicLM, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    plain = music.audio_lm.forward
    monkeypatch.setattr(music.audio_lm, "forward", lambda **asked: given.update(asked) or plain(**asked))
    primes = tones(8)[[0, 7], : 5 * FRAME]
    music.draw(TEXTS, 2, prime_wave=primes, seconds=0.1)
    assert torch.equal(given["prime_wave"], primes[[0, 0, 1, 1]])


def test_channels_are_not_taken_for_prompts(music: MusicLM) -> None:
    stereo = tones(2)[:, : 20 * FRAME]
    with pytest.raises(UserError, match=r"2 rows for 1 prompts.*mean of its channels"):
        music("a low hum", prime_wave=stereo, seconds=0.2)
    with pytest.raises(UserError, match="prime_wave has 3 dimensions"):
        music(TEXTS, prime_wave=stereo[None].repeat(2, 1, 1), seconds=0.2)
    with pytest.raises(UserError, match="audio has 3 dimensions"):
        music(audio=stereo[None], seconds=0.2)


def test_several_sounds_make_as_many_rows(music: MusicLM) -> None:
    sounds = tones(2)
    made = music(audio=sounds, seconds=0.2)
    assert made.shape == (2, 10 * FRAME)
    assert torch.equal(made[1], music(audio=sounds[1], seconds=0.2))


def test_somebody_who_waits_sees_that_music_is_made(
    music_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    class Bar:
        def __init__(self, label: str) -> None:
            self.label = label

        def __enter__(self) -> None:
            told.append(self.label)

        def __exit__(self, *_: object) -> None:
            told.append("done")

    def drawn(model: MusicLM, *asked: Any, **options: Any) -> Any:
        told.append("drawn")
        return plain(model, *asked, **options)

    plain = MusicLM.draw
    monkeypatch.setattr(MusicLM, "draw", drawn)
    monkeypatch.setattr(music_verb, "Bar", Bar)
    Command(capsys).done("generate", music_run, "--text", "a hum", "--seconds", "0.2", "-o", tmp_path / "out.wav")
    assert told == ["Generating", "drawn", "done"]


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        ({"audio": torch.zeros(0)}, "audio has no samples"),
        ({"audio": torch.full((1600,), float("nan"))}, "audio has samples that are not finite"),
        ({"text": "a hum", "prime_wave": torch.zeros(0)}, "prime_wave has no samples"),
        ({"text": "a hum", "prime_wave": torch.full((1600,), float("inf"))}, "prime_wave has samples that are not fin"),
        ({"audio": torch.zeros(1600), "audio_sample_hz": 0}, "audio_sample_hz is 0"),
        ({"audio": torch.zeros(1600), "audio_sample_hz": -5}, "audio_sample_hz is -5"),
        ({"prime_wave": torch.zeros(1600), "prime_wave_input_sample_hz": -5}, "prime_wave_input_sample_hz is -5"),
        ({"text": [1, 2]}, "A text is no string"),
        ({"text": "a hum", "seed": 1.5}, "seed is 1.5"),
        ({"text": ["a hum", "a tone"], "seed": [1]}, "1 seeds are given for 2 prompts"),
        ({"text": ["a hum", "a tone"], "seed": [1, 2, 3]}, "3 seeds are given for 2 prompts"),
    ],
)
def test_what_is_no_prompt_is_said(music: MusicLM, asked: dict[str, Any], why: str) -> None:
    with pytest.raises(UserError, match=why):
        music.draw(**asked, seconds=0.1)


def test_a_seed_is_any_whole_number(music: MusicLM) -> None:
    wanted = music(TEXTS, seconds=0.1, seed=3)
    assert torch.equal(music(TEXTS, seconds=0.1, seed=np.int64(3)), wanted)  # type: ignore[arg-type]
    assert torch.equal(music(TEXTS, seconds=0.1, seed=np.full(2, 3)), wanted)


@pytest.mark.parametrize("option", ["--like", "--prompt"])
def test_a_file_without_samples_is_named(
    music_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    soundfile.write(tmp_path / "empty.wav", np.zeros(0), 16000)
    words = ("generate", music_run, option, tmp_path / "empty.wav", "--seconds", "0.1", "-o", tmp_path / "out.wav")
    assert f"{tmp_path / 'empty.wav'} cannot be used: it has no samples" in Command(capsys).refused(*words)
