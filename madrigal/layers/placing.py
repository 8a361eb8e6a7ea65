"""Queries and keys normed and turned by their positions, in as few walks over them as possible."""

from typing import Any

import torch
from torch import Tensor

from madrigal.layers.positions import swapped, turn

EPS = torch.finfo(torch.float32).eps


def normed_and_turned(x: Tensor, scale: Tensor, rotation: tuple[Tensor, Tensor] | None) -> Tensor:
    """Heads' vectors in halves, x [batch, heads, time, 2, dim_head / 2], divided by their root mean squares, times
    `scale` [heads, 1, 2, dim_head / 2], turned. Without a way back, x and `scale` may have no axis of time.

    `rotation`: cos and sin that broadcast over x; None = nothing is turned.
    """
    if not torch.is_grad_enabled():
        return _forward(x, scale.to(x.dtype), rotation)[0]
    cos, sin = (None, None) if rotation is None else rotation
    out: Tensor = _NormAndTurn.apply(x, scale, cos, sin)
    return out


def _forward(x: Tensor, scale: Tensor, rotation: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
    """The result, and one over the root mean squares, [..., 1, 1]."""
    full = torch.promote_types(x.dtype, torch.float32)
    length = torch.linalg.vector_norm(x.flatten(-2), dim=-1, keepdim=True, dtype=full).unsqueeze(-1)
    inverse = (length.square() / x.shape[-2:].numel() + EPS).rsqrt().to(x.dtype)
    if rotation is None:
        return (x * scale).mul_(inverse), inverse
    cos, sin = rotation
    heads = len(scale)
    if 2 * cos.numel() * heads > x.numel():
        return turn(x * scale, cos, sin).mul_(inverse), inverse
    # Where many rows share their turns, the scale goes into these; the length comes last.
    return turn(x, cos * scale, sin * swapped(scale)).mul_(inverse), inverse


class _NormAndTurn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, cos: Tensor | None, sin: Tensor | None) -> Tensor:
        rotation = None if cos is None or sin is None else (cos, sin)
        out, inverse = _forward(x, scale.to(x.dtype), rotation)
        ctx.save_for_backward(x, scale, inverse, cos, sin)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, scale, inverse, cos, sin = ctx.saved_tensors
        with torch.autocast(x.device.type, enabled=False):
            back = grad
            if cos is not None:
                # The way back of a turn: the halves change places after they were weighed, not before.
                back = torch.addcmul(swapped(grad * sin), grad, cos)
            weighed = back * inverse
            for_scale = (weighed * x).sum((0, 2), dtype=scale.dtype).view(scale.shape)
            weighed *= scale.to(x.dtype)
            shrink = (weighed * x).sum((-2, -1), keepdim=True) * inverse.square() / -x.shape[-2:].numel()
        return torch.addcmul(weighed, x, shrink), for_scale, None, None
