"""Frechet distance of two sets of features: how far apart their normal distributions are."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Features = npt.NDArray[np.float64]


def frechet_distance(first: Features, second: Features) -> float:
    """Between the normal distributions that features [n, dim] and [m, dim] have (Dowson and Landau 1982).

    |difference of means|² + trace(A + B - 2 (A B)^½) for covariances A and B. It falls with the number of items:
    figures compare only where both sets have the same sizes.
    """
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    if first.ndim != 2 or second.ndim != 2 or first.shape[1] != second.shape[1]:
        raise ValueError(f"Features are [items, dim] of one dim, not {list(first.shape)} and {list(second.shape)}.")
    if min(len(first), len(second)) < 2:
        raise ValueError("A distribution needs at least two items.")
    means = first.mean(0) - second.mean(0)
    a, b = np.cov(first, rowvar=False), np.cov(second, rowvar=False)
    a, b = np.atleast_2d(a), np.atleast_2d(b)
    # The roots of A B are those of the symmetric A^½ B A^½, which has no imaginary parts to throw away.
    values, vectors = np.linalg.eigh(a)
    root = (vectors * np.sqrt(values.clip(min=0))) @ vectors.T
    shared = np.sqrt(np.linalg.eigvalsh(root @ b @ root).clip(min=0)).sum()
    return float(max(0.0, means @ means + np.trace(a) + np.trace(b) - 2 * shared))


def components(features: Features, count: int) -> tuple[Features, Features]:
    """Mean [dim] and the first `count` principal axes [count, dim] of features [n, dim], or as many as there are.

    With fewer items than dimensions a covariance is not known; on some axes it is.
    """
    features = np.asarray(features, np.float64)
    mean = features.mean(0)
    _, _, axes = np.linalg.svd(features - mean, full_matrices=False)
    return mean, axes[: min(count, len(features) - 1)]


def frechet_on_components(real: Features, made: Features, count: int = 64) -> float:
    """The distance on the first principal axes of the `real` features."""
    mean, axes = components(real, count)
    return frechet_distance((real - mean) @ axes.T, (made - mean) @ axes.T)
