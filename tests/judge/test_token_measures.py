"""What tokens explain, and how sentences are found again."""

from __future__ import annotations

import numpy as np
import pytest

from madrigal.judge.tokens import edit_distance, explained, perplexity, retrieval, without_repeats


def test_tokens_that_are_the_labels_explain_all() -> None:
    labels = np.array(["a", "b", "c", "a", "b", "c"])
    assert explained(np.array([5, 6, 7, 5, 6, 7]), labels) == pytest.approx(1)
    assert explained(np.zeros(6, dtype=int), labels) == pytest.approx(0)
    assert explained(np.array([0, 0, 1, 0, 0, 1]), labels) == pytest.approx(0.579, abs=1e-3)
    assert explained(np.array([0, 1]), np.array(["a", "a"])) == 0


def test_perplexity_counts_tokens_by_their_use() -> None:
    assert perplexity(np.arange(8)) == pytest.approx(8)
    assert perplexity(np.zeros(8)) == pytest.approx(1)


@pytest.mark.parametrize(
    ("left", "right", "distance"),
    [("kitten", "sitting", 3), ("", "abc", 3), ("abc", "", 3), ("abc", "abc", 0), ("flaw", "lawn", 2), ("ab", "ba", 2)],
)
def test_edit_distance(left: str, right: str, distance: int) -> None:
    rows = [np.frombuffer(text.encode(), dtype=np.uint8) for text in (left, right)]
    assert edit_distance(*rows) == pytest.approx(distance / max(len(left), len(right)))


def test_without_repeats() -> None:
    assert without_repeats(np.array([1, 1, 2, 1, 1])).tolist() == [1, 2, 1]
    assert without_repeats(np.array([], dtype=int)).tolist() == []


def test_retrieval_is_sure_with_clean_tokens_and_chance_with_noise() -> None:
    rng = np.random.default_rng(0)
    sentences = [rng.integers(0, 50, 30) for _ in range(22)]
    clean = {(voice, number): row for voice in "ab" for number, row in enumerate(sentences)}
    assert retrieval(clean)["retrieval"] == 1
    assert retrieval(clean)["distance_same"] == 0 < retrieval(clean)["distance_other"]
    noise = {key: rng.integers(0, 50, 30) for key in clean}
    assert retrieval(noise)["retrieval"] < 0.5
