from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
import pytest

from madrigal.judge.kneser_ney import KneserNey
from madrigal.judge.language import (
    Perplexity,
    baselines,
    frame_lags,
    ngram_perplexity,
    offset_by_kind,
    perplexity_of,
)
from madrigal.judge.mixture import Mixture, RepeatLast

VOCABULARY = 6
CONTEXTS: list[list[int]] = [[], [0], [3, 3, 3, 3], [5, 4, 3, 2, 1], [1, 0, 2]]


def chain(length: int, seed: int, vocabulary: int = VOCABULARY) -> np.ndarray:
    """A stream in which the next symbol depends on the last two."""
    rng = np.random.default_rng(seed)
    symbols = [0, 1]
    while len(symbols) < length:
        symbols.append(int((symbols[-1] * 2 + symbols[-2] + rng.integers(0, 3) * (rng.random() < 0.4)) % vocabulary))
    return np.array(symbols[:length])


@pytest.fixture(scope="module")
def train() -> list[np.ndarray]:
    return [chain(length, seed) for seed, length in enumerate((60, 40, 1, 0, 90, 120))]


def by_the_book(train: Sequence[np.ndarray], order: int, vocabulary: int, stream: Sequence[int]) -> list[float]:
    """Modified Kneser-Ney with dictionaries and recursion, straight from its definition."""

    def padded(symbols: Sequence[int]) -> list[object]:
        return ["start"] * (order - 1) + [int(symbol) for symbol in symbols]

    seen: dict[int, Counter[tuple[object, ...]]] = {length: Counter() for length in range(1, order + 1)}
    for symbols in train:
        row = padded(symbols)
        for end in range(order, len(row) + 1):
            for length in seen:
                seen[length][tuple(row[end - length : end])] += 1
    counts: dict[int, dict[tuple[object, ...], int]] = {order: dict(seen[order])}
    for length in range(1, order):
        before = defaultdict(set)
        for gram in seen[length + 1]:
            before[gram[1:]].add(gram[0])
        counts[length] = {
            gram: count if length > 1 and gram[0] == "start" else len(before[gram])
            for gram, count in seen[length].items()
        }

    def discounts(length: int) -> list[float]:
        rare = Counter(min(count, 5) for count in counts[length].values())
        if not rare[1] or not rare[2]:
            return [0, 0.5, 0.5, 0.5]
        y = rare[1] / (rare[1] + 2 * rare[2])
        if not rare[3] or not rare[4]:
            return [0, y, y, y]
        found = [k - (k + 1) * y * rare[k + 1] / rare[k] for k in (1, 2, 3)]
        return [0, *(min(max(value, 0.01), k - 0.01) for k, value in enumerate(found, start=1))]

    def chance(symbol: object, past: list[object], length: int) -> float:
        if length == 0:
            return 1 / vocabulary
        context = tuple(past[len(past) - (length - 1) :])
        shorter = chance(symbol, past, length - 1)
        here = {gram[-1]: count for gram, count in counts[length].items() if gram[:-1] == context}
        if not here:
            return shorter
        taken = discounts(length)
        rest = sum(taken[min(count, 3)] for count in here.values())
        own = here.get(symbol, 0)
        return (own - taken[min(own, 3)] + rest * shorter) / sum(here.values())

    row = padded(stream)
    return [chance(row[end], row[:end], order) for end in range(order - 1, len(row))]


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_kneser_ney_equals_its_definition(train: list[np.ndarray], order: int) -> None:
    test = [chain(40, 77), np.array([5, 5, 5, 5, 5, 0]), np.zeros(0, dtype=int), np.array([2])]
    found = KneserNey(train, order, VOCABULARY).probabilities(test)
    assert [len(chances) for chances in found] == [40, 6, 0, 1]
    for chances, stream in zip(found, test):
        np.testing.assert_allclose(chances, by_the_book(train, order, VOCABULARY, stream), rtol=1e-12)


def test_a_shorter_order_of_a_longer_count_is_that_order(train: list[np.ndarray]) -> None:
    longest = KneserNey(train, 5, VOCABULARY)
    test = [chain(50, 9)]
    for order in range(1, 6):
        alone = KneserNey(train, order, VOCABULARY).probabilities(test)[0]
        np.testing.assert_array_equal(longest.probabilities(test, order)[0], alone)


