"""Root mean square norms, plain and adaptive, with backward passes that are quick on a CPU."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

EPS = torch.tensor(torch.finfo(torch.float32).eps)


class RMSNorm(nn.RMSNorm):
    """[..., dim] -> the same shape, each vector divided by its root mean square and scaled by a learned weight.

    On a CPU torch walks over the tensors three times forward and a dozen times backward; this one, two and four times.
    """

    def __init__(self, dim: int) -> None:
        super().__init__(dim)

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(self.weight.dtype)
        if x.device.type == "cpu":
            out: Tensor = _RootMeanSquare.apply(x, self.weight) if torch.is_grad_enabled() else unit(x) * self.weight
            return out
        return F.rms_norm(x, self.normalized_shape, self.weight)


class AdaptiveRMSNorm(nn.Module):
    """[batch, time, dim] -> the same shape; what scales and shifts it follows from a vector [batch, cond_dim].

    It starts as a plain norm: whatever the vector is, the scale is one and the shift is zero.
    """

    def __init__(self, dim: int, cond_dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.to_scale_and_shift = nn.Linear(cond_dim, 2 * dim)
        nn.init.zeros_(self.to_scale_and_shift.weight)
        nn.init.zeros_(self.to_scale_and_shift.bias)

    def adapted(self, cond: Tensor) -> tuple[Tensor, Tensor]:
        """What scales and what shifts, [batch, dim] each."""
        # Out of autocast: it is little work, and what it makes is multiplied into every frame.
        with torch.autocast(cond.device.type, enabled=False):
            scale, shift = self.to_scale_and_shift(cond.to(self.weight.dtype)).chunk(2, dim=-1)
            return torch.addcmul(self.weight, self.weight, scale), shift

    def forward(self, x: Tensor, cond: "Tensor | Adapted") -> Tensor:
        x = x.to(self.weight.dtype)
        scale, shift = cond[self] if isinstance(cond, dict) else self.adapted(cond)
        if x.device.type == "cpu" and torch.is_grad_enabled():
            out: Tensor = _AdaptedMeanSquare.apply(x, scale, shift)
            return out
        return torch.addcmul(shift[:, None], unit(x), scale[:, None])


Adapted = dict[nn.Module, tuple[Tensor, Tensor]]
"""What scales and what shifts, by norm: made beforehand where one vector after another is known to come."""


def adapted_to(model: nn.Module, conds: Tensor) -> list[Adapted]:
    """Adaptive norms of a model, adapted to each of `conds` [count, batch, cond_dim] by one walk over their weights."""
    norms = [norm for norm in model.modules() if isinstance(norm, AdaptiveRMSNorm)]
    made = [norm.adapted(conds) for norm in norms]
    return [
        {norm: (scale[at], shift[at]) for norm, (scale, shift) in zip(norms, made, strict=True)}
        for at in range(len(conds))
    ]


def unit(x: Tensor) -> Tensor:
    """[..., dim] divided by its root mean square, without a weight; for a few vectors, in as few calls as possible."""
    if x.dtype != torch.float32 or x.device.type != "cpu":
        return F.rms_norm(x, x.shape[-1:])
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x * torch.addcmul(EPS, length, length, value=1 / x.shape[-1]).rsqrt_()


def _inverse(x: Tensor) -> Tensor:
    """One over the root mean square of each vector, [..., 1]."""
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return length.square_().div_(x.shape[-1]).add_(torch.finfo(x.dtype).eps).rsqrt_()


class _RootMeanSquare(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        inverse = _inverse(x)
        ctx.save_for_backward(x, weight, inverse)
        return (x * inverse).mul_(weight)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, weight, inverse = ctx.saved_tensors
        dim = len(weight)
        flat, above, inverse = x.reshape(-1, dim), grad.reshape(-1, dim), inverse.view(-1)
        with torch.autocast(x.device.type, enabled=False):
            product = flat * above
            shrink = torch.mv(product, weight) * inverse**3 / -dim
            for_x = torch.addcmul(above.mul(weight).mul_(inverse[:, None]), flat, shrink[:, None])
            for_weight = torch.mv(product.T, inverse)
        return for_x.view_as(x), for_weight


class _AdaptedMeanSquare(torch.autograd.Function):
    """x [batch, time, dim], scale and shift [batch, dim]."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
        inverse = _inverse(x)
        ctx.save_for_backward(x, scale, inverse)
        return torch.addcmul(shift[:, None], x * inverse, scale[:, None])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x, scale, inverse = ctx.saved_tensors
        dim, inverse = x.shape[-1], inverse[..., 0]
        with torch.autocast(x.device.type, enabled=False):
            above = grad.to(x.dtype)
            product = x * above
            # Row by row: a batch of matrices times one vector each takes eight times as long.
            shrink = torch.stack([torch.mv(*row) for row in zip(product, scale, strict=True)]) * inverse**3 / -dim
            for_x = torch.addcmul(above.mul(scale[:, None]).mul_(inverse[..., None]), x, shrink[..., None])
            for_scale = torch.bmm(inverse[:, None], product)[:, 0]
        return for_x, for_scale, above.sum(dim=1)
