"""Attention in blocks of queries, for CPUs.

Each block looks only at the keys that it can see, so a causal mask saves almost half of the work, and heads that share
keys are rows of one matrix product. On one core it takes half the time of torch's own kernel, forward and backward.
"""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

ROWS = 256  # of a block: queries times the heads that share a key
ORDERED = 128  # queries of a block at most where there is an order: a smaller block sees less of what it must not see
WHOLE = 2**24  # attention weights of a block where there is no order: up to so many, all queries are one block
HARMLESS = 40.0  # scores whose exponentials, and the sums of these, are far from the ends of what a number can be
KEPT = 2**26  # attention weights up to this many bytes are kept for the backward pass, else they are made again


def attend_in_blocks(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, reach: int | None) -> Tensor:
    """Attention of [batch, heads, time, dim_head] over [batch, kv_heads, keys, dim_head]; the queries stand at the end.

    No query sees a key after itself, unless it is one of the first `reach`; None = there is no order. `bias`, broadcast
    over [batch, heads, time, keys], is added to the scores and then has to hide what the order hides.
    """
    if (
        not torch.is_grad_enabled()
        and bias is None
        and reach is None
        and query.shape[:3].numel() * key.shape[2] <= WHOLE
    ):
        return _attend_at_once(query, key, value)
    out: Tensor = _BlockAttention.apply(query, key, value, bias, reach)
    return out


