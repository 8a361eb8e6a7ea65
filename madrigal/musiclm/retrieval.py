"""Which of all finds which: the places that the right answers have, and how the embeddings lie."""

import torch
from torch import Tensor

ROWS = 1024
"""Similarities of so many rows are held at once."""


def places(queries: Tensor, answers: Tensor, labels: Tensor) -> Tensor:
    """Float [n]: how many wrong answers come before the best right one; 0 = found first.

    queries and answers [n, dim] of unit length belong together row by row, and so do all of the same `labels` [n]. Ties
    are shared: where all embeddings are alike a place is the middle, not the first.
    """
    found = []
    for start in range(0, len(queries), ROWS):
        scores = queries[start : start + ROWS] @ answers.T
        right = labels[start : start + ROWS, None] == labels
        best = scores.masked_fill(~right, float("-inf")).amax(1, keepdim=True)
        wrong = ~right
        # Two products of the same vectors may differ in their last bits.
        tied = (scores - best).abs() <= 1e-6
        before = ((scores > best) & ~tied & wrong).sum(1)
        found.append(before + (tied & wrong).sum(1) / 2)
    return torch.cat(found) if found else torch.zeros(0)


def recall_by_chance(labels: Tensor, most: int) -> float:
    """The share of queries that find one of the same `labels` [n] among `most` answers that are drawn blindly."""
    count = len(labels)
    _, kinds, rights = labels.unique(return_inverse=True, return_counts=True)
    wrong = (count - rights[kinds]).double()
    missed = torch.ones_like(wrong)
    for drawn in range(min(most, count)):
        missed = missed * ((wrong - drawn) / (count - drawn)).clamp(min=0)
    return float((1 - missed).mean())


def spread(rows: Tensor) -> float:
    """The mean cosine of all two of [n, dim] of unit length: near 1 when all are alike."""
    count = len(rows)
    if count < 2:
        return 1.0
    return float((rows.double().sum(0).square().sum() - count) / (count * (count - 1)))
