"""Levels that are dropped in training: drawn by the call, absent from the codes, and not computed."""

from typing import Any

import pytest
import torch
from small_quantizers import collected, latents, make
from torch import Tensor


def test_dropped_levels_are_absent_and_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    quantizer = make()
    points: list[int] = []
    search = quantizer.codebooks.search

    def counting(level: int, x: Tensor, **options: Any) -> Tensor:
        points.append(x.shape[1])
        return search(level, x, **options)

    monkeypatch.setattr(quantizer.codebooks, "search", counting)
    result = collected(quantizer, latents(16, 5))
    levels = (result.codes >= 0).sum(-1)
    assert levels.unique().tolist() == [2, 3, 4]
    assert (levels == levels[:, :1]).all(), "one draw for each row"
    assert sum(points) == levels.sum()
    assert torch.allclose(quantizer.decode(result.codes), result.embedding, atol=1e-5)


def test_dropout_draws_from_torchs_generator_alone() -> None:
    quantizer = make()
    first, again, other = (collected(quantizer, latents(16), seed=seed).codes for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first >= 0, other >= 0)


@pytest.mark.parametrize(
    ("options", "possible"),
    [
        ({"dropout_cutoff_index": 0}, [1, 2, 3, 4]),
        ({"dropout_cutoff_index": 2}, [3, 4]),
        ({"dropout_multiple_of": 2}, [2, 4]),
        ({"quantize_dropout": False}, [4]),
    ],
)
def test_dropout_options_say_which_numbers_are_drawn(options: dict[str, Any], possible: list[int]) -> None:
    codes = collected(make(**options), latents(64, 1)).codes
    assert (codes >= 0).sum(-1).unique().tolist() == possible


def test_dropout_is_asked_for_by_the_call_and_not_by_the_mode() -> None:
    quantizer = make().train()
    assert (quantizer(latents(16)).codes >= 0).all()
    torch.manual_seed(0)
    assert (quantizer(latents(16), dropout=True).codes < 0).any()
    assert (collected(quantizer.eval(), latents(16)).codes < 0).any()
    assert (collected(quantizer, latents(16), dropout=False).codes >= 0).all()
    assert (collected(quantizer, latents(16), num_quantizers=4).codes >= 0).all()
