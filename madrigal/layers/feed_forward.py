"""The gated feed-forward that every transformer here shares."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madrigal.layers.cache import KeyValueCache
from madrigal.layers.norm import RMSNorm, unit


class GEGLU(nn.Module):
    """[..., 2 * inner] -> [..., inner]: one half, gated by the other."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        value, gate = x.chunk(2, dim=-1)
        # GELU takes four times as long on a CPU if its input has gaps.
        return F.dropout(value * F.gelu(gate.contiguous()), self.dropout, self.training)


class FeedForward(nn.Sequential):
    """Norm and gated feed-forward; two thirds of `mult * dim` inside, for the gate costs the other third."""

    def __init__(self, dim: int, mult: float = 4, dropout: float = 0.0) -> None:
        inner = int(dim * mult * 2 / 3)
        super().__init__(
            RMSNorm(dim), nn.Linear(dim, 2 * inner, bias=False), GEGLU(dropout), nn.Linear(inner, dim, bias=False)
        )

    def step(self, x: Tensor, cache: KeyValueCache) -> Tensor:
        """The same for one token in each row, [batch, dim]."""
        norm, inwards, _, outwards = self
        value, gate = torch.mm(unit(x), cache.weight(inwards, norm)).chunk(2, dim=-1)
        return torch.mm(value * F.gelu(gate), cache.weight(outwards))