def _attend_at_once(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Where there is one block, nothing is hidden and there is no way back: the products and nothing else."""
    batch, kv_heads, _, dim_head = key.shape
    shape = (batch * kv_heads, -1, dim_head)  # heads that share keys are more queries of one
    query_rows, keys, values = query.reshape(shape), key.reshape(shape), value.reshape(shape)
    scores = torch.baddbmm(query.new_empty(1, 1, 1), query_rows, keys.transpose(1, 2), beta=0, alpha=dim_head**-0.5)
    is_half = query.dtype == torch.bfloat16 and not torch.compiler.is_compiling()
    if is_half and scores.numel() and _longest(query) * _longest(key) * dim_head**-0.5 < HARMLESS:
        # Nothing has to be taken off before the exponential, which then costs half of a softmax; shorter rows are
        # divided by their sums.
        raised = scores.exp_()
        return torch.bmm(raised, values).div_(raised.sum(dim=-1, keepdim=True)).view(query.shape)
    return torch.bmm(scores.softmax(dim=-1), values).view(query.shape)


def _longest(x: Tensor) -> float:
    """The length of the longest vector: no product of two is larger than the product of their lengths."""
    return float(torch.linalg.vector_norm(x, dim=-1).amax())


class _BlockAttention(torch.autograd.Function):
    """Inside, queries are [batch * kv_heads, time, group, dim_head] and keys [batch * kv_heads, keys, dim_head]."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, reach: int | None) -> Tensor:
        query, key, value = (t.contiguous() for t in (query, key, value))  # once, and not in every product
        kept, out = [], []
        keep = any(ctx.needs_input_grad) and query[..., 0].numel() * key.shape[2] * query.element_size() <= KEPT
        with torch.autocast(query.device.type, enabled=False):
            blocks = _Blocks(query, key, bias, reach)
            values = value.flatten(0, 1)
            for span, seen in blocks:
                weights, share = blocks.weights(span, seen)
                out.append(_times(torch.bmm(weights, values[:, :seen]), share))
                if keep:
                    kept += [weights, share]
            joined = blocks.joined(out)
        ctx.save_for_backward(query, key, value, bias, joined if torch.compiler.is_compiling() else None, *kept)
        ctx.reach = reach
        return blocks.heads(joined)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, bias, out, *kept = ctx.saved_tensors
        with torch.autocast(query.device.type, enabled=False):
            blocks = _Blocks(query, key, bias, ctx.reach)
            values, grads = value.flatten(0, 1), blocks.rows(grad)
            for_query = []
            for_keys, for_values = blocks.sums(values), blocks.sums(values)
            for_bias = torch.zeros_like(bias) if ctx.needs_input_grad[3] else None
            for number, (span, seen) in enumerate(blocks):
                weights, share = kept[2 * number : 2 * number + 2] if kept else blocks.weights(span, seen)
                above = _times(grads[:, span].flatten(1, 2), share)
                for_values.add(torch.bmm(weights.transpose(1, 2), above))
                scores = torch.bmm(above, values[:, :seen].transpose(1, 2))
                if out is None:
                    scores = torch._softmax_backward_data(scores, weights, -1, weights.dtype)
                else:  # what would be summed over all keys is known from what came out
                    scores = weights * (scores - (above * out[:, span].flatten(1, 2)).sum(-1, keepdim=True))
                if for_bias is not None:
                    part = span if for_bias.shape[2] > 1 else slice(None)
                    for_bias[..., part, :seen] += blocks.of_bias(scores, span, seen)
                for_query.append(blocks.scaled(scores, blocks.keys[:, :seen]))
                for_keys.add(blocks.scaled(scores.transpose(1, 2), blocks.query[:, span].flatten(1, 2)))
        above = blocks.heads(blocks.joined(for_query))
        return above, for_keys.total.view(key.shape), for_values.total.view(key.shape), for_bias, None


def _times(rows: Tensor, share: Tensor | None) -> Tensor:
    return rows if share is None else (rows * share).to(rows.dtype)


class _Sums:
    """Of what every block says of the keys that it sees: many small numbers, so in full precision where they are many.

    A block that is alone and sees all of them has said it already.
    """

    def __init__(self, like: Tensor, is_alone: bool) -> None:
        self.dtype, self.is_alone = like.dtype, is_alone
        full = torch.promote_types(like.dtype, torch.float32)
        self.sums = like if is_alone else torch.zeros_like(like, dtype=full)

    def add(self, part: Tensor) -> None:
        if self.is_alone:
            self.sums = part
        else:
            self.sums[:, : part.shape[1]] += part

    @property
    def total(self) -> Tensor:
        return self.sums.to(self.dtype)


class _Blocks:
    """The queries in blocks, each with the number of keys that it sees."""

    def __init__(self, query: Tensor, key: Tensor, bias: Tensor | None, reach: int | None) -> None:
        self.batch, self.kv_heads, self.count = key.shape[:3]
        self.time, self.scale = query.shape[2], query.shape[3] ** -0.5
        self.query, self.keys = self.rows(query), key.flatten(0, 1)
        self.bias, self.reach = bias, reach
        rows = 2 * ROWS if reach is None else ROWS
        self.size = max(rows // self.query.shape[2], 16)
        if reach is not None:
            self.size = min(self.size, ORDERED)
        elif query[..., 0].numel() * self.count <= WHOLE:
            self.size = self.time
        else:  # of one size: a last block of a few queries costs almost as much as a whole one
            self.size = -(-self.time // -(-self.time // self.size))
        if bias is None and reach is not None:
            # As wide as the past of the last block, nothing of which is hidden, and the block itself.
            later = query.new_full((self.size, self.size), float("-inf")).triu_(1)
            self.later = F.pad(later, (self.count, 0))[:, None]

    def __iter__(self) -> Iterator[tuple[slice, int]]:
        past = self.count - self.time
        for start in range(0, self.time, self.size):
            end = min(start + self.size, self.time)
            seen = self.count if self.reach is None else min(max(past + end, self.reach), self.count)
            yield slice(start, end), seen

    def sums(self, like: Tensor) -> _Sums:
        """Nothing yet, for keys or values [batch * kv_heads, keys, dim_head]."""
        return _Sums(like, is_alone=self.size >= self.time and self.reach is None)

    def weights(self, span: slice, seen: int) -> tuple[Tensor, Tensor | None]:
        """[batch * kv_heads, queries * group, seen], and what to multiply its rows by, if they do not sum to one."""
        query = self.query[:, span]
        flat, keys = query.flatten(1, 2), self.keys[:, :seen].transpose(1, 2)
        hidden, split = None, (len(flat), *query.shape[1:3], seen)
        if self.bias is not None:
            hidden = self.bias_of(span, seen)
            hidden = hidden.unflatten(1, (self.kv_heads, -1) if hidden.shape[1] > 1 else (1, 1)).transpose(2, 3)
            split = (self.batch, self.kv_heads, *split[1:])
        elif self.reach is not None:
            length = query.shape[1]
            hidden = self.later[:length, :, self.count - seen + length : self.count + length]
        if torch.compiler.is_compiling():
            return self._raised(torch.bmm(flat, keys), split, hidden)
        scores = self.scaled(flat, keys)
        if hidden is not None:
            own = 0 if self.bias is not None else seen - query.shape[1]  # of the order, the past hides nothing
            scores.view(split)[..., own:] += hidden[..., own:]
        return scores.softmax(dim=-1), None

    def _raised(self, scores: Tensor, split: tuple[int, ...], hidden: Tensor | None) -> tuple[Tensor, Tensor]:
        """A softmax for the compiler: its rows are divided by their sums when they have become shorter.

        The scale comes last, or else the compiler finds a softmax of its own in this, which is slower.
        """
        exact = scores.to(torch.promote_types(scores.dtype, torch.float32))
        if hidden is not None:
            exact = (exact.view(split) + hidden / self.scale).view(scores.shape)
        raised = ((exact - exact.amax(dim=-1, keepdim=True)) * self.scale).exp()
        return raised.to(scores.dtype), 1 / raised.sum(dim=-1, keepdim=True)

    def scaled(self, first: Tensor, second: Tensor) -> Tensor:
        """The product of two batches of matrices, times the scale, which costs nothing more."""
        if torch.compiler.is_compiling():  # the compiler would fill what is only there for its shape, as large as this
            return torch.bmm(first, second) * self.scale
        return torch.baddbmm(first.new_empty(1, 1, 1), first, second, beta=0, alpha=self.scale)

    def bias_of(self, span: slice, seen: int) -> Tensor:
        """The bias of a block; one that is the same for all queries has no time axis to cut."""
        assert self.bias is not None
        return self.bias[..., span if self.bias.shape[2] > 1 else slice(None), :seen]

    def of_bias(self, scores: Tensor, span: slice, seen: int) -> Tensor:
        """Gradients of scores, summed to the shape of the bias."""
        assert self.bias is not None
        shape = (self.batch, self.kv_heads, span.stop - span.start, -1, seen)
        summed: Tensor = scores.view(shape).transpose(2, 3).flatten(1, 2).sum_to_size(self.bias_of(span, seen).shape)
        return summed

    def joined(self, blocks: list[Tensor]) -> Tensor:
        """Blocks [batch * kv_heads, queries * group, dim_head] -> [batch * kv_heads, time, group, dim_head]."""
        joined = blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=1)
        return joined.unflatten(1, (self.time, -1))

    def rows(self, heads: Tensor) -> Tensor:
        """[batch, heads, time, dim_head] -> [batch * kv_heads, time, group, dim_head]."""
        return heads.unflatten(1, (self.kv_heads, -1)).transpose(2, 3).flatten(0, 1)

    def heads(self, rows: Tensor) -> Tensor:
        """[batch * kv_heads, time, group, dim_head] -> [batch, heads, time, dim_head]."""
        return rows.unflatten(0, (self.batch, self.kv_heads)).transpose(2, 3).flatten(1, 2)
