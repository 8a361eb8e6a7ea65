"""Seeded split of a dataset into training and validation items."""

from __future__ import annotations

from madrigal.data.sampler import mix, permutation
from madrigal.errors import UserError

_STREAM = mix(*b"split")


def split(num_items: int, valid_frac: float = 0.05, seed: int = 42) -> tuple[list[int], list[int]]:
    """Sorted indices (training, validation), disjoint, together all items, the same for the same seed.

    While there are two items or more and `valid_frac` is above 0, neither side is empty, however small the
    fraction; `valid_frac=0` asks for no validation items at all.
    """
    if not 0 <= valid_frac < 1:
        raise UserError(f"valid_frac is {valid_frac}; give a fraction from 0 to below 1.")
    if num_items < 1:
        raise UserError("There is nothing to split: the dataset is empty.")
    num_valid = round(num_items * valid_frac)
    if valid_frac > 0 and num_items >= 2:
        num_valid = min(max(num_valid, 1), num_items - 1)
    order = permutation(num_items, seed, _STREAM)
    return sorted(order[num_valid:].tolist()), sorted(order[:num_valid].tolist())
