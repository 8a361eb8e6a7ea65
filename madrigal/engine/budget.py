"""Batches by a budget of seconds or tokens instead of a number of items: like lengths go together."""

from typing import Any, NamedTuple

import numpy as np
from torch.utils.data import ConcatDataset, Subset

from madrigal.engine.plan import Plan
from madrigal.errors import UserError


class Budget(NamedTuple):
    """How long each item of a dataset is, and how much of that a micro-batch may hold, padding included."""

    lengths: np.ndarray
    size: float


def budget_of(plan: Plan, dataset: Any) -> Budget | None:
    """The plan's budget over `dataset`; None where the plan counts items."""
    if plan.seconds_per_batch is not None:
        unit, size = "seconds", plan.seconds_per_batch
    elif plan.tokens_per_batch is not None:
        unit, size = "tokens", float(plan.tokens_per_batch)
    else:
        return None
    lengths = lengths_of(dataset, unit)
    if len(lengths) and lengths.max() > size:
        raise UserError(
            f"The longest item has {lengths.max():g} {unit}, more than plan.{unit}_per_batch {size:g}: "
            f"raise it, or let the data cut items shorter."
        )
    return Budget(lengths, size)


def lengths_of(dataset: Any, unit: str) -> np.ndarray:
    """`dataset.seconds(index)` or `dataset.tokens(index)` of every item; subsets and concatenations are looked through.

    A dataset of crops answers with the length of the crop.
    """
    if type(dataset) is Subset:
        return lengths_of(dataset.dataset, unit)[np.asarray(dataset.indices, dtype=np.int64)]
    if type(dataset) is ConcatDataset:
        return np.concatenate([lengths_of(part, unit) for part in dataset.datasets])
    if not hasattr(dataset, unit):
        raise UserError(
            f"plan.{unit}_per_batch needs a dataset that tells the {unit} of an item, "
            f"and {type(dataset).__name__} has no {unit}(index): set plan.batch_size instead."
        )
    return np.array([getattr(dataset, unit)(index) for index in range(len(dataset))], dtype=np.float64)
