"""What comes out: as long as was asked for, led by its prompt and its words, and the same in any company."""

from typing import Any

import pytest
import torch
from torch import Tensor
from voicebox_flows import DIM, IDS, Blocks, Ears, Speaker, features, ids, model, wrapper

from madrigal.errors import UserError
from madrigal.speartts.model import TextToSemantic
from madrigal.voicebox import filling
from madrigal.voicebox.filling import fill
from madrigal.voicebox.frame_ids import spread

LENGTHS = torch.tensor([10, 7, 9])


def test_VB2_two_prompts_give_two_outputs() -> None:
    flows = wrapper()
    first, second = (flows.sample(cond=features(1, 4, seed), ids=ids(1, 10), steps=2) for seed in (1, 2))
    assert not torch.allclose(first[:, 4:], second[:, 4:], atol=1e-3)
    assert torch.equal(first[:, :4], features(1, 4, 1))


@pytest.mark.parametrize("method", ["euler", "midpoint", "heun", "adaptive"])
def test_given_frames_stay_as_they_are(method: Any) -> None:
    flows, whole = wrapper(), features(2, 9)
    anew = torch.zeros(2, 9, dtype=torch.bool)
    anew[0, 3:6], anew[1, 7:] = True, True
    made = flows.sample(cond=whole, cond_mask=anew, ids=ids(2, 9), steps=2, method=method)
    assert torch.equal(made[~anew], whole[~anew])
    assert not torch.allclose(made[anew], whole[anew], atol=1e-2)


def test_given_frames_go_their_true_way() -> None:
    """The model has to see them on the straight way that it saw them on when it learned."""
    flows, whole, seen = wrapper(), features(1, 5), []
    flows.voicebox.from_noisy.register_forward_pre_hook(lambda _, given: seen.append(given[0].clone()))
    given = torch.tensor([[True, True, False, False, False]])
    noise = features(1, 5, 9)
    fill(flows.voicebox, [5], context=whole, context_mask=given, noise=noise, steps=4, method="euler")
    for step, x in enumerate(seen):
        torch.testing.assert_close(x[given], torch.lerp(noise, whole, step / 4)[given])


@pytest.mark.parametrize("method", ["midpoint", "adaptive"])
@pytest.mark.parametrize("cond_scale", [1.0, 2.0])
def test_VB4_batched_rows_equal_single_rows(method: Any, cond_scale: float) -> None:
    flows = wrapper(cond_drop_prob=0.2, voice_dim=4)
    if method == "adaptive":
        # A flow so wild that the last digit decides how long a step is would end elsewhere.
        for parameter in flows.parameters():
            parameter.data *= 0.3
    said = ids(3, 10).masked_fill(torch.arange(10) >= LENGTHS[:, None], -1)
    options: dict[str, Any] = {"steps": 2, "method": method, "cond_scale": cond_scale}
    prompts, counts = features(3, 4), torch.tensor([4, 2, 3])
    together = flows.sample(cond=prompts, cond_lengths=counts, ids=said, lengths=LENGTHS, seed=5, **options)
    for row, (length, count) in enumerate(zip(LENGTHS.tolist(), counts.tolist(), strict=True)):
        alone = flows.sample(
            cond=prompts[row : row + 1, :count],
            ids=said[row : row + 1, :length],
            lengths=[length],
            seed=5 + row,
            **options,
        )
        torch.testing.assert_close(together[row, :length], alone[0], rtol=1e-3, atol=1e-3)
        assert not together[row, length:].any()


