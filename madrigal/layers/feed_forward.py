"""The gated feed-forward that every transformer here shares."""

import math
from collections.abc import Iterable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madrigal.layers.cache import KeyValueCache
from madrigal.layers.norm import Adapted, AdaptiveRMSNorm, RMSNorm, unit
from madrigal.layers.products import Linear, opened_and_multiplied


class GEGLU(nn.Module):
    """[2 * inner, rows] -> [inner, rows]: one half, gated by the other."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = dropout

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            gated: Tensor = _Gated.apply(x)
        else:
            value, gate = x.chunk(2)
            gated = F.gelu(gate).mul_(value)
        return F.dropout(gated, self.dropout, self.training)


class _Gated(torch.autograd.Function):
    """Both halves of the gradient are written where they belong; autograd itself would join them by a copy."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        value, gate = x.chunk(2)
        opened = F.gelu(gate)
        ctx.save_for_backward(x, opened)
        return value * opened

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        x, opened = ctx.saved_tensors
        value, gate = x.chunk(2)
        if torch.compiler.is_compiling():  # what compiles would go over both halves for each of them
            if x.dtype == torch.bfloat16:
                opened, slope = _opened(gate.float())
                return torch.cat(((grad * opened).to(x.dtype), (grad * value * slope).to(x.dtype)))
            return torch.cat((grad * opened, torch.ops.aten.gelu_backward(grad * value, gate)))
        out = torch.empty_like(x)
        for_value, for_gate = out.chunk(2)
        torch.mul(grad, opened, out=for_value)
        torch.ops.aten.gelu_backward.grad_input(grad * value, gate, grad_input=for_gate)
        return out


def _opened(gate: Tensor) -> tuple[Tensor, Tensor]:
    """GELU and its derivative by one exponential, which the normal distribution and its density share.

    The distribution is formula 7.1.26 of Abramowitz and Stegun, which torch's erf is on a CPU: off by 1e-7 at most.
    """
    distance = gate.abs()
    falling = torch.exp(distance * distance * -0.5)
    near = 1 / (1 + 0.3275911 * 0.5**0.5 * distance)
    series = 0.0
    for coefficient in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = (series + coefficient) * near
    beyond = 0.5 * falling * series
    below = torch.where(gate < 0, beyond, 1 - beyond)
    return gate * below, below + gate * falling * (2 * math.pi) ** -0.5


class FeedForward(nn.Sequential):
    """Norm and gated feed-forward; two thirds of `mult * dim` inside, for the gate costs the other third.

    With `cond_dim` the norm adapts to a vector [batch, cond_dim].
    """

    def __init__(self, dim: int, mult: float = 4, dropout: float = 0.0, cond_dim: int | None = None) -> None:
        inner = int(dim * mult * 2 / 3)
        super().__init__(
            RMSNorm(dim) if cond_dim is None else AdaptiveRMSNorm(dim, cond_dim),
            Linear(dim, 2 * inner, bias=False, parts=2),
            GEGLU(dropout),
            Linear(inner, dim, bias=False),
        )

    def forward(self, x: Tensor, cond: Tensor | Adapted | None = None) -> Tensor:
        layers: Iterable[Any] = self
        norm, inwards, gate, outwards = layers
        normed = norm(x) if cond is None else norm(x, cond)
        packed = inwards.packed
        if packed:
            gated = opened_and_multiplied(normed, packed)
            out: Tensor = outwards(F.dropout(gated, gate.dropout, gate.training))
            return out
        # Inside, a row is a column: so value and gate are each of one piece, and the products are faster by a third on
        # a CPU where `inner` is no multiple of what its registers hold.
        hidden = gate(torch.mm(inwards.weight, normed.flatten(0, -2).T))
        return F.linear(hidden.T, outwards.weight).view(x.shape)

    def step(self, x: Tensor, cache: KeyValueCache) -> Tensor:
        """The same for one token in each row, [batch, dim]."""
        norm, inwards, _, outwards = self
        value, gate = cache.product(unit(x), inwards, norm).chunk(2, dim=-1)
        # A GELU by its formula: torch's own asks oneDNN, and asking takes longer than the answer for so few numbers.
        # In 16 bits the formula would lose what is small.
        is_full = gate.dtype == torch.float32
        opened = torch.addcmul(gate, gate, torch.erf(gate * 0.5**0.5)).mul_(0.5) if is_full else F.gelu(gate)
        return cache.product(opened.mul_(value), outwards)
