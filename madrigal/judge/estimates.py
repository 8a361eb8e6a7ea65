"""Means with their uncertainty: a figure without an interval cannot be compared with another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict

Z = NormalDist().inv_cdf(0.975)


class Estimate(BaseModel):
    """A mean over utterances with its standard error and 95 % interval.

    With one utterance there is a mean and no error. `count` is the number of utterances the measure was defined on.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    mean: float
    standard_error: float | None
    low: float | None
    high: float | None
    count: int

    @property
    def half_width(self) -> float | None:
        """Half of the 95 % interval: the number after the ± sign."""
        return None if self.high is None else self.high - self.mean


def student_quantile(freedom: int) -> float:
    """The 97.5 % point of Student's t, by its expansion around the normal quantile.

    The series is within 1 % from 4 degrees of freedom on; the first three are tabled.
    """
    if freedom <= 3:
        return (12.706, 4.303, 3.182)[freedom - 1]
    z, n = Z, float(freedom)
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / n + second / n**2 + third / n**3


def _estimate(mean: float, standard_error: float | None, count: int) -> Estimate:
    if standard_error is None:
        return Estimate(mean=mean, standard_error=None, low=None, high=None, count=count)
    reach = student_quantile(count - 1) * standard_error
    return Estimate(mean=mean, standard_error=standard_error, low=mean - reach, high=mean + reach, count=count)


def of_mean(values: Sequence[float] | npt.NDArray[np.float64]) -> Estimate | None:
    """Mean of the finite values; None where there are none."""
    known = np.asarray(values, dtype=np.float64)
    known = known[np.isfinite(known)]
    if len(known) == 0:
        return None
    error = float(known.std(ddof=1) / math.sqrt(len(known))) if len(known) > 1 else None
    return _estimate(float(known.mean()), error, len(known))


def of_difference(first: Sequence[float], second: Sequence[float]) -> Estimate | None:
    """Mean of first - second over the same utterances: pairing removes what the utterances have in common."""
    return of_mean(np.asarray(first, dtype=np.float64) - np.asarray(second, dtype=np.float64))


def of_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> Estimate | None:
    """sum(numerators) / sum(denominators), as a word error rate or a bit rate is pooled.

    The standard error is that of the ratio estimator (first order), over utterances.
    """
    top = np.asarray(numerators, dtype=np.float64)
    bottom = np.asarray(denominators, dtype=np.float64)
    if bottom.sum() <= 0:
        return None
    ratio = float(top.sum() / bottom.sum())
    count = len(top)
    if count < 2:
        return _estimate(ratio, None, count)
    spread = float(np.sqrt(((top - ratio * bottom) ** 2).sum() / (count - 1)))
    return _estimate(ratio, spread / (math.sqrt(count) * float(bottom.mean())), count)


def of_share(hits: int, count: int) -> Estimate:
    """hits out of count, with Wilson's interval: a share of 0 or 1 does not pretend to be certain."""
    share = hits / count
    middle = (share + Z**2 / (2 * count)) / (1 + Z**2 / count)
    reach = Z * math.sqrt(share * (1 - share) / count + Z**2 / (4 * count**2)) / (1 + Z**2 / count)
    error = math.sqrt(share * (1 - share) / count)
    return Estimate(
        mean=share, standard_error=error, low=max(0.0, middle - reach), high=min(1.0, middle + reach), count=count
    )
