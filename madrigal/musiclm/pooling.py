"""Sequences to one vector each."""

from typing import NamedTuple

import torch
from torch import Tensor

from madrigal.layers.transformer import Transformer


class Encoded(NamedTuple):
    """One vector of each item, pooled [batch, dim], and those of every layer, [depth, batch, dim]."""

    pooled: Tensor
    layers: Tensor


def mean_over(x: Tensor, real: Tensor) -> Tensor:
    """[batch, time, dim] -> [batch, dim], the mean over what is `real` [batch, time]."""
    weights = real[..., None].to(x.dtype)
    return (x * weights).sum(1) / weights.sum(1).clamp(min=1)


def encoded(
    transformer: Transformer, x: Tensor, real: Tensor, *, at: Tensor | None = None, first_alone: bool = False
) -> Encoded:
    """What a transformer makes of x [batch, time, dim]: the mean of what is real, or the first token alone."""
    hidden: list[Tensor] = []
    # Rows that are all whole need no mask, and attention is faster without.
    found = transformer(x, mask=None if bool(real.all()) else real, at=at, hidden=hidden)
    states = [found, *hidden]
    pooled = [state[:, 0] if first_alone else mean_over(state, real) for state in states]
    return Encoded(pooled[0], torch.stack(pooled[1:]))
