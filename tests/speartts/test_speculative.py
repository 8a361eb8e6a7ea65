"""Speculative decoding: greedy to the token, the whole model's distribution otherwise, in fewer passes above."""

from typing import Any

import pytest
import torch
from small_models import GREEDY, SPEECH, agreeing_model, encoded_sources, limits, small_model, sources, whole_logits
from torch import Tensor

from madrigal.data.tokens import PAD
from madrigal.errors import UserError
from madrigal.layers.sampling import RowNoise, Sampling, shaped
from madrigal.speartts.decoding import Generated, decode
from madrigal.speartts.model import Encoded, TextToSemantic
from madrigal.speartts.speculative import speculate


def both(
    model: TextToSemantic, encoded: Encoded, most: Tensor, sampling: Sampling = GREEDY, **options: Any
) -> tuple[Generated, Generated]:
    rows = range(len(most))
    ours = speculate(model, "speech", encoded, most, sampling=sampling, noise=RowNoise(rows), **options)
    theirs = decode(model, "speech", encoded, most, sampling=sampling, noise=RowNoise(rows))
    return ours, theirs


def assert_same(ours: Generated, theirs: Generated) -> None:
    assert torch.equal(ours.ids, theirs.ids)
    assert torch.equal(ours.lengths, theirs.lengths)
    assert torch.equal(ours.ended, theirs.ended)
    torch.testing.assert_close(ours.confidence, theirs.confidence, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("make", [small_model, agreeing_model], ids=["any", "agreeing"])
@pytest.mark.parametrize("rows", [1, 3, 8])
def test_SP1_greedy_speculative_is_greedy(rows: int, make: Any) -> None:
    lengths = set()
    for seed in range(20):
        model = make(seed)
        ours, theirs = both(model, encoded_sources(model, rows, seed), limits(rows, 20))
        assert_same(ours, theirs)
        lengths.update(ours.lengths.tolist())
    assert len(lengths) > 2


def test_SP1_greedy_speculative_is_greedy_under_autocast() -> None:
    for seed in range(10):
        model, (ids, _) = small_model(seed), sources(8, seed)
        options = {"source_type": "text", "target_type": "speech", "max_length": 20, "temperature": 0.0}
        with torch.autocast("cpu", dtype=torch.bfloat16):
            ours, theirs = (model.generate(ids, spec_decode=drafts, **options) for drafts in (True, False))
        assert_same(ours, theirs)


@pytest.mark.parametrize("gamma", [1, 2, 5, 9])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"cond_scale": 2.0},
        {"repetition_penalty": 1.5, "repetition_window": 3},
        {"cond_scale": 2.0, "repetition_penalty": 1.5},
    ],
    ids=str,
)
def test_SP1_whatever_is_drafted_and_however_it_is_sampled(gamma: int, options: dict[str, Any]) -> None:
    for seed in range(3):
        model = agreeing_model(seed, target_early_exit_layer=1 + seed % 2)
        most = torch.tensor([24, 1, 2, 13, 24])
        sampling = Sampling(temperature=0.0, **options)
        assert_same(*both(model, encoded_sources(model, 5, seed), most, sampling, gamma=gamma))


def test_a_perfect_draft_is_kept_whole() -> None:
    """With layers above that change nothing, every round keeps all its drafts and one token more."""
    model = agreeing_model(2)
    with torch.no_grad():
        for name, weight in model.upper.layers.named_parameters():
            if name.endswith(("to_out.weight", "feed_forward.3.weight")):
                weight.zero_()
        model.tables["speech"].weight[SPEECH] = 0.0
    calls: list[int] = []
    model.upper.register_forward_hook(lambda module, args, out: calls.append(out.shape[1]))
    made = speculate(
        model, "speech", encoded_sources(model, 3), limits(3, 24), sampling=GREEDY, noise=RowNoise(range(3))
    )
    assert made.lengths.tolist() == [24] * 3
    assert calls == [6] * 4


@pytest.mark.parametrize("rows", [1, 3, 8])
def test_the_upper_layers_are_called_less_often(rows: int) -> None:
    ours = theirs = 0
    for seed in range(6):
        model = agreeing_model(seed)
        encoded, calls = encoded_sources(model, rows, seed), []
        model.upper.register_forward_hook(lambda *_, calls=calls: calls.append(1))
        most = limits(rows, 24)
        speculate(model, "speech", encoded, most, sampling=GREEDY, noise=RowNoise(range(rows)))
        ours += len(calls)
        calls.clear()
        decode(model, "speech", encoded, most, sampling=GREEDY, noise=RowNoise(range(rows)))
        theirs += len(calls)
    assert ours < 0.7 * theirs


