"""Drawing targets with a cache: what whole passes would draw, row by row, each row as if it were alone."""

import pytest
import torch
from small_models import GREEDY, SPEECH, encoded_sources, limits, small_model, uncached_greedy, whole_logits
from torch import Tensor

from madrigal.data.tokens import PAD
from madrigal.layers.sampling import RowNoise, Sampling
from madrigal.speartts.decoding import Decoder, Generated, decode
from madrigal.speartts.model import Encoded, TextToSemantic

HOT = Sampling(temperature=1.3, top_p=0.95)


def drawn(
    model: TextToSemantic,
    encoded: Encoded,
    most: int | Tensor = 12,
    sampling: Sampling = GREEDY,
    seeds: range = range(9),
) -> Generated:
    rows = len(encoded.hidden)
    most = limits(rows, most) if isinstance(most, int) else most
    return decode(model, "speech", encoded, most, sampling=sampling, noise=RowNoise(seeds[:rows]))


@pytest.mark.parametrize("cond_scale", [1.0, 2.5])
@pytest.mark.parametrize("options", [{}, {"target_early_exit_layer": None}, {"target_kv_heads": 2}], ids=str)
def test_cached_equals_uncached(options: dict[str, int | None], cond_scale: float) -> None:
    lengths = set()
    for seed in (0, 10, 15):
        model = small_model(seed, **options)
        encoded = encoded_sources(model, 3, seed)
        made = drawn(model, encoded, sampling=Sampling(temperature=0.0, cond_scale=cond_scale))
        for row, ids in enumerate(made.rows()):
            assert ids.tolist() == uncached_greedy(model, encoded.select([row]), 12, cond_scale)
        lengths.update(made.lengths.tolist())
    assert len(lengths) > 1


@pytest.mark.parametrize("cond_scale", [1.0, 2.0])
@pytest.mark.parametrize("repetition_penalty", [1.0, 2.0])
def test_a_row_among_others_draws_what_it_draws_alone(cond_scale: float, repetition_penalty: float) -> None:
    model = small_model(3)
    encoded = encoded_sources(model, 6)
    sampling = Sampling(
        temperature=1.3, top_p=0.95, cond_scale=cond_scale, repetition_penalty=repetition_penalty, repetition_window=3
    )
    most = torch.tensor([20, 3, 20, 11, 20, 1])
    together = drawn(model, encoded, most, sampling)
    assert len(set(together.lengths.tolist())) > 2
    for row in range(6):
        alone = drawn(model, encoded.select([row]), most[row : row + 1], sampling, range(row, row + 1))
        assert together.rows()[row].tolist() == alone.rows()[0].tolist()
        torch.testing.assert_close(together.confidence[row], alone.confidence[0], rtol=1e-4, atol=1e-5)
        assert together.ended[row] == alone.ended[0]


def test_SP8_nothing_stands_behind_the_end_of_a_row() -> None:
    model = small_model(3)
    made = drawn(model, encoded_sources(model, 6), 6, HOT)
    assert made.ended.any()
    assert not made.ended.all()
    assert ((made.ids == PAD) == ~made.mask).all()
    assert ((made.ids >= 0) & (made.ids < SPEECH))[made.mask].all()
    assert made.lengths[~made.ended].eq(6).all()


def test_rows_that_are_done_leave_the_batch() -> None:
    model = small_model(3)
    encoded, sizes = encoded_sources(model, 6), []
    model.upper.register_forward_hook(lambda module, args, out: sizes.append(len(out)))
    made = drawn(model, encoded, 30, HOT)
    for step, size in enumerate(sizes):
        # A row takes part in the steps of its tokens and of its end.
        assert size == int((made.lengths + made.ended > step).sum())


def test_each_row_has_a_limit_of_its_own() -> None:
    model = small_model(5)
    with torch.no_grad():
        model.tables["speech"].weight[SPEECH] = 0.0
    most = torch.tensor([4, 9, 1])
    made = drawn(model, encoded_sources(model, 3), most, Sampling(temperature=0.0))
    assert made.lengths.tolist() == most.tolist()
    assert made.ids.shape == (3, 9)
    assert not made.ended.any()


@pytest.mark.parametrize("cond_scale", [1.0, 2.0])
def test_confidence_is_the_mean_log_probability(cond_scale: float) -> None:
    model = small_model(6)
    encoded = encoded_sources(model, 6)
    made = drawn(model, encoded, 8, Sampling(temperature=1.3, top_k=4, cond_scale=cond_scale))
    assert made.ended.any()
    for row, ids in enumerate(made.rows()):
        logits = whole_logits(model, encoded.select([row]), ids[None], cond_scale)[0]
        ids = torch.cat((ids, torch.tensor([SPEECH]))) if made.ended[row] else ids
        expected = logits.log_softmax(-1)[range(len(ids)), ids].mean()
        torch.testing.assert_close(made.confidence[row], expected, rtol=1e-4, atol=1e-5)


def test_a_seed_repeats_and_another_differs() -> None:
    model = small_model(5)
    encoded = encoded_sources(model, 4)
    first, again, other = (drawn(model, encoded, 20, HOT, seeds) for seeds in (range(9), range(9), range(50, 59)))
    assert torch.equal(first.ids, again.ids)
    assert first.ids.shape != other.ids.shape or not torch.equal(first.ids, other.ids)


def test_every_id_can_be_drawn_and_the_end_too() -> None:
    model = small_model(0, sharpness=0.1)
    made = drawn(model, encoded_sources(model, 1).select([0] * 60), 20, Sampling(), range(60))
    assert set(made.ids[made.mask].tolist()) == set(range(SPEECH))
    assert made.ended.any()


def test_repetition_is_discouraged_within_the_window() -> None:
    model = small_model(5)
    encoded = encoded_sources(model, 3)
    made = drawn(model, encoded, 20, Sampling(temperature=0.0, repetition_penalty=1e9, repetition_window=4))
    for ids in made.rows():
        for end in range(5, len(ids) + 1):
            assert len(set(ids[end - 5 : end].tolist())) == 5


def test_guidance_changes_what_is_written_and_zero_is_without_a_source() -> None:
    model = small_model(5)
    encoded = encoded_sources(model, 4)
    scales = [drawn(model, encoded, 20, Sampling(temperature=0.0, cond_scale=scale)).ids for scale in (1.0, 4.0)]
    assert scales[0].shape != scales[1].shape or not torch.equal(*scales)
    without = drawn(model, encoded.without(torch.ones(4, dtype=torch.bool)), 20)
    ignored = drawn(model, encoded, 20, Sampling(temperature=0.0, cond_scale=0.0))
    assert torch.equal(without.ids, ignored.ids)


@pytest.mark.parametrize("cond_scale", [1.0, 2.0])
def test_positions_that_are_not_kept_are_as_if_never_written(cond_scale: float) -> None:
    model = small_model(1)
    encoded = encoded_sources(model, 2)
    tokens = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]])
    with torch.no_grad():
        decoder = Decoder(model, "speech", encoded, cond_scale)
        for token in (None, *tokens.unbind(1)[:3]):
            decoder.next_logits(token)
        # The first row takes back two tokens, the second one.
        decoder.keep(torch.tensor([[True, False, False], [True, True, False]]))
        decoder.next_logits(tokens[:, 3])
        ours = decoder.next_logits(torch.tensor([9, 9]))
    for row, kept in enumerate(([1, 4, 9], [5, 6, 8, 9])):
        whole = whole_logits(model, encoded.select([row]), torch.tensor([kept]), cond_scale)
        torch.testing.assert_close(ours[row], whole[0, -1], rtol=1e-4, atol=1e-4)
