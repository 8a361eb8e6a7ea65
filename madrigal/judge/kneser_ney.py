"""N-grams with modified Kneser-Ney smoothing over streams of ids: the strongest model that only counts.

A table of each level holds every context of that length and every (context, symbol) that was seen, as sorted 64-bit
keys, so that millions of symbols are counted by sorting and looked up by bisection. Probabilities are interpolated:

    p(symbol | context) = (count - discount) / total + (sum of discounts / total) * p(symbol | shorter context)

with the counts themselves at the longest context, and below it the number of different contexts that a symbol follows.
The shortest context is the kind of the position (which codebook it belongs to), and behind it every id of that
kind is equally likely: no probability is ever given to ids that cannot stand at a position.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Alphabet:
    """The sizes of the kinds of symbols: ids of kind k run from starts[k] to starts[k] + sizes[k] - 1."""

    sizes: tuple[int, ...]

    @classmethod
    def of(cls, vocabulary: int | Sequence[int]) -> Alphabet:
        sizes = tuple(int(size) for size in np.atleast_1d(vocabulary))
        if not sizes or min(sizes) < 1:
            raise ValueError(f"A vocabulary is a positive number or several, one for each kind, not {vocabulary}.")
        return cls(sizes)

    @property
    def total(self) -> int:
        return sum(self.sizes)

    @property
    def starts(self) -> Ids:
        return np.concatenate([[0], np.cumsum(self.sizes)[:-1]]).astype(np.int64)

    def kinds(self, ids: Ids) -> Ids:
        return (np.searchsorted(self.starts, ids, side="right") - 1).astype(np.int64)

    def offset(self, ids: npt.ArrayLike, kinds: npt.ArrayLike) -> Ids:
        """Ids from 0 within their kind -> ids that tell the kinds apart; both of any one shape."""
        own, of_kind = np.asarray(ids, dtype=np.int64), np.asarray(kinds, dtype=np.int64)
        if own.size and (own.min() < 0 or (own >= np.asarray(self.sizes)[of_kind]).any()):
            raise ValueError(f"Ids lie outside of the sizes {list(self.sizes)} of their kinds.")
        return np.asarray(own + self.starts[of_kind])


class Streams:
    """Several streams of ids [time] laid end to end: what is at a distance before a symbol, within its own stream."""

    def __init__(self, streams: Sequence[npt.ArrayLike], alphabet: Alphabet) -> None:
        arrays = [np.asarray(stream) for stream in streams]
        if any(array.ndim != 1 or not np.issubdtype(array.dtype, np.integer) for array in arrays if array.size):
            raise ValueError("Streams are one-dimensional arrays of integers.")
        self.lengths = np.array([len(array) for array in arrays], dtype=np.int64)
        self.ids = np.concatenate([np.zeros(0, np.int64), *(array.astype(np.int64) for array in arrays)])
        if self.ids.size and (self.ids.min() < 0 or self.ids.max() >= alphabet.total):
            raise ValueError(
                f"Ids run from {self.ids.min()} to {self.ids.max()}, outside of a vocabulary of {alphabet.total}."
            )
        self.kinds = alphabet.kinds(self.ids)
        self.start = alphabet.total
        """What stands before the first symbol of a stream: an id of no kind."""
        self.stream = np.repeat(np.arange(len(arrays)), self.lengths)
        self.place = np.arange(len(self.ids)) - np.repeat(np.cumsum(self.lengths) - self.lengths, self.lengths)

    def before(self, distance: int) -> Ids:
        """For every symbol the one that many places earlier, or `start`."""
        earlier = np.full(len(self.ids), self.start, dtype=np.int64)
        earlier[distance:] = self.ids[: max(0, len(self.ids) - distance)]
        earlier[self.place < distance] = self.start
        return earlier

    def split(self, values: npt.NDArray[Any]) -> list[npt.NDArray[Any]]:
        """Values of all symbols -> one array for each stream."""
        return np.split(values, np.cumsum(self.lengths)[:-1]) if len(self.lengths) else []


@dataclass(frozen=True)
class _Shares:
    """What a level gives: `own` of every gram after its discount, and `rest` of every context to the shorter one."""

    own: Reals
    rest: Reals

    @classmethod
    def of(cls, counts: Ids, context: Ids, kind: Ids, contexts: int, kinds: int) -> _Shares:
        """From the count, the context and the kind of every gram."""
        discount = _discounts(counts, kind, kinds)[kind, np.minimum(counts, 3)]
        total = np.bincount(context, weights=counts, minlength=contexts)
        rest = np.bincount(context, weights=discount, minlength=contexts)
        # A kind that training never showed leaves everything to chance.
        return cls((counts - discount) / total[context], np.divide(rest, total, out=np.ones(contexts), where=total > 0))


def _discounts(counts: Ids, kind: Ids, kinds: int) -> Reals:
    """[kinds, 4]: what is taken from a count of 0, 1, 2, and 3 or more (Chen and Goodman's estimates).

    Each kind has its own: codebooks differ in how often they surprise. Where there are too few rare grams to
    estimate from, half a count is taken.
    """
    rare = np.bincount(kind * 5 + np.minimum(counts, 5) - 1, minlength=kinds * 5).reshape(kinds, 5)[:, :4]
    table = np.zeros((kinds, 4))
    for row, (one, two, three, four) in enumerate(rare.tolist()):
        if not one or not two:
            table[row, 1:] = 0.5
            continue
        share = one / (one + 2 * two)
        table[row, 1:] = share
        if three and four:
            closed = (1 - 2 * share * two / one, 2 - 3 * share * three / two, 3 - 4 * share * four / three)
            # A share must be left to unseen symbols at every count, and none may be negative.
            table[row, 1:] = np.clip(closed, 0.01, (0.99, 1.99, 2.99))
    return table


@dataclass(frozen=True)
class _Level:
    """Contexts of one length and the grams in them, as sorted keys; shares for when it is the longest, and else."""

    contexts: Ids
    grams: Ids
    counted: _Shares
    continued: _Shares | None


class KneserNey:
    """Counts of `train` for every order up to `order`.

    `vocabulary` is the number of ids, or one number for each kind of position (codebooks of a codec, laid one after the
    other by `Alphabet.offset`). `lags` are the distances of the context's symbols, the most telling first: 1, 2, 3 …
    unless given; in a stream of flattened frames the same codebook of the frame before may tell the most. `kinds` are
    the kinds of symbols that will be asked for, all unless given; the others are contexts alone, and not counted.
    """

    def __init__(
        self,
        train: Sequence[npt.ArrayLike],
        order: int,
        vocabulary: int | Sequence[int],
        lags: Sequence[int] | None = None,
        kinds: Collection[int] | None = None,
    ) -> None:
        self.alphabet, self.kinds = Alphabet.of(vocabulary), kinds
        self.lags = tuple(lags) if lags is not None else tuple(range(1, order))
        if order < 1 or len(self.lags) != order - 1 or any(lag < 1 for lag in self.lags):
            raise ValueError(f"An order of {order} needs {max(0, order - 1)} lags of at least 1, not {self.lags}.")
        self.order = order
        self._levels = self._count(Streams(train, self.alphabet))

    @property
    def _span(self) -> int:
        return self.alphabet.total + 1  # every id, and the start of a stream

    def _count(self, streams: Streams) -> list[_Level]:
        if not len(streams.ids):
            raise ValueError("There is nothing to count: the streams for training hold no symbols.")
        tables = []
        asked = slice(None) if self.kinds is None else np.isin(streams.kinds, list(self.kinds))
        contexts, context, ids = np.arange(len(self.alphabet.sizes)), streams.kinds[asked], streams.ids[asked]
        for level in range(self.order):
            if level:
                keys = context * self._span + streams.before(self.lags[level - 1])[asked]
                contexts, context = np.unique(keys, return_inverse=True)
            grams, gram = np.unique(context * self._span + ids, return_inverse=True)
            tables.append((contexts, grams, gram))
        longer = [gram for _, _, gram in tables[1:]] + [None]
        return [self._level(*table, after, streams.start) for table, after in zip(tables, longer)]

    def _level(self, contexts: Ids, grams: Ids, gram: Ids, longer: Ids | None, start: int) -> _Level:
        """Shares of one level, from the grams at all places of the streams here and (`longer`) one level on."""
        owner, kind = grams // self._span, self.alphabet.kinds(grams % self._span)
        counts = np.bincount(gram, minlength=len(grams))
        shape = (owner, kind, len(contexts), len(self.alphabet.sizes))
        counted, continued = _Shares.of(counts, *shape), None
        if longer is not None:
            # Which gram of this level a longer one ends with is the same at all places where it stands.
            ends = np.zeros(int(longer.max()) + 1, dtype=np.int64)
            ends[longer] = gram
            different = np.bincount(ends, minlength=len(grams))
            # Nothing stands before the start of a stream, so there the counts themselves must speak.
            at_start = contexts % self._span == start
            continued = _Shares.of(np.where(at_start[owner], counts, different), *shape)
        return _Level(contexts, grams, counted, continued)

    def probabilities(self, streams: Sequence[npt.ArrayLike], order: int | None = None) -> list[Reals]:
        """The probability of every symbol of each stream [time], given those before it, by n-grams of `order`."""
        order = self.order if order is None else order
        if not 1 <= order <= self.order:
            raise ValueError(f"The order is 1 to {self.order}, not {order}.")
        test = Streams(streams, self.alphabet)
        chance = 1.0 / np.asarray(self.alphabet.sizes, dtype=np.float64)[test.kinds]
        context, known = test.kinds, np.ones(len(test.ids), dtype=bool)
        for depth, level in enumerate(self._levels[:order]):
            if depth:
                context, known = _find(level.contexts, context * self._span + test.before(self.lags[depth - 1]), known)
            gram, seen = _find(level.grams, context * self._span + test.ids, known)
            shares = level.counted if depth == order - 1 or level.continued is None else level.continued
            chance = np.where(seen, shares.own[gram], 0.0) + np.where(known, shares.rest[context], 1.0) * chance
        return test.split(chance)


def _find(keys: Ids, wanted: Ids, among: npt.NDArray[np.bool_]) -> tuple[Ids, npt.NDArray[np.bool_]]:
    """The index of every wanted key, and whether it is there at all (and `among` says that it may be)."""
    index = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return index, among & (keys[index] == wanted)
