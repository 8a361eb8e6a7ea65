"""Drawing tokens: what is kept can be drawn, what is not cannot, and a row draws what it would draw alone."""

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from madrigal.layers.sampling import RowNoise, Sampling, draw, guided


def drawn(logits: Tensor, count: int = 4000, history: Tensor | None = None, **options: Any) -> Tensor:
    """How often each id of one row of logits comes."""
    rows = logits.expand(count, -1)
    history = None if history is None else history.expand(count, -1)
    ids = draw(rows, Sampling(**options), RowNoise(range(count)), history)
    return ids.bincount(minlength=logits.shape[-1]) / count


def test_ids_come_as_often_as_they_should() -> None:
    chances = torch.tensor([0.5, 0.25, 0.15, 0.1])
    torch.testing.assert_close(drawn(chances.log()), chances, rtol=0, atol=0.03)
    hot = (chances**0.5) / (chances**0.5).sum()
    torch.testing.assert_close(drawn(chances.log(), temperature=2.0), hot, rtol=0, atol=0.03)


def test_AM5_every_allowed_id_can_be_drawn() -> None:
    assert (drawn(torch.zeros(20)) > 0).all()
    for options in ({"top_k": 20}, {"top_p": 1.0}, {"filter_thres": 0.0}):
        assert (drawn(torch.zeros(20), **options) > 0).all()


def test_a_forbidden_id_never_comes() -> None:
    logits = torch.tensor([1.0, float("-inf"), 0.0])
    for options in ({}, {"top_k": 3}, {"top_p": 0.999}, {"temperature": 5.0}, {"repetition_penalty": 2.0}):
        assert drawn(logits, history=torch.tensor([[0, 1]]), **options)[1] == 0


def test_AM16_no_temperature_takes_the_likeliest() -> None:
    logits = torch.randn(50, 30)
    ids = draw(logits, Sampling(temperature=0.0), RowNoise(range(50)))
    assert ids.tolist() == logits.argmax(-1).tolist()
    assert ids.dtype == torch.int64


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({"top_k": 2}, [0, 1]),
        ({"top_k": 99}, [0, 1, 2, 3]),
        ({"filter_thres": 0.5}, [0, 1]),
        ({"filter_thres": 0.9}, [0]),
        ({"filter_thres": 0.5, "top_k": 1}, [0]),
        ({"top_p": 0.4}, [0]),
        ({"top_p": 0.6}, [0, 1]),
        ({"top_p": 0.85}, [0, 1, 2]),
        ({"top_p": 0.6, "temperature": 0.3}, [0]),
    ],
    ids=str,
)
def test_what_is_kept(options: dict[str, Any], kept: list[int]) -> None:
    ids = torch.tensor([2, 0, 3, 1])  # the likeliest is 2, then 0: nothing may depend on ids being sorted
    chances = torch.empty(4)
    chances[ids] = torch.tensor([0.5, 0.25, 0.15, 0.1])
    seen = drawn(chances.log(), **options)
    assert [rank for rank in range(4) if seen[ids[rank]] > 0] == kept


def test_repetition_is_discouraged_whatever_the_offset() -> None:
    history = torch.tensor([[0, -1, -1]])
    for offset in (-5.0, 0.0, 5.0):
        seen = drawn(torch.zeros(2) + offset, history=history, repetition_penalty=3.0)
        torch.testing.assert_close(seen, torch.tensor([0.25, 0.75]), rtol=0, atol=0.03)


def test_only_the_window_is_looked_at_and_pads_are_no_tokens() -> None:
    logits = torch.tensor([[1.0, 0.5, 0.0]])
    noise = RowNoise([0])
    greedy = {"temperature": 0.0, "repetition_penalty": 100.0}
    assert draw(logits, Sampling(**greedy), noise, torch.tensor([[0, 1, 1]])).item() == 2
    assert draw(logits, Sampling(**greedy, repetition_window=2), noise, torch.tensor([[0, 1, 1]])).item() == 0
    assert draw(logits, Sampling(**greedy), noise, torch.tensor([[-1, -1]])).item() == 0
    assert draw(logits, Sampling(**greedy), noise, torch.empty(1, 0, dtype=torch.long)).item() == 0


def test_a_row_draws_what_it_would_draw_alone() -> None:
    torch.manual_seed(0)
    logits = torch.randn(3, 4, 10)
    together = RowNoise([5, 6, 7])
    all_rows = torch.stack([draw(step, Sampling(), together) for step in logits.unbind(1)], dim=1)
    for row, seed in enumerate((5, 6, 7)):
        alone = RowNoise([seed])
        ids = [draw(step[row : row + 1], Sampling(), alone).item() for step in logits.unbind(1)]
        assert ids == all_rows[row].tolist()


def test_noise_follows_its_row() -> None:
    noise, expected = RowNoise([1, 2, 3]), RowNoise([3, 1])
    noise.select([2, 0])
    torch.testing.assert_close(noise.gumbel((2, 5)), expected.gumbel((2, 5)))
    noise.select(torch.tensor([False, True]))
    assert len(noise) == 1
    with pytest.raises(ValueError, match="1 rows, not for 2"):
        noise.gumbel((2, 5))
    with pytest.raises(ValueError, match="two rows"):
        RowNoise([1, 2]).select([0, 0])


def test_some_rows_draw_and_the_others_noise_stays() -> None:
    noise = RowNoise([1, 2])
    noise.of(torch.tensor([True, False])).gumbel((1, 5))
    torch.testing.assert_close(noise.gumbel((2, 5))[1], RowNoise([2]).gumbel((1, 5))[0])


def test_AM1_guidance_leans_on_the_condition() -> None:
    with_it, without = torch.randn(2, 5), torch.randn(2, 5)
    torch.testing.assert_close(guided(with_it, without, 1.0), with_it)
    torch.testing.assert_close(guided(with_it, without, 0.0), without)
    torch.testing.assert_close(guided(with_it, without, 3.0), without + 3 * (with_it - without))


def test_draws_do_not_depend_on_the_precision_of_the_logits() -> None:
    logits = torch.randn(100, 8).bfloat16()
    ours, theirs = (draw(one, Sampling(), RowNoise(range(100))) for one in (logits, logits.float()))
    assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize(
    "wrong", [{"temperature": -1}, {"top_k": 0}, {"top_p": 0.0}, {"filter_thres": 1.0}, {"tempo": 1}], ids=str
)
def test_nonsense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Sampling(**wrong)


def test_rows_may_draw_different_numbers_and_stay_their_own() -> None:
    both = RowNoise([3, 4]).ragged([2, 5], 7)
    assert both.shape == (7, 7)
    assert torch.equal(both[2:], RowNoise([4]).ragged([5], 7))
    assert torch.equal(both[:2], RowNoise([3]).gumbel((1, 2, 7))[0])