@pytest.mark.parametrize("context", CONTEXTS, ids=str)
def test_probabilities_sum_to_one(train: list[np.ndarray], context: list[int]) -> None:
    counted = KneserNey(train, 5, VOCABULARY)
    for model in (counted, RepeatLast(train, VOCABULARY), Mixture(train, VOCABULARY, [counted], development=[0, 1])):
        last = [model.probabilities([[*context, symbol]])[0][-1] for symbol in range(VOCABULARY)]
        assert sum(last) == pytest.approx(1.0, abs=1e-12)
        assert min(last) > 0


def flattened(frames: int, seed: int) -> np.ndarray:
    """Frames of two codebooks of sizes 4 and 3; the first repeats itself every other frame, the second follows it."""
    rng = np.random.default_rng(seed)
    first = np.repeat(rng.integers(0, 4, frames), 2)[:frames]
    second = np.where(rng.random(frames) < 0.8, first % 3, rng.integers(0, 3, frames))
    return offset_by_kind(np.stack([first, second], axis=1).reshape(-1), np.tile([0, 1], frames), [4, 3])


def test_kinds_share_no_probability() -> None:
    train = [flattened(50, seed) for seed in range(4)]
    assert set(np.concatenate(train)[1::2]) == {4, 5, 6}
    counted = KneserNey(train, 3, [4, 3])
    mixture = Mixture(train, [4, 3], [counted], development=[0])
    for model in (counted, RepeatLast(train, [4, 3]), mixture):
        of_first = [model.probabilities([[1, 4, symbol]])[0][-1] for symbol in range(4)]
        of_second = [model.probabilities([[1, 4, 2, symbol]])[0][-1] for symbol in (4, 5, 6)]
        assert sum(of_first) == pytest.approx(1.0)
        assert sum(of_second) == pytest.approx(1.0)


def test_a_kind_that_training_never_showed_is_left_to_chance() -> None:
    train = [np.array([0, 1, 0, 1, 1, 0])]
    found = KneserNey(train, 3, [2, 5]).probabilities([[0, 4, 1]])[0]
    assert found[1] == pytest.approx(1 / 5)
    assert np.isfinite(found).all()


def test_kinds_that_nobody_asks_for_change_nothing_of_the_others() -> None:
    chance = np.random.default_rng(3)
    kinds = np.tile([0, 1, 2], 400)
    streams = [offset_by_kind(chance.integers(0, 4, 1200), kinds, [4, 4, 4]) for _ in range(3)]
    whole = KneserNey(streams[:2], 3, [4, 4, 4]).probabilities(streams[2:])[0]
    asked = KneserNey(streams[:2], 3, [4, 4, 4], kinds={2}).probabilities(streams[2:])[0]
    np.testing.assert_array_equal(whole[kinds == 2], asked[kinds == 2])
    scored = [kinds == 2]
    found = baselines(streams[:2] * 5, streams[2:], [4, 4, 4], order=3, frame=3, scored=scored)
    assert found["3-gram"].nlls == ngram_perplexity(streams[:2] * 5, streams[2:], 3, [4, 4, 4], scored=scored).nlls


def test_lags_look_a_frame_back() -> None:
    train, test = [flattened(200, seed) for seed in range(8)], [flattened(200, 99)]
    first = [np.tile([True, False], 200)]
    repeats = [ngram_perplexity(train, test, 2, [4, 3], lags=lags, scored=first).value for lags in ((1,), (2,))]
    assert repeats[1] < 0.9 * repeats[0]
    assert frame_lags(3, 5) == (3, 1, 2, 6)
    assert frame_lags(2, 5) == (2, 1, 4, 3)
    assert frame_lags(1, 3) == (1, 2)


def test_scored_positions_alone_count(train: list[np.ndarray]) -> None:
    test = [chain(30, 5), chain(20, 6)]
    masks = [np.arange(30) % 3 == 0, np.zeros(20, dtype=bool)]
    found = ngram_perplexity(train, test, 3, VOCABULARY, scored=masks)
    chances = KneserNey(train, 3, VOCABULARY).probabilities(test)[0][masks[0]]
    assert found.counts == [10, 0]
    assert found.value == pytest.approx(math.exp(-np.log(chances).mean()))