@pytest.mark.parametrize(
    "options", [{}, {"top_k": 4}, {"top_p": 0.8, "temperature": 0.7}, {"cond_scale": 2.0}], ids=str
)
def test_what_is_drawn_has_the_distribution_of_the_whole_model(options: dict[str, Any]) -> None:
    """Every pair of first tokens comes as often as the whole model says, though the drafts are drawn otherwise."""
    ids, rows = 3, 6000
    model = small_model(4, num_semantic_token_ids=ids)
    encoded, sampling = encoded_sources(model, 1), Sampling(**options)
    scale = sampling.cond_scale
    start = shaped(whole_logits(model, encoded, torch.empty(1, 0, dtype=torch.int64), scale)[0], sampling).softmax(-1)[
        0
    ]
    following = whole_logits(model, encoded.select([0] * ids), torch.arange(ids)[:, None], scale)[:, 1]
    expected = torch.zeros(ids + 1, ids + 1)
    expected[:ids] = start[:ids, None] * shaped(following, sampling).softmax(-1)
    expected[ids, 0] = start[ids]  # nothing follows an end
    made = speculate(
        model,
        "speech",
        encoded.select([0] * rows),
        limits(rows, 3),
        sampling=sampling,
        noise=RowNoise(range(rows)),
        gamma=2,
    )
    first, second = (made.ids[:, at].where(made.lengths > at, ids) for at in (0, 1))
    second = second.where(made.lengths > 0, 0)
    seen = torch.zeros_like(expected).index_put_((first, second), torch.tensor(1.0 / rows), accumulate=True)
    torch.testing.assert_close(seen, expected, rtol=0, atol=0.025)
    assert 0.5 * (seen - expected).abs().sum() < 0.04
    with torch.no_grad():
        lower = model.decode_lower("speech", None, encoded)
        guess = shaped(model.early_logits("speech", lower)[:, 0], sampling).softmax(-1)[0]
    assert 0.5 * (guess - start).abs().sum() > 0.1  # else this would prove nothing


@pytest.mark.parametrize("options", [{}, {"cond_scale": 2.0}, {"repetition_penalty": 2.0, "top_k": 6}], ids=str)
def test_a_row_among_others_draws_what_it_draws_alone(options: dict[str, Any]) -> None:
    for make in (small_model, agreeing_model):
        model = make(3)
        encoded, sampling = encoded_sources(model, 6), Sampling(**options)
        most = torch.tensor([20, 3, 20, 11, 20, 1])
        together = speculate(model, "speech", encoded, most, sampling=sampling, noise=RowNoise(range(6)))
        assert len(set(together.lengths.tolist())) > 2
        for row in range(6):
            alone = speculate(
                model,
                "speech",
                encoded.select([row]),
                most[row : row + 1],
                sampling=sampling,
                noise=RowNoise([row]),
            )
            assert together.rows()[row].tolist() == alone.rows()[0].tolist()
            torch.testing.assert_close(together.confidence[row], alone.confidence[0], rtol=1e-4, atol=1e-5)


def test_SP8_rows_end_where_they_end() -> None:
    model = agreeing_model(3)
    made = speculate(
        model, "speech", encoded_sources(model, 8), limits(8, 9), sampling=Sampling(), noise=RowNoise(range(8))
    )
    assert made.ended.any()
    assert not made.ended.all()
    assert ((made.ids == PAD) == ~made.mask).all()
    assert (made.ids[made.mask] < SPEECH).all()
    assert made.lengths[~made.ended].eq(9).all()


def test_lenience_accepts_more_drafts() -> None:
    calls = {}
    for lenience in (1.0, 0.05):
        model, seen = small_model(2), []
        with torch.no_grad():
            model.tables["speech"].weight[SPEECH] = 0.0
        model.upper.register_forward_hook(lambda *_, seen=seen: seen.append(1))
        speculate(
            model,
            "speech",
            encoded_sources(model, 1),
            limits(1, 200),
            sampling=Sampling(),
            noise=RowNoise([0]),
            lenience=lenience,
        )
        calls[lenience] = len(seen)
    assert calls[0.05] < 0.8 * calls[1.0]


@pytest.mark.parametrize("wrong", [{"gamma": 0}, {"lenience": 0.0}, {"lenience": 1.5}], ids=str)
def test_nonsense_is_refused(wrong: dict[str, float]) -> None:
    model = small_model()
    with pytest.raises(UserError, match=f"spec_decode_{next(iter(wrong))}"):
        both(model, encoded_sources(model, 1), limits(1, 4), **wrong)


def test_a_model_without_an_early_exit_cannot_draft() -> None:
    model = small_model(target_early_exit_layer=None)
    with pytest.raises(UserError, match="target_early_exit_layer"):
        both(model, encoded_sources(model, 1), limits(1, 4))
