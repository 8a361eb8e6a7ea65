"""Self attention and cross attention of many heads, some of which may share their keys and values."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madrigal.layers.blocks import attend_in_blocks
from madrigal.layers.cache import KeyValueCache
from madrigal.layers.norm import Adapted, AdaptiveRMSNorm, RMSNorm, unit
from madrigal.layers.placing import normed_and_turned
from madrigal.layers.positions import turn
from madrigal.layers.products import Linear
from madrigal.layers.sight import Sight


class SelfAttention(nn.Module):
    """Queries, keys and values, all of the normed input. [batch, time, dim] -> the same shape.

    `value_residual`: a learned share of the values, one for each head, is the first layer's. `index`: the layer's
    number. With `cond_dim` the norm adapts to a vector [batch, cond_dim].
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
        value_residual: bool,
        index: int,
        cond_dim: int | None = None,
    ) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.dim_head = heads, kv_heads, dim_head
        # A head's vector is counted by halves, which is what turns it; an odd one is never turned.
        self.halves = (1, dim_head) if dim_head % 2 else (2, dim_head // 2)
        self.dropout, self.index = dropout, index
        self.tells_values = value_residual and index == 0
        self.norm: nn.Module = RMSNorm(dim) if cond_dim is None else AdaptiveRMSNorm(dim, cond_dim)
        self.to_qkv = Linear(dim, (heads + 2 * kv_heads) * dim_head, bias=False)
        self.to_out = Linear(heads * dim_head, dim, bias=False)
        self.qk_scale = nn.Parameter(torch.ones(heads + kv_heads, dim_head)) if qk_norm else None
        self.value_mix = nn.Parameter(torch.zeros(kv_heads, 1)) if value_residual and index else None

    def forward(
        self,
        x: Tensor,
        sight: Sight,
        first_values: Tensor | None,
        cache: KeyValueCache | None,
        cond: Tensor | Adapted | None = None,
    ) -> tuple[Tensor, Tensor | None]:
        """Returns also the values [batch, kv_heads, time, dim_head], if later layers mix them with their own."""
        normed = self.norm(x) if cond is None else self.norm(x, cond)
        qkv = self.to_qkv(normed).unflatten(-1, (-1, *self.halves)).transpose(1, 2)
        query, key, values = qkv.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
        scales = (None, None)
        if self.qk_scale is not None:
            scales = self.qk_scale.view(-1, 1, *self.halves).split((self.heads, self.kv_heads))
        query, key = (self._put(x, scale, sight) for x, scale in zip((query, key), scales, strict=True))
        values = values.flatten(-2)
        value = self._mixed(values, first_values)
        if cache is not None:
            key, value = cache.append(self.index, key, value)
        out = attend(query, key, value, sight.bias, sight.reach, self.dropout if self.training else 0.0)
        # Values that nobody asks for would have a gradient all the same where a layer is compiled, of zeros.
        return self.to_out(out.transpose(1, 2).flatten(2)), values if self.tells_values else None

    def step(
        self, x: Tensor, sight: Sight, first_values: Tensor | None, cache: KeyValueCache
    ) -> tuple[Tensor, Tensor | None]:
        """The same for one token in each row, [batch, dim]; a fraction of the calls, which is what one token costs."""
        shared = self.heads + self.kv_heads
        qkv = cache.product(unit(x), self.to_qkv, self.norm).view(len(x), -1, *self.halves)
        scale = None if self.qk_scale is None else self.qk_scale.view(-1, *self.halves)
        both, values = (
            self._placed(qkv.narrow(1, 0, shared), scale, sight).flatten(-2),
            qkv.narrow(1, shared, self.kv_heads),
        )
        values = values.flatten(-2)
        value = self._mixed(values, first_values)
        key, value = cache.append_one(self.index, both.narrow(1, self.heads, self.kv_heads), value)
        out = attend_one(both.narrow(1, 0, self.heads), key, value, sight.bias)
        return cache.product(out, self.to_out), values if self.tells_values else None

    def _put(self, x: Tensor, scale: Tensor | None, sight: Sight) -> Tensor:
        """Queries or keys by halves, placed -> [batch, heads, time, dim_head], one head's after another's in memory.

        Put in order before they are placed, they are walked over quickly; the compiler writes them in order when it
        computes them, if they are not whole yet.
        """
        if torch.compiler.is_compiling():
            return self._placed(x, scale, sight).contiguous().flatten(-2)
        return self._placed(x.contiguous(), scale, sight).flatten(-2)

    def _placed(self, x: Tensor, scale: Tensor | None, sight: Sight) -> Tensor:
        """Queries or keys [batch, heads, (time,) 2, dim_head / 2], normed if asked for, turned by their positions."""
        if scale is not None:
            return normed_and_turned(x, scale, sight.rotation)
        return x if sight.rotation is None else turn(x, *sight.rotation)

    def _mixed(self, values: Tensor, first: Tensor | None) -> Tensor:
        if self.value_mix is None or first is None:
            return values
        share = self.value_mix.sigmoid().to(values.dtype)
        return torch.lerp(values, first, share.unsqueeze(-1) if values.ndim == 4 else share)


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
        cond_dim: int | None = None,
    ) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.dim_head = heads, kv_heads, dim_head
        self.dropout, self.index = dropout, index
        self.norm: nn.Module = RMSNorm(dim) if cond_dim is None else AdaptiveRMSNorm(dim, cond_dim)
        self.context_norm = RMSNorm(dim_context)
        self.to_query = Linear(dim, heads * dim_head, bias=False)
        self.to_kv = Linear(dim_context, 2 * kv_heads * dim_head, bias=False)
        self.to_out = Linear(heads * dim_head, dim, bias=False)
        self.null_kv = nn.Parameter(torch.randn(2, kv_heads, nulls, dim_head) * 0.02)

    def forward(
        self,
        x: Tensor,
        context: Tensor | None,
        bias: Tensor | None,
        cache: KeyValueCache | None,
        cond: Tensor | Adapted | None = None,
    ) -> Tensor:
        """`bias` [batch, 1, 1, null keys + m] hides what is not there of the context."""
        normed = self.norm(x) if cond is None else self.norm(x, cond)
        query = self.to_query(normed).unflatten(-1, (self.heads, self.dim_head)).transpose(1, 2)
        key, value = self._keys(context, query, cache)
        out = attend(query, key, value, bias, None, self.dropout if self.training else 0.0)
        return self.to_out(out.transpose(1, 2).flatten(2))

    def step(self, x: Tensor, context: Tensor | None, bias: Tensor | None, cache: KeyValueCache) -> Tensor:
        """The same for one token in each row, [batch, dim]."""
        query = cache.product(unit(x), self.to_query, self.norm).view(len(x), self.heads, self.dim_head)
        key, value = self._keys(context, query, cache)
        return cache.product(attend_one(query, key, value, bias), self.to_out)

    def _keys(self, context: Tensor | None, query: Tensor, cache: KeyValueCache | None) -> tuple[Tensor, Tensor]:
        """Keys and values [batch, kv_heads, nulls + m, dim_head], the nulls first; made once for a cache."""
        if cache is not None and len(cache.context) > self.index:
            return cache.context[self.index]
        made = self._project(context, len(query), query.dtype)
        if cache is not None:
            cache.context.append(made)
        return made

    def _project(self, context: Tensor | None, batch: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        nulls = self.null_kv.to(dtype)[:, None].expand(-1, batch, -1, -1, -1)
        if context is None:
            return nulls[0], nulls[1]
        kv = self.to_kv(self.context_norm(context)).unflatten(-1, (2, self.kv_heads, -1)).permute(2, 0, 3, 1, 4)
        key, value = torch.cat((nulls, kv), dim=3)
        return key, value


def attend(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, reach: int | None, dropout: float) -> Tensor:
    """Attention of [batch, heads, time, dim_head] over [batch, kv_heads, keys, dim_head]; the rest as in Sight."""
    # Blocks save by the order, by shared keys, in the backward pass and in 16 bits; where there is none of it, torch's
    # kernel is quicker by a quarter and more.
    is_half = query.dtype == torch.bfloat16
    saves = torch.is_grad_enabled() or reach is not None or query.shape[1] > key.shape[1] or is_half
    if on_cpu(query) and saves and not dropout:
        return attend_in_blocks(query, key, value, bias, reach)
    return F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=bias,
        dropout_p=dropout,
        is_causal=bias is None and reach is not None and query.shape[2] > 1,
        enable_gqa=query.shape[1] > key.shape[1],
    )


def attend_one(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None) -> Tensor:
    """Attention of one token in each row, [batch, heads, dim_head] -> [batch, heads * dim_head].

    Heads that share keys are as good as several queries of one head: no key is read twice.
    """
    batch, heads, dim_head = query.shape
    shape = (batch, key.shape[1], heads // key.shape[1], dim_head)
    if bias is not None and bias.shape[1] > 1:
        bias = bias.reshape(len(bias), *shape[1:3], -1)
    folded = query.reshape(shape)
    out = F.scaled_dot_product_attention(folded, key, value, attn_mask=bias)
    return out.reshape(batch, heads * dim_head)


def on_cpu(x: Tensor) -> bool:
    """Whether to take the ways that are made for CPUs; they give the same as those of other devices."""
    return x.device.type == "cpu"
