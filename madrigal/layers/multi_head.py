"""Self attention and cross attention of many heads, some of which may share their keys and values."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madrigal.layers.blocks import attend_in_blocks
from madrigal.layers.cache import KeyValueCache
from madrigal.layers.norm import RMSNorm
from madrigal.layers.positions import turn
from madrigal.layers.sight import Sight

Linear = Callable[[Tensor, Tensor], Tensor]


class SelfAttention(nn.Module):
    """Queries, keys and values, all of the normed input. [batch, time, dim] -> the same shape.

    `mix_values`: a learned share of the values, one for each head, is the first layer's. `index`: the layer's number.
    """

    def __init__(
        self,
        dim: int,
        heads: int,
        kv_heads: int,
        dim_head: int,
        *,
        dropout: float,
        qk_norm: bool,
        mix_values: bool,
        index: int,
    ) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.dim_head = heads, kv_heads, dim_head
        self.dropout, self.index = dropout, index
        self.norm = RMSNorm(dim)
        self.to_qkv = nn.Linear(dim, (heads + 2 * kv_heads) * dim_head, bias=False)
        self.to_out = nn.Linear(heads * dim_head, dim, bias=False)
        self.qk_scale = nn.Parameter(torch.ones(heads + kv_heads, dim_head)) if qk_norm else None
        self.value_mix = nn.Parameter(torch.zeros(kv_heads, 1)) if mix_values else None

    def forward(
        self, x: Tensor, sight: Sight, first_values: Tensor | None, cache: KeyValueCache | None, linear: Linear
    ) -> tuple[Tensor, Tensor]:
        """Returns also the values as they were before they were mixed, [batch, time, kv_heads, dim_head]."""
        qkv = linear(self.norm(x), self.to_qkv.weight).unflatten(-1, (-1, self.dim_head))
        both, values = qkv.split((self.heads + self.kv_heads, self.kv_heads), dim=2)
        if self.qk_scale is not None:
            both = F.rms_norm(both, (self.dim_head,)) * self.qk_scale.to(both.dtype)
        if sight.rotation is not None:
            both = turn(both, *sight.rotation)
        query, key = both.transpose(1, 2).split((self.heads, self.kv_heads), dim=1)
        value = values
        if self.value_mix is not None and first_values is not None:
            value = torch.lerp(value, first_values, self.value_mix.sigmoid().to(value.dtype))
        value = value.transpose(1, 2)
        if cache is not None:
            key, value = cache.append(self.index, key, value)
        out = attend(query, key, value, sight.bias, sight.reach, self.dropout if self.training else 0.0)
        return linear(out.transpose(1, 2).flatten(2), self.to_out.weight), values


class CrossAttention(nn.Module):
    """Attends to a context [batch, m, dim_context] and to learned null keys, which are all there is without one."""

    def __init__(
        self,
        dim: int,
        dim_context: int,
        heads: int,
        kv_heads: int,
        dim_head: int,
        *,
        nulls: int,
        dropout: float,
        index: int,
    ) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.dim_head = heads, kv_heads, dim_head
        self.dropout, self.index = dropout, index
        self.norm, self.context_norm = RMSNorm(dim), RMSNorm(dim_context)
        self.to_query = nn.Linear(dim, heads * dim_head, bias=False)
        self.to_kv = nn.Linear(dim_context, 2 * kv_heads * dim_head, bias=False)
        self.to_out = nn.Linear(heads * dim_head, dim, bias=False)
        self.null_kv = nn.Parameter(torch.randn(2, kv_heads, nulls, dim_head) * 0.02)

    def forward(
        self, x: Tensor, context: Tensor | None, bias: Tensor | None, cache: KeyValueCache | None, linear: Linear
    ) -> Tensor:
        """`bias` [batch, 1, 1, null keys + m] hides what is not there of the context."""
        query = linear(self.norm(x), self.to_query.weight).unflatten(-1, (self.heads, self.dim_head)).transpose(1, 2)
        if cache is not None and len(cache.context) > self.index:
            key, value = cache.context[self.index]
        else:
            key, value = self._project(context, len(x), query.dtype)
            if cache is not None:
                cache.context.append((key, value))
        out = attend(query, key, value, bias, None, self.dropout if self.training else 0.0)
        return linear(out.transpose(1, 2).flatten(2), self.to_out.weight)

    def _project(self, context: Tensor | None, batch: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Keys and values [batch, kv_heads, nulls + m, dim_head], the nulls first."""
        nulls = self.null_kv.to(dtype)[:, None].expand(-1, batch, -1, -1, -1)
        if context is None:
            return nulls[0], nulls[1]
        kv = self.to_kv(self.context_norm(context)).unflatten(-1, (2, self.kv_heads, -1)).permute(2, 0, 3, 1, 4)
        key, value = torch.cat((nulls, kv), dim=3)
        return key, value


def attend(
    query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, reach: int | None, dropout: float
) -> Tensor:
    """Attention of [batch, heads, time, dim_head] over [batch, kv_heads, keys, dim_head]; bias and reach as in Sight."""
    batch, heads, time, _ = query.shape
    kv_heads = key.shape[1]
    if time == 1 and not dropout:
        # Heads that share keys are as good as several queries of one head: no key is read twice.
        folded = query.reshape(batch, kv_heads, heads // kv_heads, -1)
        if bias is not None and bias.shape[1] > 1:
            bias = bias.reshape(len(bias), kv_heads, heads // kv_heads, -1)
        return F.scaled_dot_product_attention(folded, key, value, attn_mask=bias).reshape(query.shape)
    if query.device.type == "cpu" and not dropout:
        return attend_in_blocks(query, key, value, bias, reach)
    return F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=bias,
        dropout_p=dropout,
        is_causal=bias is None and reach is not None and time > 1,
        enable_gqa=heads > kv_heads,
    )
