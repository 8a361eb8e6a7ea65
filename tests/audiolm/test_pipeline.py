"""The whole of AudioLM: lengths, prompts, batches, windows, streaming, and parts that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import soundfile
import torch
from torch import Tensor

from madrigal.audiolm.acoustic import AcousticStages
from madrigal.audiolm.coarse import CoarseTransformer
from madrigal.audiolm.decoding import Decoding
from madrigal.audiolm.fine import FineTransformer
from madrigal.audiolm.pipeline import AudioLM
from madrigal.audiolm.semantic import SemanticTransformer
from madrigal.data.audio import read
from madrigal.errors import UserError
from madrigal.layers.sampling import Sampling
from madrigal.soundstream.codec import SoundStream
from madrigal.tokenizers.mel_kmeans import MelKmeans, MelKmeansConfig

RATE, HOP, TOKEN = 16000, 320, 640
SIZE: dict[str, Any] = {"dim": 32, "depth": 1, "heads": 2, "dim_head": 16}
CLUSTERS, CODES, LEVELS = 12, 16, 4


def wave_of(sounds: Path, number: int, samples: int) -> Tensor:
    return read(sounds / f"{number}.wav", sample_rate=RATE, channels=1)[0, :samples]


def parts(**changes: dict[str, Any]) -> dict[str, Any]:
    """Small stages that nobody has trained, with their tokenizer and codec; `changes` by the name of a part."""
    torch.manual_seed(0)
    tokenizer = MelKmeans(MelKmeansConfig(codebook_size=CLUSTERS, **changes.get("wav2vec", {})))
    tokenizer.centroids.normal_()
    codec = {
        "strides": (8, 40),
        "channels": 2,
        "channel_mults": (2, 4),
        "codebook_dim": 8,
        "codebook_size": CODES,
        "rq_num_quantizers": LEVELS,
        "use_local_attn": False,
    }
    clock = {"unique_consecutive": False}
    semantic = {"num_semantic_tokens": CLUSTERS, **clock}
    acoustic = {"codebook_size": CODES, "num_coarse_quantizers": 2}
    return {
        "wav2vec": tokenizer,
        "codec": SoundStream(discriminators=False, **{**codec, **changes.get("codec", {})}).eval(),
        "semantic_transformer": SemanticTransformer(**{**SIZE, **semantic, **changes.get("semantic", {})}),
        "coarse_transformer": CoarseTransformer(
            **{**SIZE, **semantic, **acoustic, "frames_per_semantic": 2.0, **changes.get("coarse", {})}
        ),
        "fine_transformer": FineTransformer(
            **{**SIZE, **acoustic, "num_fine_quantizers": 2, **changes.get("fine", {})}
        ),
    }


def delayed(**changes: dict[str, Any]) -> AudioLM:
    """A coarse stage that draws all codebooks side by side, and no fine stage."""
    coarse = {"num_coarse_quantizers": LEVELS, "pattern": "delay", **changes.pop("coarse", {})}
    return AudioLM(**{**parts(coarse=coarse, **changes), "fine_transformer": None})


@pytest.mark.parametrize("seconds", [0.1, 0.333, 1.09])
def test_AM10_length_is_what_was_asked_for(model: AudioLM, sounds: Path, seconds: float) -> None:
    assert abs(model(seconds=seconds).shape[1] - seconds * RATE) <= HOP
    prompt = wave_of(sounds, 0, 9 * TOKEN)
    after = model(seconds=seconds, prime_wave=prompt[None])
    assert abs(after.shape[1] - len(prompt) - seconds * RATE) <= HOP


def test_AM10_length_holds_where_tokens_have_no_durations() -> None:
    unique = {"unique_consecutive": True}
    model = AudioLM(**parts(semantic=unique, coarse={**unique, "frames_per_semantic": None}))
    assert model(seconds=0.5).shape == (1, RATE // 2)


def test_without_a_length_the_semantic_tokens_decide(model: AudioLM) -> None:
    wave = model(max_length=5)
    assert wave.shape[1] % TOKEN == 0
    assert wave.shape[1] <= 5 * TOKEN


def test_a_prompt_by_wave_file_and_ids_is_the_same(model: AudioLM, sounds: Path, tmp_path: Path) -> None:
    prompt = wave_of(sounds, 1, 8 * TOKEN)
    soundfile.write(tmp_path / "prompt.wav", prompt.numpy(), RATE)
    ids, _ = model.wav2vec.tokenize(prompt[None])
    codes = model.codec.tokenize(prompt[None])
    by_wave = model(seconds=0.2, prime_wave=prompt[None])
    by_file = model(seconds=0.2, prime_wave_path=tmp_path / "prompt.wav")
    by_ids = model(seconds=0.2, prime_ids=[ids[0]], prime_codes=[codes[0]])
    assert by_wave.shape == (1, len(prompt) + RATE // 5)
    assert torch.equal(by_wave, model(seconds=0.2, prime_wave=prompt))
    assert torch.equal(by_wave, by_file)
    assert torch.equal(by_wave, by_ids)


def test_sound_begins_with_the_prompt(model: AudioLM, sounds: Path) -> None:
    """As the codec gives it back with the codebooks that the stages know."""
    prompt = wave_of(sounds, 1, 16 * TOKEN)
    made = model(seconds=0.2, prime_wave=prompt[None])
    levels = model.coarse_transformer.num_quantizers + model.fine_transformer.num_quantizers  # type: ignore[union-attr]
    heard = model.codec.decode_from_codebook_indices(model.codec.tokenize(prompt[None])[..., :levels])[0]
    sure = len(prompt) - model.codec.latency
    torch.testing.assert_close(made[:, :sure], heard[:, :sure])


def test_VB2_different_prompts_give_different_sound(model: AudioLM, sounds: Path) -> None:
    made = model(seconds=0.4, prime_wave=[wave_of(sounds, number, 8 * TOKEN) for number in (2, 3)], seed=[5, 5])
    new = made[:, 8 * TOKEN + model.codec.latency :]
    assert not torch.allclose(new[0], new[1], atol=1e-3)


def test_a_seed_repeats_and_another_does_not(model: AudioLM) -> None:
    first = model(seconds=0.2, seed=3)
    assert torch.equal(first, model(seconds=0.2, seed=3))
    assert not torch.equal(first, model(seconds=0.2, seed=4))
    greedy = Sampling(temperature=0.0)
    assert torch.equal(*(model(seconds=0.2, seed=seed, sampling=greedy) for seed in (3, 4)))


@pytest.mark.parametrize("kind", ["trained", "delayed"])
def test_AM7_AM8_a_batch_of_prompts_is_the_prompts_one_by_one(model: AudioLM, sounds: Path, kind: str) -> None:
    """Prompts of 0.2 to 0.8 seconds, and 0.8 more: the trained model, which had one second, does it in windows."""
    model = model if kind == "trained" else delayed()
    prompts = [wave_of(sounds, number, (5 + 8 * number) * TOKEN + 100) for number in range(3)]
    together = model(seconds=0.8, prime_wave=prompts, seed=10)
    assert len({len(wave) for wave in together}) == 3
    for number, prompt in enumerate(prompts):
        alone = model(seconds=0.8, prime_wave=[prompt], seed=10 + number)
        assert torch.equal(alone[0], together[number])


def test_equal_lengths_come_as_one_tensor(model: AudioLM) -> None:
    made = model(seconds=0.2, batch_size=3)
    assert made.shape == (3, RATE // 5)
    assert len({tuple(row.tolist()) for row in made}) == 3


def test_208_longer_than_the_training_length_goes_by_windows(model: AudioLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stage had one second; nothing ever asks it for more at a time."""
    asked: dict[str, list[int]] = {}
    begin = Decoding.__init__

    def note(self: Decoding, stage: Any, streams: Any, frames: Tensor, **options: Any) -> None:
        begin(self, stage, streams, frames, **options)
        asked.setdefault(self.section.name, []).append(int(frames.max()))

    monkeypatch.setattr(Decoding, "__init__", note)
    assert model(seconds=1.6).shape == (1, RATE * 8 // 5)
    assert {name: max(frames) for name, frames in asked.items()} == {"semantic": 25, "coarse": 50, "fine": 50}
    assert min(map(len, asked.values())) >= 2


def test_AM18_a_stereo_prompt_is_mixed(model: AudioLM, sounds: Path, tmp_path: Path) -> None:
    left, right = (wave_of(sounds, number, 8 * TOKEN) for number in (4, 5))
    both = torch.stack((left, right))
    soundfile.write(tmp_path / "stereo.wav", both.T.numpy(), RATE, subtype="FLOAT")
    mixed = model(seconds=0.2, prime_wave=both.mean(0)[None])
    assert mixed.shape[0] == 1
    assert torch.equal(model(seconds=0.2, prime_wave_path=tmp_path / "stereo.wav"), mixed)
    assert torch.equal(model(seconds=0.2, prime_wave=both[None]), mixed)


def test_AM24_stereo_stays_stereo(sounds: Path, tmp_path: Path) -> None:
    """With a codec of two channels; the tokenizer hears their mean."""
    model = AudioLM(**parts(codec={"input_channels": 2}))
    both = torch.stack([wave_of(sounds, number, 8 * TOKEN) for number in (4, 5)])
    soundfile.write(tmp_path / "stereo.wav", both.T.numpy(), RATE, subtype="FLOAT")
    made = model(seconds=0.2, prime_wave=both[None])
    assert made.shape == (1, 2, 8 * TOKEN + RATE // 5)
    assert torch.equal(model(seconds=0.2, prime_wave_path=tmp_path / "stereo.wav"), made)
    lengths = [wave.shape for wave in model(seconds=0.2, prime_wave=[both, both[:1, : 4 * TOKEN]])]
    assert lengths == [(2, 8 * TOKEN + RATE // 5), (2, 4 * TOKEN + RATE // 5)]
    batch = {"audio": both[:, None], "lengths": torch.tensor([8 * TOKEN, 5 * TOKEN])}
    assert model.coarse.streams(batch)[1].lengths.tolist() == [16, 10]


def test_AM18_a_missing_file_is_one_sentence(model: AudioLM) -> None:
    with pytest.raises(UserError, match=r"^The file nowhere\.wav cannot be used: there is no such file\.$"):
        model(seconds=0.2, prime_wave_path="nowhere.wav")


def test_a_prompt_at_another_rate_is_resampled(model: AudioLM, sounds: Path) -> None:
    prompt = read(sounds / "0.wav", sample_rate=8000, channels=1)[:, : 8 * TOKEN // 2]
    made = model(seconds=0.2, prime_wave=prompt, prime_wave_input_sample_hz=8000)
    assert abs(made.shape[1] - 8 * TOKEN - RATE // 5) <= TOKEN


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "two prompts": ({"prime_wave": torch.zeros(1, TOKEN), "prime_wave_path": "x.wav"}, "Give one prompt"),
    "ids without codes": ({"prime_ids": [torch.zeros(3, dtype=torch.long)]}, "needs both"),
    "a prompt of nothing": ({"prime_wave": torch.zeros(1, 100)}, "shorter than 0.04 seconds"),
    "seeds for other rows": ({"seed": [1, 2], "batch_size": 3}, "2 seeds were given for 3 rows"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_cannot_be_is_refused(model: AudioLM, why: str) -> None:
    options, sentence = REFUSED[why]
    with pytest.raises(UserError, match=sentence):
        model(seconds=0.2, **options)


def test_a_text_that_nobody_reads_is_told(model: AudioLM) -> None:
    with pytest.warns(UserWarning, match="None of the stages was trained with a condition"):
        model(seconds=0.1, text=["rain"])


@pytest.mark.parametrize("stage", ["semantic", "coarse", "fine"])
def test_AM1_a_text_is_heard_through_any_stage_that_takes_one(stage: str) -> None:
    conditioned = {"has_condition": True, "text_encoder": "bytes"}
    model = AudioLM(**parts(**{stage: conditioned}))
    assert model.is_conditioned
    # Heads that have learned nothing say almost the same of everything: let them speak up.
    for name, weight in model.named_parameters():
        weight.data *= 100 if ".heads." in name else 1

    def made(text: str | None, cond_scale: float = 1.0) -> Tensor:
        sampling = Sampling(cond_scale=cond_scale)
        return model(seconds=0.4, text=None if text is None else [text], sampling=sampling)

    waves = [made(None), made("rain"), made("a bell"), made("a bell", cond_scale=3.0)]
    for number, wave in enumerate(waves):
        assert all(not torch.equal(wave, other) for other in waves[number + 1 :])
    assert torch.equal(model(seconds=0.4, text="rain", sampling=Sampling()), waves[1])
    two = model(seconds=0.4, text=["rain", "a bell"], seed=[0, 0])
    torch.testing.assert_close(two, torch.cat(waves[1:3]))


def test_the_coarse_codes_can_be_heard_alone(model: AudioLM) -> None:
    whole = model(seconds=0.2)
    coarse = model(seconds=0.2, return_coarse_generated_wave=True)
    masked = model(seconds=0.2, mask_out_generated_fine_tokens=True)
    assert whole.shape == coarse.shape == masked.shape
    torch.testing.assert_close(masked, coarse)
    assert not torch.allclose(whole, coarse, atol=1e-4)


@pytest.mark.parametrize("window", [None, 0.6])
@pytest.mark.parametrize("prompted", [True, False])
def test_streaming_a_coarse_stage_is_the_whole(sounds: Path, window: float | None, prompted: bool) -> None:
    model = delayed(coarse={"window_seconds": window})
    options: dict[str, Any] = {"seconds": 1.0, "seed": 2}
    if prompted:
        options["prime_wave"] = wave_of(sounds, 6, 10 * TOKEN)[None]
    pieces = list(model.stream(chunk_seconds=0.2, **options))
    assert len(pieces) > 4
    torch.testing.assert_close(torch.cat(pieces), model(**options)[0], atol=1e-5, rtol=0)


def test_streaming_with_a_fine_stage_has_the_same_coarse_codes_and_length(
    model: AudioLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[Tensor] = []
    result = AcousticStages.fine

    def note(self: AcousticStages, coarse: list[Tensor], *more: Any) -> list[Tensor]:
        drawn.append(coarse[0])
        return result(self, coarse, *more)

    monkeypatch.setattr(AcousticStages, "fine", note)
    whole = model(seconds=0.6, seed=1)
    streamed = torch.cat(list(model.stream(seconds=0.6, chunk_seconds=0.2, seed=1)))
    assert torch.equal(drawn[0], drawn[-1])
    assert len(streamed) == whole.shape[1]


@pytest.mark.parametrize("kind", ["trained", "delayed"])
def test_the_first_piece_leaves_before_the_last_code_is_drawn(
    model: AudioLM, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model if kind == "trained" else delayed()
    columns = 0
    advance = Decoding.advance

    def note(self: Decoding) -> None:
        nonlocal columns
        columns += self.section.name == "coarse"
        advance(self)

    monkeypatch.setattr(Decoding, "advance", note)
    stream = model.stream(seconds=0.8, chunk_seconds=0.1)
    next(stream)
    first = columns
    assert sum(len(piece) for piece in stream) > 0
    assert first <= columns / 2


def test_a_codec_that_cannot_stream_says_so() -> None:
    model = delayed()
    model.codec.stream_decoder = lambda: None
    with pytest.raises(UserError, match="cannot decode piece by piece"):
        next(model.stream(seconds=0.2))


MISFITS: dict[str, tuple[dict[str, Any], str]] = {
    "tokenizer": (
        {"semantic": {"num_semantic_tokens": 13}, "coarse": {"num_semantic_tokens": 13}},
        "the semantic stage's num_semantic_tokens is 13, and the tokenizer's codebook_size is 12",
    ),
    "semantic": (
        {"coarse": {"num_semantic_tokens": 13}},
        "the coarse stage's num_semantic_tokens is 13, and the semantic stage's is 12",
    ),
    "durations": (
        {"coarse": {"unique_consecutive": True, "frames_per_semantic": None}},
        "the coarse stage's unique_consecutive is True, and the semantic stage's is False",
    ),
    "codec": (
        {"codec": {"codebook_size": 32}},
        "the coarse stage's codebook_size is 16, and the codec's is 32",
    ),
    "groups": (
        {"codec": {"rq_groups": 2}},
        "the coarse stage's rq_groups is 1, and the codec's is 2",
    ),
    "fine": (
        {"fine": {"num_coarse_quantizers": 1}},
        "the fine stage's num_coarse_quantizers is 1, and the coarse stage's is 2",
    ),
    "clock": (
        {"wav2vec": {"frames_per_token": 2}},
        "the coarse stage's frames_per_semantic is 2.0, and the codec and the tokenizer's is 1.0",
    ),
    "levels": (
        {"fine": {"num_fine_quantizers": 3}},
        "the stages draw 5 codebooks, and the codec has 4",
    ),
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_parts_that_do_not_fit_are_refused(misfit: str) -> None:
    changes, sentence = MISFITS[misfit]
    with pytest.raises(UserError, match=f"^The parts of AudioLM do not fit: {sentence}"):
        AudioLM(**parts(**changes))


def test_246_groups_of_a_codec_are_heard_right() -> None:
    """A level of two groups has two codebooks: two coarse levels and two fine ones are eight columns."""
    groups: dict[str, Any] = {"rq_groups": 2}
    model = AudioLM(**parts(codec=groups, coarse=groups, fine=groups))
    assert model(seconds=0.2).shape == (1, RATE // 5)
    assert model.acoustic.quantizers == 2 * LEVELS


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"seconds": -1.0}, "more than 0"),
        ({"seconds": 0.2, "sampling": {"semantics": Sampling()}}, "no stage 'semantics'"),
        ({"seconds": 0.2, "sampling": {"coarse": 0.5}}, "sampling is 0.5; give a Sampling"),
        ({"seconds": 0.2, "prime_wave": torch.zeros(1, 6400), "prime_wave_input_sample_hz": 0}, "rate of the wave"),
    ],
)
def test_what_makes_no_sense_is_told(given: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        AudioLM(**parts())(**given)
