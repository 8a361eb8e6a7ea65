"""Is it as long as a person would make it: durations that were foretold, beside those of recordings."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from madrigal.judge.estimates import Estimate, of_mean, of_ratio
from madrigal.judge.record import Record


class DurationErrors(Record):
    """How far durations are off: of a symbol in milliseconds, of a whole sentence as a fraction of its length.

    `length` is the ratio of all that was foretold to all that was heard: over 1 is too slow. `even` is the error of a
    symbol if all symbols of a sentence were given the same duration of the right sum: what knowing nothing gives.
    """

    sentences: int
    symbols: int
    symbol_ms: Estimate | None
    even_ms: Estimate | None
    total: Estimate | None
    length: Estimate | None


def duration_errors(
    sentences: Sequence[tuple[npt.ArrayLike, npt.ArrayLike]], frame_seconds: float
) -> DurationErrors | None:
    """From durations in frames, foretold and heard, [symbols] of each sentence; None without sentences."""
    pairs = [(np.asarray(one, float), np.asarray(other, float)) for one, other in sentences]
    for one, other in pairs:
        if one.shape != other.shape or one.ndim != 1 or not len(one):
            raise ValueError(f"Durations of shapes {list(one.shape)} and {list(other.shape)} cannot be compared.")
    if not pairs:
        return None
    counts = [len(other) for _, other in pairs]
    off = [1000 * frame_seconds * float(np.abs(one - other).sum()) for one, other in pairs]
    even = [1000 * frame_seconds * float(np.abs(other - other.mean()).sum()) for _, other in pairs]
    sums = [(float(one.sum()), float(other.sum())) for one, other in pairs]
    return DurationErrors(
        sentences=len(pairs),
        symbols=sum(counts),
        symbol_ms=of_ratio(off, counts),
        even_ms=of_ratio(even, counts),
        total=of_mean([abs(one - other) / other for one, other in sums if other]),
        length=of_ratio([one for one, _ in sums], [other for _, other in sums]),
    )
