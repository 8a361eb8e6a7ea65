"""The transformer that every system shares.

    Transformer     [batch, time, dim] -> the same shape
      Layer         self attention, cross attention (where asked for), feed-forward, each added to the residual
    KeyValueCache   what it remembers between calls when it writes token by token

A token's position is the number of real tokens before it in its row: a padded row equals the same row alone, and a
sequence given at once equals the same sequence given in pieces with a cache.
"""

from collections.abc import Callable
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madrigal.layers.cache import KeyValueCache
from madrigal.layers.feed_forward import FeedForward
from madrigal.layers.multi_head import CrossAttention, SelfAttention, on_cpu
from madrigal.layers.norm import Adapted, AdaptiveRMSNorm, RMSNorm
from madrigal.layers.positions import DynamicPositionBias, RotaryPositions
from madrigal.layers.products import Linear
from madrigal.layers.sight import HIDDEN, Sight, look
from madrigal.layers.transformer_layer import Layer


class Transformer(nn.Module):
    """Pre-norm transformer, [batch, time, dim] -> the same shape; the final norm is included, if not switched off.

    `kv_heads`: None = as many as `heads`, 1 = multi-query, else grouped-query. `positions`: rotary, a learned bias by
    distance, or none. `value_residual`: later layers mix in the first layer's values. `grad_shrink_alpha`: the share of
    the gradient that the input receives. `residual_streams` over 1: hyper-connections in place of the plain residual.
    `cond_dim`: every norm adapts to a vector [batch, cond_dim], such as the time of a flow. `skips`: what goes into a
    layer of the first half is joined to what goes into its counterpart in the second half, as in a U-net.
    """

    def __init__(
        self,
        dim: int,
        depth: int,
        *,
        heads: int = 8,
        dim_head: int = 64,
        kv_heads: int | None = None,
        causal: bool = True,
        positions: Literal["rotary", "relative", "none"] = "rotary",
        ff_mult: float = 4,
        attn_dropout: float = 0.0,
        ff_dropout: float = 0.0,
        cross_attend: bool = False,
        dim_context: int | None = None,
        num_null_kv: int = 1,
        qk_norm: bool = False,
        value_residual: bool = False,
        grad_shrink_alpha: float = 1.0,
        residual_streams: int = 1,
        final_norm: bool = True,
        cond_dim: int | None = None,
        skips: bool = False,
    ) -> None:
        super().__init__()
        kv_heads = heads if kv_heads is None else kv_heads
        if heads % kv_heads:
            raise ValueError(f"{heads} heads cannot be shared out among {kv_heads} kv_heads.")
        if cross_attend and num_null_kv < 1:
            raise ValueError("Cross attention needs num_null_kv of at least 1: a row may have no context at all.")
        if skips and residual_streams > 1:
            raise ValueError("Skips join one residual stream, not several: leave out residual_streams or skips.")
        self.causal, self.grad_shrink_alpha, self.residual_streams = causal, grad_shrink_alpha, residual_streams
        self.num_null_kv, self.cond_dim = num_null_kv, cond_dim
        self.positions = _positions(positions, dim, heads, dim_head)
        self.layers = nn.ModuleList()
        for index in range(depth):
            attention = SelfAttention(
                dim,
                heads,
                kv_heads,
                dim_head,
                dropout=attn_dropout,
                qk_norm=qk_norm,
                value_residual=value_residual,
                index=index,
                cond_dim=cond_dim,
            )
            sizes = (dim, dim_context or dim, heads, kv_heads, dim_head)
            cross = (
                CrossAttention(*sizes, nulls=num_null_kv, dropout=attn_dropout, index=index, cond_dim=cond_dim)
                if cross_attend
                else None
            )
            feed_forward = FeedForward(dim, ff_mult, ff_dropout, cond_dim)
            self.layers.append(Layer(attention, cross, feed_forward, residual_streams))
        self.joins = nn.ModuleList(Linear(2 * dim, dim, bias=False) for _ in range(depth // 2 if skips else 0))
        self.norm = _final_norm(dim, cond_dim) if final_norm else nn.Identity()
        self._start_small()

    @torch.no_grad()
    def _start_small(self) -> None:
        """What writes into the residual starts smaller, so that its variance does not grow with the depth."""
        for name, weight in self.layers.named_parameters():
            if name.endswith(("to_out.weight", "feed_forward.3.weight")):
                weight.mul_((2 * len(self.layers)) ** -0.5)
        for join in self.joins:
            nn.init.zeros_(join.weight)  # type: ignore[arg-type]

    def new_cache(self, batch_size: int, capacity: int | None = None) -> KeyValueCache:
        """An empty memory for `batch_size` rows; `capacity` slots are made at once (it grows by itself)."""
        return KeyValueCache(len(self.layers), batch_size, capacity)

    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        forget: Tensor | None = None,
        context: Tensor | None = None,
        context_mask: Tensor | None = None,
        prefix: Tensor | None = None,
        prefix_mask: Tensor | None = None,
        at: Tensor | None = None,
        cache: KeyValueCache | None = None,
        cond: Tensor | Adapted | None = None,
        hidden: list[Tensor] | None = None,
        wanted: Tensor | None = None,
    ) -> Tensor:
        """x [batch, time, dim] -> [batch, time, dim].

        `mask` [batch, time]: True = a real token; None = all are. `forget` [batch, time]: True = hidden from every
        query but its own. `context` [batch, m, dim_context] for cross attention; None, or a row whose `context_mask` is
        all False, means no condition. `prefix` [batch, p, dim]: seen by every token, and not part of the output.
        `at` [batch, time] puts rotary positions in place of counted ones, where tokens share a clock; a prefix then
        stands at 0. With a `cache`, x continues what the cache holds; context and prefix come with the first call only.
        `cond` [batch, cond_dim]: what the norms adapt to, or what they have made of it. Each layer's output
        [batch, prefix + time, dim] is appended to `hidden`, if it is given. `wanted` [batch, time]: only tokens that
        are True come out, one after another, [tokens, dim], and what concerns one token alone is computed for no other.
        """
        self._check(cache, at, prefix, cond)
        if self.layers:
            first: Any = self.layers[0]
            x = x.to(first.attention.norm.weight.dtype)  # the residual is not rounded, even if autocast made the input
        before = 0
        if prefix is not None:
            before = prefix.shape[1]
            mask, forget = _with_prefix(x, mask, forget, prefix, prefix_mask)
            x = torch.cat((prefix, x), dim=1)
            at = None if at is None else F.pad(at, (before, 0))
        if self.grad_shrink_alpha != 1.0 and x.requires_grad:
            x = x * self.grad_shrink_alpha + x.detach() * (1 - self.grad_shrink_alpha)
        visible = mask
        if forget is not None:
            visible = ~forget if mask is None else mask & ~forget
        if cache is None:
            sight = look(
                x, causal=self.causal, prefix=before, real=mask, visible=visible, at=at, positions=self.positions
            )
            bias, asked = self._context_bias(context, context_mask), None
            # With no way back the last layer's rest costs little, and one way to run it is one graph less to compile.
            if wanted is not None and torch.is_grad_enabled() and self.cond_dim is None and self.layers:
                asked = F.pad(wanted, (before, 0)).flatten().nonzero().flatten()
                before, wanted = 0, None
            x = self._run(x, sight, context, bias, None, cond, hidden, asked)
        else:
            with torch.no_grad():
                x = self._continue(x, before, mask, visible, context, context_mask, at, cache)
        x = x[:, before:] if before else x
        x = self.norm(x, cond) if isinstance(self.norm, AdaptiveRMSNorm) else self.norm(x)
        return x if wanted is None else x[wanted]

    def _check(
        self, cache: KeyValueCache | None, at: Tensor | None, prefix: Tensor | None, cond: Tensor | Adapted | None
    ) -> None:
        if (cond is None) != (self.cond_dim is None):
            raise ValueError("A transformer with cond_dim needs cond in every call, and one without takes none.")
        if cache is not None and cond is not None:
            raise ValueError("What is written token by token has no norms that adapt: leave out cond_dim.")
        if at is not None and not isinstance(self.positions, RotaryPositions):
            raise ValueError("Only rotary positions can be given from outside.")
        if cache is not None and not self.causal:
            raise ValueError("Only a causal transformer can go on from a cache.")
        if cache is not None and cache.length and prefix is not None:
            raise ValueError("The prefix belongs into the first call with a cache.")

    def _continue(
        self,
        x: Tensor,
        before: int,
        mask: Tensor | None,
        visible: Tensor | None,
        context: Tensor | None,
        context_mask: Tensor | None,
        at: Tensor | None,
        cache: KeyValueCache,
    ) -> Tensor:
        if visible is not None and visible.all():
            mask = visible = None  # rows that are whole need no masks, and the cache can do without
        cache.open(x.shape[1], mask, visible, x.device)
        sight = look(x, causal=True, prefix=before, at=at, cache=cache, positions=self.positions)
        if not cache.context:
            cache.context_bias = self._context_bias(context, context_mask)
        x = self._run(x, sight, context, cache.context_bias, cache)
        cache.close(x.shape[1])
        return x

    def _run(
        self,
        x: Tensor,
        sight: Sight,
        context: Tensor | None,
        context_bias: Tensor | None,
        cache: KeyValueCache | None,
        cond: Tensor | Adapted | None = None,
        hidden: list[Tensor] | None = None,
        asked: Tensor | None = None,
    ) -> Tensor:
        is_step = cache is not None and x.shape[1] == 1 and on_cpu(x)
        if is_step:
            x = x.squeeze(1)
            if sight.rotation is not None and sight.rotation[0].ndim == 5:
                sight.rotation = sight.rotation[0].squeeze(2), sight.rotation[1].squeeze(2)
        if self.residual_streams > 1:
            x = x.unsqueeze(-2).expand(*x.shape[:-1], self.residual_streams, -1)
        first_values = None
        more: tuple[Any, ...] = () if cond is None else (cond,)
        kept: list[Tensor] = []
        depth, joined = len(self.layers), len(self.joins)
        for index, layer in enumerate(self.layers):
            if index < joined:
                kept.append(x)
            elif index >= depth - joined:
                # Added to the stream, so that this is not rounded where autocast rounds the product.
                x = x + self.joins[len(kept) - 1](torch.cat((x, kept.pop()), dim=-1))
            run: Callable[..., tuple[Tensor, Tensor | None]] = layer.step if is_step else layer  # type: ignore[assignment]
            if asked is not None and index == depth - 1:
                more = (cond, asked)
            x, values = run(x, sight, first_values, context, context_bias, cache, *more)
            first_values = values if first_values is None else first_values
            if hidden is not None:
                hidden.append(x.sum(dim=-2) if self.residual_streams > 1 else x)
        if self.residual_streams > 1:
            x = x.sum(dim=-2)
        return x.unsqueeze(1) if is_step else x

    def _context_bias(self, context: Tensor | None, mask: Tensor | None) -> Tensor | None:
        """Float [batch, 1, 1, null keys + m]: the null keys are always seen."""
        if context is None or mask is None:
            return None
        seen = F.pad(mask, (self.num_null_kv, 0), value=True)[:, None, None]
        kind = context.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else context.dtype
        return torch.zeros(seen.shape, dtype=dtype, device=context.device).masked_fill_(~seen, HIDDEN)


def _final_norm(dim: int, cond_dim: int | None) -> nn.Module:
    return RMSNorm(dim) if cond_dim is None else AdaptiveRMSNorm(dim, cond_dim)


def _positions(kind: str, dim: int, heads: int, dim_head: int) -> RotaryPositions | DynamicPositionBias | None:
    if kind == "rotary":
        return RotaryPositions(dim_head)
    if kind == "relative":
        return DynamicPositionBias(max(dim // 2, 1), heads)
    if kind == "none":
        return None
    raise ValueError(f"positions must be rotary, relative or none, not {kind!r}.")


def _with_prefix(
    x: Tensor, mask: Tensor | None, forget: Tensor | None, prefix: Tensor, prefix_mask: Tensor | None
) -> tuple[Tensor | None, Tensor | None]:
    """The masks of prefix and tokens together; a prefix is never forgotten."""
    here, there = (torch.ones(t.shape[:2], dtype=torch.bool, device=t.device) for t in (prefix, x))
    if mask is not None or prefix_mask is not None:
        mask = torch.cat((here if prefix_mask is None else prefix_mask, there if mask is None else mask), dim=1)
    if forget is not None:
        forget = torch.cat((~here, forget), dim=1)
    return mask, forget
