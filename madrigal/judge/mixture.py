"""The strongest baseline that only counts: a mixture of n-grams, of repeating, of the stream's own past, and of chance.

Counts of other speakers are too sure of themselves before a new one: plain n-grams over codes can do worse than
chance there. The mixture learns how far to trust each part on streams that its counts have not seen, for every kind of
position by itself, and it hears the speaker through a running count of the stream so far.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from madrigal.judge.kneser_ney import Alphabet, Ids, KneserNey, Reals, Streams

ROUNDS = 50
HELD_OUT = 10
"""Without a word on it, every tenth stream is kept from counting to weigh the parts on."""


def last_of_kind(streams: Streams) -> Ids:
    """For every symbol the one before it that has the same kind, in the same stream; -1 where there is none."""
    order = np.lexsort((streams.place, streams.kinds, streams.stream))
    ids, kinds, stream = streams.ids[order], streams.kinds[order], streams.stream[order]
    before = np.full(len(ids), -1, dtype=np.int64)
    same = (kinds[1:] == kinds[:-1]) & (stream[1:] == stream[:-1])
    before[1:][same] = ids[:-1][same]
    last = np.empty_like(before)
    last[order] = before
    return last


class RepeatLast:
    """Says that a symbol is the last one of its kind again, as often as training did after that symbol.

    Otherwise it draws from the unigram of the other symbols; at the start of a stream from the unigram.
    """

    PRIOR = 4.0
    """Symbols for which the mean over all symbols of a kind speaks, beside a symbol's own repeats."""

    def __init__(self, train: Sequence[npt.ArrayLike], vocabulary: int | Sequence[int]) -> None:
        unigram = KneserNey(train, 1, vocabulary)
        self.alphabet = unigram.alphabet
        size = self.alphabet.total
        streams = Streams(train, self.alphabet)
        last = last_of_kind(streams)
        repeats = np.bincount(last[last == streams.ids], minlength=size)
        chances = np.bincount(last[last >= 0], minlength=size)
        kinds = self.alphabet.kinds(np.arange(size))
        of_kind = (np.bincount(kinds, repeats) + 1) / (np.bincount(kinds, chances) + 2)
        self.repeat = (repeats + self.PRIOR * of_kind[kinds]) / (chances + self.PRIOR)
        """How often each symbol is followed by itself, [vocabulary]."""
        self.single = np.concatenate(unigram.probabilities([[symbol] for symbol in range(size)]))
        """The unigram, [vocabulary]."""

    def probabilities(self, streams: Sequence[npt.ArrayLike]) -> list[Reals]:
        """The probability of every symbol of each stream [time]."""
        test = Streams(streams, self.alphabet)
        last = last_of_kind(test)
        # Where a kind has one symbol there are no others to move to, and nothing to divide by.
        others = np.maximum(1.0 - self.single[last], np.finfo(np.float64).tiny)
        moved = (1.0 - self.repeat[last]) * self.single[test.ids] / others
        after = np.where(last == test.ids, self.repeat[last], moved)
        return test.split(np.where(last >= 0, after, self.single[test.ids]))


def so_far(streams: Streams, alphabet: Alphabet, prior: float = 4.0) -> Reals:
    """The probability of every symbol by how often it came in its own stream before, [symbols].

    `prior` symbols, spread evenly over the kind, are counted before the first one.
    """
    earlier, seen = (
        _rank(streams.stream, streams.ids, streams.place),
        _rank(streams.stream, streams.kinds, streams.place),
    )
    sizes = np.asarray(alphabet.sizes, dtype=np.float64)[streams.kinds]
    return np.asarray((earlier + prior / sizes) / (seen + prior))


def _rank(stream: Ids, group: Ids, place: Ids) -> Ids:
    """How many members of its group came before each symbol in its stream."""
    order = np.lexsort((place, group, stream))
    index = np.arange(len(order))
    fresh = np.ones(len(order), dtype=bool)
    fresh[1:] = (stream[order][1:] != stream[order][:-1]) | (group[order][1:] != group[order][:-1])
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = index - np.maximum.accumulate(np.where(fresh, index, 0))
    return rank


class Mixture:
    """Weighs n-grams of every order (and of every set of `lags`), RepeatLast, the stream so far and chance.

    The weights [kinds, parts] maximise the likelihood of the training streams whose numbers are in `development`;
    afterwards all of training is counted.
    """

    def __init__(
        self,
        train: Sequence[npt.ArrayLike],
        vocabulary: int | Sequence[int],
        counted: Sequence[KneserNey],
        development: Collection[int] | None = None,
    ) -> None:
        self.alphabet = Alphabet.of(vocabulary)
        kept = set(range(0, len(train), HELD_OUT)) if development is None else set(development)
        rest = [stream for number, stream in enumerate(train) if number not in kept]
        held_out = [stream for number, stream in enumerate(train) if number in kept]
        if not rest or not held_out:
            raise ValueError(
                f"{len(train)} training streams cannot be divided into some to count and some to weigh on."
            )
        partly = [KneserNey(rest, grams.order, vocabulary, grams.lags, grams.kinds) for grams in counted]
        chances, kinds = self._parts(partly, RepeatLast(rest, vocabulary), held_out)
        self.weights = np.full((len(self.alphabet.sizes), len(chances)), 1.0 / len(chances))
        for kind in np.unique(kinds):
            self.weights[kind] = _maximised(chances[:, kinds == kind])
        self._counted, self._repeat = list(counted), RepeatLast(train, vocabulary)

    def _parts(
        self, counted: Sequence[KneserNey], repeat: RepeatLast, streams: Sequence[npt.ArrayLike]
    ) -> tuple[Reals, Ids]:
        """The probability of every symbol by every part [parts, symbols], and the symbols' kinds."""
        test = Streams(streams, self.alphabet)
        rows = [1.0 / np.asarray(self.alphabet.sizes, dtype=np.float64)[test.kinds], so_far(test, self.alphabet)]
        rows.append(np.concatenate(repeat.probabilities(streams)))
        rows += [
            np.concatenate(grams.probabilities(streams, order))
            for number, grams in enumerate(counted)
            for order in range(1 if number == 0 else 2, grams.order + 1)
        ]
        return np.stack(rows), test.kinds

    def probabilities(self, streams: Sequence[npt.ArrayLike]) -> list[Reals]:
        """The probability of every symbol of each stream [time]."""
        if not len(streams):
            return []
        chances, kinds = self._parts(self._counted, self._repeat, streams)
        return Streams(streams, self.alphabet).split(np.einsum("pn,np->n", chances, self.weights[kinds]))


def _maximised(chances: Reals) -> Reals:
    """Weights of parts that make [parts, symbols] likeliest, by expectation and maximisation."""
    weights = np.full(len(chances), 1.0 / len(chances))
    for _ in range(ROUNDS):
        share = weights[:, None] * chances
        weights = (share / share.sum(axis=0)).mean(axis=1)
    return weights
