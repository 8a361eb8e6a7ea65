"""Frechet distance: how far apart two sets are, by the means and the covariances of their features."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float64]


def frechet_distance(first: Vectors, second: Vectors) -> float:
    """Between features [n, dims] and [m, dims]: zero for the same Gaussian, in squares of the features' unit."""
    gap = first.mean(0) - second.mean(0)
    one, other = _covariance(first), _covariance(second)
    # The trace of the root of a product is the sum of the roots of its eigenvalues, which are those of the product
    # made symmetric by a root of one factor.
    root = _root(one)
    shared = np.linalg.eigvalsh(root @ other @ root)
    total = gap @ gap + np.trace(one) + np.trace(other) - 2 * np.sqrt(np.maximum(shared, 0.0)).sum()
    return float(max(total, 0.0))


def principal_axes(features: Vectors, count: int) -> Vectors:
    """The `count` directions [dims, count] in which features [n, dims] differ most: a covariance needs more clips."""
    _, _, rows = np.linalg.svd(features - features.mean(0), full_matrices=False)
    return np.asarray(rows[:count].T)


def _covariance(features: Vectors) -> Vectors:
    return np.atleast_2d(np.cov(features, rowvar=False))


def _root(matrix: Vectors) -> Vectors:
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)
