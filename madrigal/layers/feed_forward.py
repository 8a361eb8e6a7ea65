"""The gated feed-forward that every transformer here shares."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madrigal.layers.cache import KeyValueCache
from madrigal.layers.norm import AdaptiveRMSNorm, RMSNorm, unit


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
    """Norm and gated feed-forward; two thirds of `mult * dim` inside, for the gate costs the other third.

    With `cond_dim` the norm adapts to a vector [batch, cond_dim].
    """

    def __init__(self, dim: int, mult: float = 4, dropout: float = 0.0, cond_dim: int | None = None) -> None:
        inner = int(dim * mult * 2 / 3)
        super().__init__(
            RMSNorm(dim) if cond_dim is None else AdaptiveRMSNorm(dim, cond_dim),
            nn.Linear(dim, 2 * inner, bias=False),
            GEGLU(dropout),
            nn.Linear(inner, dim, bias=False),
        )

    def forward(self, x: Tensor, cond: Tensor | None = None) -> Tensor:
        norm, inwards, gate, outwards = self
        out: Tensor = outwards(gate(inwards(norm(x) if cond is None else norm(x, cond))))
        return out

    def step(self, x: Tensor, cache: KeyValueCache) -> Tensor:
        """The same for one token in each row, [batch, dim]."""
        norm, inwards, _, outwards = self
        value, gate = torch.mm(unit(x), cache.weight(inwards, norm)).chunk(2, dim=-1)
        return torch.mm(value * F.gelu(gate), cache.weight(outwards))