def test_longer_contexts_help_where_the_source_has_them() -> None:
    train, test = [chain(400, seed) for seed in range(20)], [chain(400, seed) for seed in range(100, 104)]
    found = {name: perplexity.value for name, perplexity in baselines(train, test, VOCABULARY).items()}
    assert list(found) == ["chance", "unigram", "repeat last", *(f"{n}-gram" for n in (2, 3, 4, 5)), "mixture"]
    assert found["chance"] == pytest.approx(VOCABULARY)
    assert found["3-gram"] < found["2-gram"] < found["unigram"] <= 1.01 * VOCABULARY
    assert found["5-gram"] < 1.05 * found["3-gram"]
    assert found["mixture"] < 1.01 * min(found.values())


def test_noise_is_no_better_than_chance_and_hardly_worse() -> None:
    rng = np.random.default_rng(0)
    train, test = ([rng.integers(0, 50, 400) for _ in range(count)] for count in (40, 10))
    found = {name: perplexity.value for name, perplexity in baselines(train, test, 50, order=3).items()}
    assert all(49.5 < value < 56 for value in found.values())
    assert found["mixture"] < 50.5


def test_repeating_beats_the_unigram_where_symbols_stay() -> None:
    rng = np.random.default_rng(1)
    streams = [np.repeat(rng.integers(0, 20, 40), rng.integers(1, 6, 40)) for _ in range(12)]
    found = baselines(streams[:10], streams[10:], 20, order=2)
    assert found["repeat last"].value < 0.5 * found["unigram"].value
    difference = found["repeat last"].versus(found["unigram"])
    assert difference is not None
    assert difference.mean < 0


def test_repeating_means_the_last_symbol_of_the_same_kind() -> None:
    train = [offset_by_kind([1, 0, 1, 2, 1, 0, 1, 1], [0, 1] * 4, [2, 3])] * 5
    chances = RepeatLast(train, [2, 3]).probabilities(train[:1])[0]
    assert chances[2] > 0.9
    assert chances[4] > 0.9


def test_the_mixture_hears_what_a_stream_likes() -> None:
    rng = np.random.default_rng(2)
    streams = [
        rng.choice(rng.permutation(60)[:3], 100) for _ in range(60)
    ]  # each speaker has three symbols of their own
    found = baselines(streams[:50], streams[50:], 60, order=2)
    assert found["mixture"].value < 5
    assert found["2-gram"].value > 30


def test_frames_of_several_codebooks_get_their_own_ngram() -> None:
    train, test = [flattened(100, seed) for seed in range(6)], [flattened(100, 50)]
    found = baselines(train, test, [4, 3], order=3, frame=2)
    assert "3-gram over frames" in found
    assert found["mixture"].value < 1.05 * found["3-gram over frames"].value


def test_perplexity_adds_up() -> None:
    total = Perplexity()
    assert math.isnan(total.value)
    assert total.nats() is None
    total.add(3 * math.log(4), 3)
    total.add(math.log(16), 1)
    assert total.count == 4
    assert total.value == pytest.approx(math.exp((3 * math.log(4) + math.log(16)) / 4))
    nats = total.nats()
    assert nats is not None
    assert nats.mean == pytest.approx(math.log(total.value))
    assert nats.count == 2


def test_only_like_may_be_compared_with_like() -> None:
    first, second = Perplexity(), Perplexity()
    first.add(1.0, 2)
    second.add(1.0, 3)
    with pytest.raises(ValueError, match="same symbols"):
        first.versus(second)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ngram_perplexity([[0, 7]], [[0]], 2, 6), "outside of a vocabulary of 6"),
        (lambda: ngram_perplexity([[0, -1]], [[0]], 2, 6), "outside of a vocabulary"),
        (lambda: ngram_perplexity([[]], [[0]], 2, 6), "nothing to count"),
        (lambda: ngram_perplexity([[0.5]], [[0]], 2, 6), "integers"),
        (lambda: ngram_perplexity([[0]], [[0]], 0, 6), "order of 0"),
        (lambda: ngram_perplexity([[0]], [[0]], 2, 6, lags=(0,)), "lags of at least 1"),
        (lambda: ngram_perplexity([[0]], [[0]], 2, 0), "positive"),
        (lambda: KneserNey([[0]], 2, 6).probabilities([[0]], 3), "1 to 2"),
        (lambda: perplexity_of([np.ones(3)], [[True]]), "does not fit"),
        (lambda: perplexity_of([np.ones(3)], []), "0 masks"),
        (lambda: offset_by_kind([3], [1], [9, 3]), "outside of the sizes"),
        (lambda: Mixture([[0, 1]], 2, []), "cannot be divided"),
    ],
)
def test_misuse_is_refused(call: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()  # type: ignore[operator]
