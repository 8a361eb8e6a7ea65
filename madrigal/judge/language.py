"""What a language model of tokens has to beat: perplexities of unigrams, of repeating the last, of n-grams, of all.

Streams are arrays of ids [time]. Where positions have kinds (the quantizers of a codec, flattened), the ids of each
kind have their own range (`offset_by_kind`) and `vocabulary` is a list of sizes: every baseline then knows which
codebook a position belongs to, as the model does, and spreads its probability over that codebook alone.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt

from madrigal.judge.estimates import Estimate, of_ratio
from madrigal.judge.kneser_ney import Alphabet, Ids, KneserNey
from madrigal.judge.mixture import Mixture, RepeatLast

Masks = Sequence[npt.ArrayLike] | None


def offset_by_kind(ids: npt.ArrayLike, kinds: npt.ArrayLike, sizes: Sequence[int]) -> Ids:
    """Ids that start at 0 in every kind -> ids that no two kinds share; `kinds` has the shape of `ids`."""
    return Alphabet.of(sizes).offset(ids, kinds)


class Perplexity:
    """Negative log-likelihoods (nats) and numbers of symbols, added up stream by stream.

    Add one entry for each utterance, so that intervals and paired differences can be told.
    """

    def __init__(self) -> None:
        self.nlls: list[float] = []
        self.counts: list[int] = []

    def add(self, nll: float, count: int) -> None:
        """The summed negative log-likelihood of `count` symbols of one utterance."""
        self.nlls.append(float(nll))
        self.counts.append(int(count))

    @property
    def count(self) -> int:
        return sum(self.counts)

    @property
    def value(self) -> float:
        """The perplexity of all symbols together, NaN without any."""
        return math.exp(math.fsum(self.nlls) / self.count) if self.count else math.nan

    def nats(self) -> Estimate | None:
        """The mean negative log-likelihood of a symbol, with its interval over utterances."""
        return of_ratio(self.nlls, self.counts)

    def versus(self, other: Perplexity) -> Estimate | None:
        """Nats per symbol that this has more than `other`, on the same symbols of the same utterances."""
        if self.counts != other.counts:
            raise ValueError("Perplexities can be compared only over the same symbols of the same utterances.")
        return of_ratio([mine - theirs for mine, theirs in zip(self.nlls, other.nlls)], self.counts)

    def __repr__(self) -> str:
        return f"Perplexity({self.value:.2f} over {self.count} symbols)"


def perplexity_of(probabilities: Sequence[npt.NDArray[np.float64]], scored: Masks = None) -> Perplexity:
    """From the probability of every symbol of each stream; `scored` masks those that count."""
    total = Perplexity()
    masks = [np.ones(len(chances), dtype=bool) for chances in probabilities] if scored is None else list(scored)
    if len(masks) != len(probabilities):
        raise ValueError(f"There are {len(masks)} masks for {len(probabilities)} streams.")
    for chances, mask in zip(probabilities, masks):
        kept = np.asarray(mask, dtype=bool)
        if kept.shape != chances.shape:
            raise ValueError(f"A mask of shape {list(kept.shape)} does not fit a stream of {len(chances)} symbols.")
        total.add(-float(np.log(chances[kept]).sum()), int(kept.sum()))
    return total


def ngram_perplexity(
    train: Sequence[npt.ArrayLike],
    test: Sequence[npt.ArrayLike],
    order: int,
    vocabulary: int | Sequence[int],
    *,
    scored: Masks = None,
    lags: Sequence[int] | None = None,
) -> Perplexity:
    """Of n-grams with modified Kneser-Ney smoothing, counted on `train`; order 1 is the unigram."""
    return perplexity_of(KneserNey(train, order, vocabulary, lags).probabilities(test), scored)


def frame_lags(frame: int, order: int) -> tuple[int, ...]:
    """Distances in a stream of flattened frames, the most telling first: the same codebook of the frame before, the
    neighbours, the frame before that."""
    return tuple(dict.fromkeys([frame, 1, 2, 2 * frame, *range(3, order + 2)]))[: order - 1]


def baselines(
    train: Sequence[npt.ArrayLike],
    test: Sequence[npt.ArrayLike],
    vocabulary: int | Sequence[int],
    *,
    order: int = 5,
    frame: int = 1,
    scored: Masks = None,
    development: Collection[int] | None = None,
) -> dict[str, Perplexity]:
    """The perplexity of `test` by everything that only counts, weakest idea first.

    "chance", "unigram", "repeat last", "2-gram" to "`order`-gram"; where a frame takes several symbols (`frame`), the
    same order over `frame_lags`; and "mixture", their best weighing by the training streams with the numbers
    `development` (every tenth unless given; whole speakers are the better choice where the test's speakers are new).
    """
    alphabet = Alphabet.of(vocabulary)
    # Half of a fine stage's symbols are given: to count what nobody asks for would take gigabytes.
    kinds = None if scored is None else _kinds_scored(test, scored, alphabet)
    counted = [KneserNey(train, order, vocabulary, kinds=kinds)]
    even = [1.0 / np.asarray(alphabet.sizes, dtype=np.float64)[alphabet.kinds(np.asarray(ids))] for ids in test]
    chances = {
        "chance": even,
        "unigram": counted[0].probabilities(test, 1),
        "repeat last": RepeatLast(train, vocabulary).probabilities(test),
    }
    chances |= {f"{length}-gram": counted[0].probabilities(test, length) for length in range(2, order + 1)}
    if frame > 1 and order > 1:
        counted.append(KneserNey(train, order, vocabulary, frame_lags(frame, order), kinds))
        chances[f"{order}-gram over frames"] = counted[1].probabilities(test)
    chances["mixture"] = Mixture(train, vocabulary, counted, development).probabilities(test)
    return {name: perplexity_of(values, scored) for name, values in chances.items()}


def _kinds_scored(streams: Sequence[npt.ArrayLike], scored: Sequence[npt.ArrayLike], alphabet: Alphabet) -> set[int]:
    """The kinds of the symbols that a mask says count."""
    masked = (np.asarray(ids)[np.asarray(mask, dtype=bool)] for ids, mask in zip(streams, scored))
    return {int(kind) for ids in masked for kind in np.unique(alphabet.kinds(ids))}
