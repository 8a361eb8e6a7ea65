from __future__ import annotations

import numpy as np
import pytest
import torch

from madrigal.judge.codebooks import CodeCounter, bits, perplexity, usage


def test_even_use_has_the_perplexity_of_the_size_and_one_code_that_of_one() -> None:
    even = torch.arange(64).repeat(5)
    codes = torch.stack([even, torch.zeros_like(even)], dim=-1)[None]
    assert perplexity(codes, 64) == pytest.approx([64, 1])
    assert usage(codes, 64) == pytest.approx([1.0, 1 / 64])


def test_counting_piece_by_piece_equals_counting_at_once() -> None:
    codes = np.random.default_rng(0).integers(0, 32, (300, 3))
    counter = CodeCounter(32)
    for piece in np.array_split(codes, 7):
        counter.add(piece)
    assert [codebook.perplexity for codebook in counter.codebooks()] == pytest.approx(perplexity(codes, 32))


def test_utterances_may_have_different_numbers_of_quantizers() -> None:
    counter = CodeCounter(8)
    counter.add(np.zeros((5, 2), int))
    counter.add(np.ones((5, 4), int))
    assert [codebook.count for codebook in counter.codebooks()] == [10, 10, 5, 5]


def test_the_alarm_is_at_half_of_the_size() -> None:
    counter = CodeCounter(16)
    counter.add(np.stack([np.arange(160) % 9, np.arange(160) % 7], axis=-1))
    assert [codebook.healthy for codebook in counter.codebooks()] == [True, False]


def test_few_codes_do_not_raise_the_alarm_by_their_number_alone() -> None:
    counter = CodeCounter(1024)
    counter.add(np.arange(100)[:, None])
    assert counter.codebooks()[0].healthy


@pytest.mark.parametrize("codes", [np.zeros((3, 2)), np.zeros(4, int)])
def test_what_is_no_code_is_refused(codes: np.ndarray) -> None:
    with pytest.raises(ValueError, match="frames, quantizers"):
        perplexity(codes, 4)


def test_codes_outside_of_the_codebook_are_refused() -> None:
    with pytest.raises(ValueError, match="codebook of 4"):
        perplexity(np.array([[5]]), 4)


def test_packed_bits() -> None:
    assert bits(np.zeros((50, 6), int), 1024) == 3000