@pytest.mark.parametrize("voice_dim", [0, 4])
@pytest.mark.parametrize("cond_scale", [1.0, 2.0])
def test_what_is_made_of_the_times_beforehand_changes_nothing(
    cond_scale: float, voice_dim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    speaker = model(cond_drop_prob=0.2, voice_dim=voice_dim)
    given = torch.arange(9)[None].expand(2, -1) < 4
    options: dict[str, Any] = {"context": features(2, 9), "context_mask": given, "ids": ids(2, 9), "steps": 3}
    timed: list[int] = []
    speaker.time.register_forward_hook(lambda *_: timed.append(1))
    made = fill(speaker, [9, 9], **options, cond_scale=cond_scale).features
    assert len(timed) == 1
    monkeypatch.setattr(filling, "times_asked", lambda *_: None)
    torch.testing.assert_close(fill(speaker, [9, 9], **options, cond_scale=cond_scale).features, made)
    assert len(timed) == 1 + 6


@pytest.mark.parametrize("cond_scale", [1.0, 2.0])
def test_sixteen_bits_need_no_prompt(cond_scale: float) -> None:
    speaker = model(cond_drop_prob=0.2, voice_dim=4)
    options: dict[str, Any] = {"ids": ids(2, 9), "steps": 2, "cond_scale": cond_scale}
    exact = fill(speaker, [9, 7], **options).features
    with torch.autocast("cpu", torch.bfloat16):
        rough = fill(speaker, [9, 7], **options).features
    assert (rough - exact).norm() < 0.1 * exact.norm()


def test_nothing_is_prepared_for_too_many_moments_or_for_layers_that_are_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    speaker, timed = model(), []
    speaker.time.register_forward_hook(lambda *_: timed.append(1))
    fill(speaker, [9], ids=ids(1, 9), steps=129)
    assert len(timed) == 258
    timed.clear()
    for block in speaker.blocks():
        monkeypatch.setattr(block, "_compiled_call_impl", block._call_impl)
    fill(speaker, [9], ids=ids(1, 9), steps=2)
    assert len(timed) == 4


@pytest.mark.parametrize("times", [0.5, torch.tensor(0.5), torch.tensor([0.5]), torch.tensor([0.5, 0.5, 0.5])])
def test_guidance_takes_one_time_for_all_rows(times: Any) -> None:
    speaker, x = model(cond_drop_prob=0.2), features(3, 5)
    made = speaker.forward_with_cond_scale(x, times=times, cond_scale=2.0, ids=ids(3, 5))
    wanted = speaker.forward_with_cond_scale(x, times=torch.full((3,), 0.5), cond_scale=2.0, ids=ids(3, 5))
    torch.testing.assert_close(made, wanted)


def test_VB2_a_prompt_that_does_not_say_what_of_it_is_given_is_refused() -> None:
    for given in ({"context": features(1, 4)}, {"context_mask": torch.ones(1, 4, dtype=torch.bool)}):
        with pytest.raises(UserError, match="comes with its context_mask"):
            fill(wrapper().voicebox, [4], **given)  # type: ignore[arg-type]


def test_less_than_a_frame_is_nothing() -> None:
    with pytest.raises(UserError, match="nothing to make"):
        wrapper(Blocks()).sample(seconds=0.001)


@pytest.mark.parametrize("seconds", [0.07, 0.1234, 1.0])
@pytest.mark.parametrize("prompt", [0, 3])
def test_VB3_the_length_is_what_was_asked_for(seconds: float, prompt: int) -> None:
    flows = wrapper(Blocks())
    cond = features(1, prompt).flatten(1) if prompt else None
    wave = flows.sample(cond=cond, seconds=seconds, steps=1)
    assert abs(wave.shape[1] / Blocks.sample_rate - seconds) <= 1 / Blocks.frame_rate
    assert wave.shape[1] % DIM == 0


def test_VB3_tokens_of_another_rate_take_their_time() -> None:
    flows = wrapper(Blocks())
    flows.text_to_semantic = Speaker()
    wave = flows.sample(semantic_token_ids=ids(1, 20), steps=1)
    assert wave.shape[1] / Blocks.sample_rate == pytest.approx(20 / 50)
    with pytest.raises(UserError, match="how long these ids sound"):
        wrapper(Blocks()).sample(semantic_token_ids=ids(1, 20))


def writer(**options: Any) -> TextToSemantic:
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"dim": 16, "source_depth": 1, "target_depth": 1, "heads": 2, "dim_head": 8}
    text = {"kind": "characters", "alphabet": " abc"}
    made = TextToSemantic(wav2vec=Ears(), num_semantic_token_ids=IDS, text=text, **sizes, **options).eval()
    for name, parameter in made.named_parameters():
        if "norm" not in name:  # one that is new says the same token again and again
            torch.nn.init.normal_(parameter, std=0.1 / made.scale if name.startswith("tables") else 0.5)
    return made


