"""From sources of all kinds to targets, with the words of older scripts and in the shapes that they ask for."""

from functools import partial
from typing import Any

import pytest
import torch
from small_models import SPEECH, TEXT, small_model, sources
from torch import Tensor

from madrigal.data.tokens import PAD
from madrigal.errors import UserError
from madrigal.layers.sampling import RowNoise, Sampling
from madrigal.speartts.beam import beam_search
from madrigal.speartts.decoding import Generated, decode
from madrigal.speartts.generation import source_ids, write
from madrigal.speartts.model import TextToSemantic
from madrigal.speartts.speculative import speculate

TO_SPEECH: dict[str, Any] = {"source_type": "text", "target_type": "speech", "max_length": 10}
TO_TEXT: dict[str, Any] = {"source_type": "speech", "target_type": "text", "max_length": 10}


class Ear:
    """A semantic tokenizer of two samples a token: how loud they are, from 0 to 11."""

    target_sample_hz, codebook_size = 16000, SPEECH

    def tokenize(self, audio: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        pairs = audio[:, 0].float().unflatten(1, (-1, 2)).mean(2)
        ids, lengths = (pairs * SPEECH).long().clamp(0, SPEECH - 1), lengths // 2
        return ids.masked_fill(torch.arange(ids.shape[1]) >= lengths[:, None], PAD), lengths


def same(one: Generated, other: Generated) -> bool:
    return one.ids.shape == other.ids.shape and torch.equal(one.ids, other.ids)


def test_the_ways_of_decoding_are_chosen() -> None:
    model = small_model(5)
    ids, lengths = sources(3)
    with torch.no_grad():
        encoded = model.encode("text", ids, lengths)
    most, sampling = torch.full((3,), 10), Sampling(temperature=0.9, top_k=4)
    draws: dict[str, Any] = {"sampling": sampling, "noise": RowNoise([7, 8, 9])}
    plain = decode(model, "speech", encoded, most, **draws)
    assert same(model.generate(ids, sampling=sampling, seed=7, **TO_SPEECH), plain)
    drafted = speculate(model, "speech", encoded, most, gamma=2, **{**draws, "noise": RowNoise([7, 8, 9])})
    made = model.generate(ids, sampling=sampling, seed=7, spec_decode=True, spec_decode_gamma=2, **TO_SPEECH)
    assert same(made, drafted)
    searched = beam_search(model, "speech", encoded, most, beam_size=3, length_penalty=0.5)
    assert same(model.generate(ids, beam_search_decode=True, beam_size=3, length_penalty=0.5, **TO_SPEECH), searched)


@pytest.mark.parametrize(
    ("older", "sampling"),
    [
        ({"temperature": 0.7}, {"temperature": 0.7, "filter_thres": 0.9}),
        ({}, {"filter_thres": 0.9}),
        ({"filter_logits_fn": "top_k", "filter_fn_kwargs": {"thres": 0.5}}, {"filter_thres": 0.5}),
        ({"filter_fn_kwargs": {"k": 5}}, {"top_k": 5}),
        ({"filter_logits_fn": "top_p", "filter_fn_kwargs": {"thres": 0.6}}, {"top_p": 0.6}),
        ({"filter_logits_fn": "top_p"}, {"top_p": 0.9}),
        (
            {"cond_scale": 3.0, "temperature": 2.0, "filter_fn_kwargs": {"k": 9}},
            {"cond_scale": 3.0, "temperature": 2.0, "top_k": 9},
        ),
    ],
    ids=str,
)
def test_older_words_say_how_tokens_are_drawn(older: dict[str, Any], sampling: dict[str, Any]) -> None:
    model = small_model(5)
    ids, _ = sources(4)
    ours = model.generate(ids, **older, **TO_SPEECH)
    assert same(ours, model.generate(ids, sampling=Sampling(**sampling), **TO_SPEECH))


def test_filters_of_older_scripts_are_known_by_their_names() -> None:
    def top_p(logits: Tensor, thres: float = 0.9) -> Tensor:
        return logits

    model = small_model(5)
    ids, _ = sources(4)
    given = {"filter_fn_kwargs": {"thres": 0.3}, **TO_SPEECH}
    named, function = (model.generate(ids, filter_logits_fn=one, **given) for one in ("top_p", top_p))
    assert same(named, function)
    with pytest.raises(UserError, match="top_k or top_p, not sparsemax"):
        model.generate(ids, filter_logits_fn="sparsemax", **TO_SPEECH)
    with pytest.raises(UserError, match="holds ratio"):
        model.generate(ids, filter_fn_kwargs={"ratio": 1}, **TO_SPEECH)


def test_filters_with_their_values_bound_keep_them() -> None:
    def top_p(logits: Tensor, thres: float = 0.9) -> Tensor:
        return logits

    class Filter:
        def __call__(self, logits: Tensor) -> Tensor:
            return logits

    model = small_model(5)
    ids, _ = sources(4)

    def made(function: Any, **options: Any) -> Generated:
        return model.generate(ids, filter_logits_fn=function, **options, **TO_SPEECH)

    expected = made("top_p", filter_fn_kwargs={"thres": 0.3})
    assert same(made(partial(top_p, thres=0.3)), expected)
    assert same(made(partial(partial(top_p, thres=0.8), thres=0.3)), expected)
    assert same(made(partial(top_p, thres=0.8), filter_fn_kwargs={"thres": 0.3}), expected)
    for wrong, said in (
        (Filter(), "not Filter"),
        (partial(Filter()), "not Filter"),
        (lambda logits: logits, "not <lambda>"),
        (partial(top_p, 0.3), "give them by name"),
    ):
        with pytest.raises(UserError, match=said):
            made(wrong)


@pytest.mark.parametrize("way", [{}, {"beam_search_decode": True}, {"spec_decode": True}], ids=str)
def test_autocast_changes_nothing_of_what_is_written(way: dict[str, Any]) -> None:
    for seed in range(5):
        model = small_model(seed)
        ids, _ = sources(3, seed)
        draws = {} if "beam_search_decode" in way else {"temperature": 0.0}
        expected = model.generate(ids, **way, **draws, **{**TO_SPEECH, "max_length": 20})
        with torch.autocast("cpu", dtype=torch.bfloat16):
            made = model.generate(ids, **way, **draws, **{**TO_SPEECH, "max_length": 20})
        assert same(made, expected)
        assert torch.equal(made.confidence, expected.confidence)


@pytest.mark.parametrize("source_type", ["speech", "text"])
@pytest.mark.parametrize("target_type", ["speech", "text"])
@pytest.mark.parametrize("way", [{}, {"beam_search_decode": True}, {"spec_decode": True}], ids=str)
def test_all_four_directions(source_type: str, target_type: str, way: dict[str, Any]) -> None:
    model = small_model(1)
    ids, _ = sources(3)
    made = model.generate(ids, source_type=source_type, target_type=target_type, max_length=8, **way)
    size = SPEECH if target_type == "speech" else TEXT
    assert ((made.ids >= 0) & (made.ids < size) == made.mask).all()
    again = model.generate(ids, source_type=source_type, target_type=target_type, max_length=8, **way)
    assert same(made, again)


def test_older_shapes_are_given_back() -> None:
    model = small_model(5)
    ids, lengths = sources(3)
    made = model.generate(ids, **TO_SPEECH)
    assert torch.equal(made.source, ids)
    assert torch.equal(made.source_lengths, lengths)
    target, mask = model.generate(ids, return_target_mask=True, **TO_SPEECH)
    assert torch.equal(target, made.ids)
    assert torch.equal(mask, made.ids != PAD)
    source, target = model.generate(ids, return_source=True, **TO_SPEECH)
    assert torch.equal(source, ids)
    assert torch.equal(target, made.ids)
    source, target, mask = model.generate(ids, return_source=True, return_target_mask=True, **TO_SPEECH)
    assert (source.shape, target.shape, mask.shape) == (ids.shape, made.ids.shape, made.ids.shape)


def test_SP6_padding_is_never_read() -> None:
    """A padded row is the row alone, whether -1, lengths or a mask say what is padding."""
    model = small_model(5)
    ids, lengths = sources(3)
    mask = ids != PAD
    junk = ids.where(mask, 3)
    expected = model.generate(ids, **TO_SPEECH)
    assert same(model.generate(junk, source_lengths=lengths, **TO_SPEECH), expected)
    assert same(model.generate(junk, source_mask=mask, **TO_SPEECH), expected)
    assert not same(model.generate(junk, **TO_SPEECH), expected)
    longer = torch.nn.functional.pad(junk, (2, 1), value=4)
    left = torch.nn.functional.pad(mask, (2, 1), value=False)
    assert same(model.generate(longer, source_mask=left, **TO_SPEECH), expected)
    for row in range(3):
        alone = model.generate(ids[row : row + 1, : lengths[row]], seed=row, **TO_SPEECH)
        assert alone.rows()[0].tolist() == expected.rows()[row].tolist()


def test_SP14_a_repeated_semantic_token_is_read_once() -> None:
    ids = torch.tensor([[1, 1, 4, 4, 4, 2], [3, 3, 3, PAD, PAD, PAD]])
    short = torch.tensor([[1, 4, 2], [3, PAD, PAD]])
    once, often = small_model(5), small_model(5, unique_consecutive=False)
    assert torch.equal(once.generate(ids, **TO_TEXT).source, short)
    assert same(once.generate(ids, **TO_TEXT), once.generate(short, **TO_TEXT))
    assert torch.equal(often.generate(ids, **TO_TEXT).source, ids)
    assert torch.equal(source_ids(once, ids, "text").ids, ids)


def test_texts_are_read_by_the_model_s_tokenizer() -> None:
    model = small_model(5, text={"kind": "bytes"}, num_text_token_ids=256)
    texts = ["hello", "", "grüße"]
    made = model.generate(texts, **TO_SPEECH)
    assert made.source_lengths.tolist() == [5, 0, 7]
    assert same(made, model.generate(made.source, **TO_SPEECH))
    assert len(model.generate(["", ""], **TO_SPEECH).ids) == 2
    for wrong in ("hello", [], [1, 2]):
        with pytest.raises(UserError, match="list of texts"):
            model.generate(wrong, **TO_SPEECH)
    with pytest.raises(UserError, match="source_type='text'"):
        model.generate(texts, **TO_TEXT)
    with pytest.raises(UserError, match="takes ids of text"):
        small_model().generate(texts, **TO_SPEECH)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
def test_SP13_waves_of_any_float_type_are_waves(dtype: torch.dtype) -> None:
    model = small_model(5, wav2vec=Ear())
    wave = (torch.arange(12).repeat_interleave(2) / 16).expand(2, -1)
    lengths = torch.tensor([24, 10])
    made = model.generate(wave.to(dtype), source_lengths=lengths, **TO_TEXT)
    ids, counts = Ear().tokenize(wave[:, None], lengths)
    assert same(made, model.generate(ids, source_lengths=counts, **TO_TEXT))
    assert same(made, model.generate(wave.to(dtype)[:, None], source_lengths=lengths, **TO_TEXT))


def test_waves_without_a_tokenizer_are_refused() -> None:
    wave = torch.zeros(1, 100)
    with pytest.raises(UserError, match="wav2vec"):
        small_model().generate(wave, **TO_TEXT)
    with pytest.raises(UserError, match="source_type='speech'"):
        small_model(wav2vec=Ear()).generate(wave, **TO_SPEECH)
    with pytest.raises(UserError, match=r"shape \[batch, samples\]"):
        small_model(wav2vec=Ear()).generate(wave[0], **TO_TEXT)


def test_a_seed_for_each_row() -> None:
    model = small_model(5)
    ids, _ = sources(3)
    one, each = (model.generate(ids, seed=seed, **TO_SPEECH) for seed in (4, [4, 5, 6]))
    assert same(one, each)
    with pytest.raises(UserError, match="2 seeds were given for 3 rows"):
        model.generate(ids, seed=[1, 2], **TO_SPEECH)


def test_limits_for_all_rows_or_for_each() -> None:
    model = small_model(5)
    with torch.no_grad():
        model.tables["speech"].weight[SPEECH] = -10.0 * model.upper.norm.weight.sign()
    ids, _ = sources(3)
    given = {**TO_SPEECH, "temperature": 0.0}
    whole = model.generate(ids, **{**given, "max_length": 6})
    each = model.generate(ids, **{**given, "max_length": torch.tensor([6, 2, 4])})
    for row, length in enumerate((6, 2, 4)):
        assert each.rows()[row].tolist() == whole.rows()[row][:length].tolist()


def test_generation_leaves_the_model_as_it_was() -> None:
    model = small_model(5, attn_dropout=0.5, ff_dropout=0.5)
    ids, _ = sources(2)
    expected = model.generate(ids, temperature=0.0, **TO_SPEECH)
    model.train()
    model.encoder.eval()
    assert same(model.generate(ids, temperature=0.0, **TO_SPEECH), expected)
    assert (model.training, model.encoder.training, model.upper.training) == (True, False, True)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_what_was_generated_can_be_trained_on() -> None:
    model = small_model(5)
    ids, _ = sources(2)
    for way in ({}, {"beam_search_decode": True}, {"spec_decode": True}):
        made = model.generate(ids, **way, **TO_SPEECH)
        encoded = model.encode("speech", made.ids, made.lengths)
        (encoded.hidden.sum() * made.confidence.sum()).backward()
        assert not made.ended.is_inference()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"beam_search_decode": True, "spec_decode": True}, "not both"),
        ({"beam_search_decode": True, "temperature": 0.5, "seed": 0}, "temperature and seed cannot act"),
        ({"beam_size": 4}, "beam_size cannot act here, with no beam_search_decode"),
        ({"length_penalty": 1.0, "spec_decode": True}, "length_penalty cannot act"),
        ({"spec_decode_gamma": 5}, "spec_decode_gamma cannot act here, with no spec_decode"),
        ({"spec_decode_lenience": 1.0, "beam_search_decode": True}, "spec_decode_lenience cannot act"),
        ({"sampling": Sampling(), "temperature": 1.0}, "a Sampling, or temperature, not both"),
        ({"temperature": -1.0}, "temperature"),
        ({"max_length": 0}, "max_length is 1 or more"),
        ({"max_length": torch.tensor([3, 4])}, "one for each of the 3 rows"),
        ({"target_type": "music"}, "no modality 'music'"),
        ({"source_lengths": torch.tensor([1, 2, 3]), "source_mask": torch.ones(3, 7)}, "not both"),
        ({"source_mask": torch.ones(3, 6)}, "source_mask is"),
        ({"temprature": 1.0}, "did you mean temperature"),
    ],
    ids=str,
)
def test_nonsense_is_refused(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        small_model().generate(sources(3)[0], **{**TO_SPEECH, **wrong})


def test_there_is_no_prompt_to_recall() -> None:
    with pytest.raises(UserError, match="recall is for stages that go on from a prompt"):
        small_model().generate(sources(3)[0], sampling=Sampling(recall=0.5), **TO_SPEECH)


def test_guidance_needs_a_model_that_learned_without_a_source() -> None:
    ids, _ = sources(2)
    with pytest.raises(UserError, match="cond_drop_prob"):
        small_model(cond_drop_prob=0.0).generate(ids, cond_scale=2.0, **TO_SPEECH)


@pytest.mark.parametrize("ids", [torch.tensor([1, 2]), torch.empty(0, 3, dtype=torch.int64)], ids=["flat", "none"])
def test_sources_that_are_no_batch_are_refused(ids: Tensor) -> None:
    with pytest.raises(UserError, match="source"):
        write(small_model(), ids, **TO_SPEECH)


def test_ids_out_of_range_are_named() -> None:
    model: TextToSemantic = small_model()
    for ids, options in ((torch.tensor([[1, TEXT]]), TO_SPEECH), (torch.tensor([[1, SPEECH]]), TO_TEXT)):
        with pytest.raises(UserError, match=f"{int(ids.max())}"):
            model.generate(ids, **options)
