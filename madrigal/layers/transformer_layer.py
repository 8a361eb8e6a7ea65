"""One layer of the transformer: attention, cross attention and feed-forward around the residual."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from madrigal.layers.cache import KeyValueCache
from madrigal.layers.feed_forward import FeedForward
from madrigal.layers.hyper_connections import HyperConnection
from madrigal.layers.multi_head import CrossAttention, SelfAttention
from madrigal.layers.norm import Adapted
from madrigal.layers.sight import Sight


class Layer(nn.Module):
    """Attention, cross attention and feed-forward, each added to the residual (or to the residual streams)."""

    def __init__(
        self, attention: SelfAttention, cross: CrossAttention | None, feed_forward: FeedForward, streams: int
    ) -> None:
        super().__init__()
        self.attention, self.cross, self.feed_forward = attention, cross, feed_forward
        dim = attention.to_out.out_features
        branches = 2 if cross is None else 3
        self.connections = nn.ModuleList(
            HyperConnection(dim, streams, branches * attention.index + branch)
            for branch in range(branches if streams > 1 else 0)
        )

    def forward(
        self,
        x: Tensor,
        sight: Sight,
        first_values: Tensor | None,
        context: Tensor | None,
        context_bias: Tensor | None,
        cache: KeyValueCache | None,
        cond: Tensor | Adapted | None = None,
        asked: Tensor | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Returns also the attention's values, if it tells them. `cond` [batch, cond_dim]: what the norms adapt to.

        `asked`: numbers of tokens, counted over all rows, that alone come out, [tokens, dim].
        """
        entry, leave = self._connect(0, x)
        out, values = self.attention(entry, sight, first_values, cache, cond)
        x = leave(out)
        if self.cross is not None:
            entry, leave = self._connect(1, x)
            x = leave(self.cross(entry, context, context_bias, cache, cond))
        if asked is not None:
            x = chosen(x, asked)
        entry, leave = self._connect(-1, x)
        return leave(self.feed_forward(entry, cond)), values

    def step(
        self,
        x: Tensor,
        sight: Sight,
        first_values: Tensor | None,
        context: Tensor | None,
        context_bias: Tensor | None,
        cache: KeyValueCache,
    ) -> tuple[Tensor, Tensor | None]:
        """The same for one token in each row, [batch, dim]."""
        entry, leave = self._connect(0, x)
        out, values = self.attention.step(entry, sight, first_values, cache)
        x = leave(out)
        if self.cross is not None:
            entry, leave = self._connect(1, x)
            x = leave(self.cross.step(entry, context, context_bias, cache))
        entry, leave = self._connect(-1, x)
        return leave(self.feed_forward.step(entry, cache)), values

    def _connect(self, branch: int, x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """A branch's input, and what its output is added to."""
        return self.connections[branch](x) if self.connections else (x, x.add)


def chosen(x: Tensor, numbers: Tensor) -> Tensor:
    """Of x [batch, time, ...] those of these numbers, counted over all rows, each at most once: [tokens, ...]."""
    out: Tensor = _Chosen.apply(x.flatten(0, 1), numbers)
    return out


class _Chosen(torch.autograd.Function):
    """Gradients are put where they belong; torch would add them there, one by one, for it has to expect repetition."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, numbers: Tensor) -> Tensor:
        ctx.save_for_backward(numbers)
        ctx.rows = len(rows)
        return rows.index_select(0, numbers)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (numbers,) = ctx.saved_tensors
        return grad.new_zeros(ctx.rows, *grad.shape[1:]).index_copy(0, numbers, grad), None