TEXTS = ["abc cba abc", "ab"]


def test_VB3_VB4_texts_are_said_in_the_tokens_that_are_written_for_them() -> None:
    flows = wrapper(Blocks())
    flows.text_to_semantic = writer()
    tokens = flows.text_to_semantic.generate(TEXTS, source_type="text", target_type="speech").ids
    assert (tokens == -1).any()  # rows of different lengths
    made = flows.sample(texts=TEXTS, lengths=[90, 60], steps=1, decode_to_audio=False)
    laid = spread(tokens, torch.tensor([90, 60]))
    wanted = flows.sample(ids=laid, lengths=[90, 60], steps=1, decode_to_audio=False)
    assert torch.equal(made, wanted)
    with pytest.raises(UserError, match="a token once, however long it sounds"):
        flows.sample(texts=TEXTS)
    flows.text_to_semantic = writer(unique_consecutive=False)
    tokens = flows.text_to_semantic.generate(TEXTS, source_type="text", target_type="speech").ids
    counts = (tokens != -1).sum(1)
    wave = flows.sample(texts=TEXTS, steps=1)
    assert wave.shape[1] / Blocks.sample_rate == pytest.approx(int(counts.max()) / Ears.frame_rate)


def test_VB10_semantic_tokens_are_not_timed_by_a_predictor_of_phonemes() -> None:
    class Phonemes(Durations):
        symbols: Any = object()

    flows = wrapper(Blocks())
    flows.text_to_semantic, flows.duration_predictor = writer(), Phonemes()
    for words in ({"texts": TEXTS}, {"semantic_token_ids": ids(2, 4)}):
        with pytest.raises(UserError, match="knows the symbols of texts, and no semantic tokens"):
            flows.sample(**words)
    flows.duration_predictor = Durations()
    tokens = flows.text_to_semantic.generate(TEXTS, source_type="text", target_type="speech").ids
    made = flows.sample(texts=TEXTS, steps=1, decode_to_audio=False)
    assert made.shape[1] == 2 * int((tokens != -1).sum(1).max())


def test_VB7_VB10_no_prompt_is_needed_and_generate_is_sample() -> None:
    flows = wrapper()
    assert torch.equal(flows.generate(ids=ids(2, 6), steps=1), flows.sample(ids=ids(2, 6), steps=1))
    assert flows.sample(lengths=4, steps=1).shape == (1, 4, DIM)


def test_VB5_VB12_guidance_without_a_ground_is_refused() -> None:
    with pytest.raises(UserError, match="train with cond_drop_prob"):
        wrapper().sample(ids=ids(1, 4), cond_scale=2.0)
    unconditional = wrapper(condition_on_text=False, cond_drop_prob=0.2)
    assert unconditional.sample(lengths=5, steps=1).shape == (1, 5, DIM)
    with pytest.raises(UserError, match="neither ids nor a prompt"):
        unconditional.sample(lengths=5, cond_scale=2.0)
    with pytest.raises(UserError, match="neither ids nor a prompt"):
        wrapper(cond_drop_prob=0.2).sample(ids=torch.full((1, 4), -1), lengths=4, cond_scale=2.0)
    led = unconditional.sample(cond=features(1, 2), lengths=5, cond_scale=2.0, steps=1)
    assert not torch.allclose(led, unconditional.sample(cond=features(1, 2), lengths=5, steps=1), atol=1e-3)


def test_VB13_steps_are_intervals_and_the_calls_are_counted() -> None:
    flows = wrapper(cond_drop_prob=0.1)
    calls: list[int] = []
    flows.voicebox.transformer.register_forward_pre_hook(lambda _, given: calls.append(len(given[0])))
    for method, each in (("euler", 1), ("midpoint", 2), ("heun", 2)):
        calls.clear()
        filled = fill(flows.voicebox, [4], ids=ids(1, 4), steps=3, method=method, cond_scale=2.0)  # type: ignore[arg-type]
        assert filled.evaluations == len(calls) == 3 * each
        assert set(calls) == {2}


