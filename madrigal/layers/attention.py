"""Causal attention over a window of the recent past, for sequences of any length.

Positions only enter as distances. So the keys of a stream are remembered before they are turned by their positions,
and positions are counted within the window: an hour into a stream the numbers are as small as at its beginning.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madrigal.layers.convolutions import StreamCache
from madrigal.layers.feed_forward import FeedForward
from madrigal.layers.positions import DynamicPositionBias, RotaryPositions


class LocalAttention(nn.Module):
    """Each frame attends to itself and the `window - 1` frames before it. [batch, time, dim] -> the same shape."""

    def __init__(
        self, dim: int, *, heads: int, dim_head: int, window: int, xpos_scale_base: int | None, rotary: bool
    ) -> None:
        super().__init__()
        self.heads, self.window = heads, window
        self.norm = nn.RMSNorm(dim)
        self.to_qkv = nn.Linear(dim, 3 * heads * dim_head, bias=False)
        self.query_norm, self.key_norm = nn.RMSNorm(dim_head), nn.RMSNorm(dim_head)
        self.positions = RotaryPositions(dim_head, xpos_scale_base) if rotary else None
        self.to_gates = nn.Linear(dim, heads)
        self.to_out = nn.Linear(heads * dim_head, dim, bias=False)

    def forward(self, x: Tensor, bias: Tensor | None = None, cache: StreamCache | None = None) -> Tensor:
        """`bias` [heads, window] is added to the scores by distance."""
        x = self.norm(x)
        qkv = self.to_qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        query, key, value = self.query_norm(qkv[0]), self.key_norm(qkv[1]), qkv[2]
        if cache is not None:
            out = self._attend_stream(query, key, value, bias, cache)
        elif x.shape[1] <= self.window:
            out = self._attend(query, key, value, bias)
        else:
            out = self._attend_blocks(query, key, value, bias)
        gates = self.to_gates(x).sigmoid().transpose(1, 2).unsqueeze(-1)
        return self.to_out((out * gates).transpose(1, 2).flatten(2))

    def _attend(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
        """The queries are the last of the keys' frames."""
        if self.positions is not None:
            query, key = self.positions(query, key)
        mask = _window_mask(query.shape[-2], key.shape[-2], self.window, bias, query)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)

    def _attend_blocks(self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
        """Blocks of one window, each over itself and the block before: the cost grows only with the length."""
        batch, _, time, _ = query.shape
        size, missing = self.window, -time % self.window
        blocks = (time + missing) // size
        query, key, value = (F.pad(t, (0, 0, 0, missing)) for t in (query, key, value))
        head = self._attend(query[..., :size, :], key[..., :size, :], value[..., :size, :], bias)
        keys, values = (t.unfold(2, 2 * size, size).permute(0, 2, 1, 4, 3).flatten(0, 1) for t in (key, value))
        rest = query[..., size:, :].unflatten(2, (blocks - 1, size)).transpose(1, 2).flatten(0, 1)
        tail = self._attend(rest, keys, values, bias)
        tail = tail.unflatten(0, (batch, blocks - 1)).transpose(1, 2).flatten(2, 3)
        return torch.cat((head, tail), dim=2)[..., :time, :]

    def _attend_stream(
        self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, cache: StreamCache
    ) -> Tensor:
        out = []
        for q, k, v in zip(*(t.split(self.window, dim=2) for t in (query, key, value)), strict=True):
            if self in cache:
                k, v = (torch.cat((past, new), dim=2) for past, new in zip(cache[self], (k, v), strict=True))
            keep = max(k.shape[2] - self.window + 1, 0)
            cache[self] = k[:, :, keep:].clone(), v[:, :, keep:].clone()
            out.append(self._attend(q, k, v, bias))
        return torch.cat(out, dim=2)


def _window_mask(queries: int, keys: int, window: int, bias: Tensor | None, like: Tensor) -> Tensor:
    """What may be seen, [queries, keys]; with a bias, what to add to the scores, [heads, queries, keys]."""
    rows = torch.arange(keys - queries, keys, device=like.device)[:, None]
    columns = torch.arange(keys, device=like.device)
    distance = rows - columns
    inside = (distance >= 0) & (distance < window)
    if bias is None:
        return inside
    scores = bias.to(like.dtype)[:, distance.clamp(0, window - 1)]
    return scores.masked_fill(~inside, float("-inf"))


class LocalTransformer(nn.Module):
    """`depth` layers of local attention and feed-forward, pre-norm. [batch, time, dim] -> the same shape."""

    def __init__(
        self,
        dim: int,
        *,
        depth: int,
        heads: int,
        dim_head: int,
        window: int,
        xpos_scale_base: int | None = None,
        dynamic_pos_bias: bool = False,
    ) -> None:
        super().__init__()
        self.window = window
        self.bias = DynamicPositionBias(max(dim // 2, 1), heads) if dynamic_pos_bias else None
        self.attentions = nn.ModuleList(
            LocalAttention(
                dim,
                heads=heads,
                dim_head=dim_head,
                window=window,
                xpos_scale_base=xpos_scale_base,
                rotary=not dynamic_pos_bias,
            )
            for _ in range(depth)
        )
        self.feed_forwards = nn.ModuleList(FeedForward(dim) for _ in range(depth))

    def forward(self, x: Tensor, cache: StreamCache | None = None) -> Tensor:
        bias = None if self.bias is None else self.bias(torch.arange(self.window, device=x.device) / self.window)
        for attention, feed_forward in zip(self.attentions, self.feed_forwards, strict=True):
            x = x + attention(x, bias, cache)
            x = x + feed_forward(x)
        return x