def test_seeds_and_noise() -> None:
    flows = wrapper()

    def made(**options: Any) -> Tensor:
        return flows.sample(ids=ids(2, 6), steps=1, **options)

    assert torch.equal(made(seed=3), made(seed=[3, 4]))
    assert not torch.allclose(made(seed=3), made(seed=4))
    assert not torch.allclose(made(seed=None), made(seed=None))
    noise = features(2, 6, 8)
    assert torch.equal(made(noise=noise, seed=1), made(noise=noise, seed=2))


def test_sampling_leaves_mode_and_gradients_alone() -> None:
    flows = wrapper(ff_dropout=0.5).train()
    assert not flows.sample(ids=ids(1, 6), steps=1).requires_grad
    assert flows.voicebox.training


class Durations:
    """Two frames for a symbol, or as many as are asked for."""

    symbols = None

    def predict(self, symbols: Tensor, lengths: Tensor, *, frames: Tensor | None = None) -> Tensor:
        real = (symbols != -1).long()
        if frames is None:
            return real * 2
        durations = real.clone()
        durations[:, 0] += frames - real.sum(1)
        return durations


def test_VB9_VB10_symbols_get_their_durations_from_a_predictor() -> None:
    flows = wrapper()
    flows.duration_predictor = Durations()
    symbols = torch.tensor([[1, 2, 3], [4, 5, -1]])
    made = flows.sample(phoneme_ids=symbols, steps=1)
    expanded = torch.tensor([[1, 1, 2, 2, 3, 3], [4, 4, 5, 5, -1, -1]])
    assert torch.equal(made, flows.sample(ids=expanded, steps=1))
    prompted = flows.sample(phoneme_ids=symbols, cond=features(2, 4), steps=1)
    behind = torch.cat((torch.full((2, 4), -1), expanded), dim=1)
    assert torch.equal(prompted, flows.sample(ids=behind, cond=features(2, 4), steps=1))
    assert flows.sample(phoneme_ids=symbols, lengths=[9, 8], steps=1).shape == (2, 9, DIM)
    with pytest.raises(UserError, match="knows ids alone"):
        flows.sample(texts=["hello"])


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "How much is to be made"),
        ({"cond": features(1, 3)}, "How much is to be made"),
        ({"cond": features(1, 3), "lengths": 3}, "no longer than the prompt"),
        ({"cond_mask": torch.ones(1, 3, dtype=torch.bool)}, "give the recording as cond"),
        ({"cond": features(1, 3), "cond_mask": torch.ones(1, 4, dtype=torch.bool)}, "cond_mask has the shape"),
        ({"cond": features(1, 3), "cond_mask": torch.ones(1, 3, dtype=torch.bool), "lengths": 5}, "keeps its length"),
        ({"ids": ids(1, 3), "phoneme_ids": ids(1, 3)}, "given twice"),
        ({"ids": ids(2, 5), "cond": features(1, 3)}, "1 and 2 rows"),
        ({"lengths": 3, "seconds": 1.0}, "given twice"),
        ({"seconds": 1.0}, "ask by lengths"),
        ({"texts": ["so"]}, "duration_predictor or a text_to_semantic"),
        ({"lengths": 0}, "nothing to make"),
        ({"cond": features(1, 3), "lengths": 0}, "nothing to make"),
        ({"cond": features(1, 3)[0], "lengths": 9}, "neither waves"),
        ({"ids": ids(1, 9), "lengths": 4}, "has 9 ids and 4 frames"),
        ({"ids": ids(1, 4), "lengths": 9}, "has 4 ids and 9 frames"),
        ({"lengths": 3, "noise": features(1, 4)}, "noise has the shape"),
        ({"lengths": 3, "steps": 0}, "at least one interval"),
        ({"ids": ids(1, 3), "lengths": [3, 4]}, "2 lengths were given for 1 rows"),
        ({"ids": torch.full((1, 3), IDS)}, "knows ids"),
        ({"lengths": 3, "stepz": 4}, "did you mean steps"),
        ({"lengths": 3, "decode_to_codes": True}, "decode_to_codes=False only"),
        ({"lengths": 3, "method": "rk9"}, "no solver"),
        ({"lengths": 3, "seed": [1, 2]}, "2 seeds"),
    ],
)
def test_what_cannot_be_made_is_refused_in_words(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        wrapper().sample(**{"steps": 1, **options})
