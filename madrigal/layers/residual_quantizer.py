"""What all residual quantizers share: levels, groups, dropout of levels, and statistics that move once a step.

A quantizer has `num_quantizers` levels, each of which quantizes what the levels before it left over, in `groups` equal
parts of the channels. Codes are level-major: column `level * groups + group`, so that the first columns are always the
coarse ones. A column that was not used holds -1, which is no code and decodes to nothing.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

Reduce = Callable[[Tensor], Tensor]
"""Sums a tensor over the ranks, in place."""

Gather = Callable[[Tensor], Sequence[Tensor]]
"""The same tensor of every rank, in rank order."""

ABSENT = -1
"""Stands in codes where a level was left out."""


class Quantized(NamedTuple):
    """Embedding [batch, frames, dim], codes [batch, frames, levels * groups] and the weighted commitment loss."""

    embedding: Tensor
    codes: Tensor
    commitment: Tensor


class Frames(NamedTuple):
    """A batch as the levels work on it: vectors [groups, frames, dim / groups], frames with many levels first.

    Level l quantizes the first `sizes[l]` frames only; `valid` [frames] tells padding from sound.
    """

    vectors: Tensor
    sizes: list[int]
    valid: Tensor | None

    def weights(self) -> Tensor:
        """Ones [frames, 1], zero for padding."""
        if self.valid is None:
            return self.vectors.new_ones(self.vectors.shape[1], 1)
        return self.valid[:, None].to(self.vectors.dtype)


def share_between_clips(x: Tensor, mask: Tensor | None = None) -> Tensor:
    """Part of the variance of [batch, frames, dim], over frames inside `mask`, that lies between the clips' means."""
    weight = torch.ones_like(x[..., :1]) if mask is None else mask[..., None].to(x.dtype)
    frames = weight.sum(1)
    count = frames.sum().clamp(min=1)
    centred = (x - (x * weight).sum((0, 1)) / count) * weight
    means = centred.sum(1) / frames.clamp(min=1)
    between = (means.square() * frames).sum() / count
    return between / (centred.square().sum() / count).clamp(min=1e-9)


class Quantizer(nn.Module, ABC):
    """Residual quantizer of [batch, frames, dim].

    `forward` never changes what the quantizer knows. With `collect` it notes which codes were used, `commit` takes the
    notes of a whole step in at once, and `discard` throws them away; so statistics move once a step and not with every
    micro-batch or turn.
    """

    ema_decay = 0.95
    """Part of the usage that a step keeps of the steps before it."""

    def __init__(
        self,
        *,
        dim: int,
        codebook_size: int,
        num_quantizers: int,
        groups: int = 1,
        quantize_dropout: bool = True,
        dropout_cutoff_index: int = 1,
        dropout_multiple_of: int = 1,
        clip_invariance: float = 0.0,
    ) -> None:
        super().__init__()
        if dim % groups:
            raise ValueError(f"{dim} channels cannot be split into {groups} equal groups.")
        self.dim, self.codebook_size, self.num_quantizers, self.groups = dim, codebook_size, num_quantizers, groups
        self.quantize_dropout = quantize_dropout
        self.dropout_cutoff_index, self.dropout_multiple_of = dropout_cutoff_index, dropout_multiple_of
        self.clip_invariance = clip_invariance
        shape = num_quantizers, groups, codebook_size
        self.usage: Tensor
        self.pending_usage: Tensor
        self.register_buffer("usage", torch.zeros(shape))
        self.register_buffer("pending_usage", torch.zeros(shape), persistent=False)

    def forward(
        self,
        x: Tensor,
        *,
        num_quantizers: int | None = None,
        collect: bool = False,
        dropout: bool | None = None,
        mask: Tensor | None = None,
    ) -> Quantized:
        """Quantize [batch, frames, dim] with the first `num_quantizers` levels, or all.

        `dropout` draws the number of levels for each row; by default it does so when collecting, unless the number is
        given. Frames outside of `mask` [batch, frames] are quantized but count in no statistics and no loss.
        """
        levels = self.num_quantizers if num_quantizers is None else num_quantizers
        if not 1 <= levels <= self.num_quantizers:
            raise ValueError(f"This quantizer has 1 to {self.num_quantizers} levels, not {levels}.")
        draws = self.quantize_dropout and num_quantizers is None and (collect if dropout is None else dropout)
        batch, frames, _ = x.shape
        counts = self.draw_levels(batch) if draws else None
        with torch.autocast(x.device.type, enabled=False):
            order, sizes = self._arrange(counts, frames, levels, batch)
            flat = x.float().reshape(-1, self.dim)
            valid = None if mask is None else mask.reshape(-1)
            if order is not None:
                order = order.to(x.device, non_blocking=True)
                flat, valid = flat[order], None if valid is None else valid[order]
            vectors = flat.unflatten(-1, (self.groups, -1)).transpose(0, 1)
            embedding, codes, commitment = self.quantize(Frames(vectors, sizes, valid), collect)
            if self.clip_invariance:
                commitment = commitment + self.clip_invariance * share_between_clips(x.float(), mask)
            embedding = embedding.transpose(0, 1).flatten(1)
            if order is not None:
                back = torch.empty_like(order)
                back[order] = torch.arange(len(order), device=order.device)
                embedding, codes = embedding[back], codes[:, :, back]
        if collect:
            self._note_usage(codes[:, :, mask.reshape(-1)] if mask is not None else codes)
        codes = codes.flatten(0, 1).T.unflatten(0, (batch, frames))
        return Quantized(embedding.unflatten(0, (batch, frames)).to(x.dtype), codes, commitment)

    @abstractmethod
    def quantize(self, frames: Frames, collect: bool) -> tuple[Tensor, Tensor, Tensor]:
        """Embedding [groups, frames, dim / groups], codes [levels, groups, frames] and commitment of sorted frames."""

    @abstractmethod
    def decode(self, codes: Tensor) -> Tensor:
        """Codes [batch, frames, the first k * groups columns] -> embedding [batch, frames, dim]."""

    @property
    def initialized(self) -> bool:
        """False while `initialize` should still be called."""
        return True

    def initialize(self, x: Tensor) -> None:
        """Start the codebooks from latents [n, dim]; without codebooks there is nothing to start."""

    @torch.no_grad()
    def commit(self, reduce: Reduce | None = None, gather: Gather | None = None) -> None:
        """Take in what was collected since the last commit, on all ranks."""
        if reduce is not None:
            reduce(self.pending_usage)
        self.take_in_usage()
        self.discard()

    def discard(self) -> None:
        """Forget what was collected: the step is skipped."""
        self.pending_usage.zero_()

    def end_step(self, applied: bool, reduce: Reduce | None = None, gather: Gather | None = None) -> dict[str, float]:
        """Take in what a step has collected, or forget it where the step was skipped; figures of how codes are used."""
        if not applied:
            self.discard()
            return {}
        self.commit(reduce, gather)
        perplexity = self.perplexity()
        return {"perplexity_mean": float(perplexity.mean()), "perplexity_min": float(perplexity.min())}

    def perplexity(self) -> Tensor:
        """Exponential of the entropy of the codes committed lately, [levels * groups], between 1 and codebook_size."""
        shares = self.usage / self.usage.sum(-1, keepdim=True).clamp(min=1e-9)
        return torch.special.entr(shares).sum(-1).exp().flatten()

    def draw_levels(self, rows: int) -> Tensor:
        """Numbers of levels [rows], uniform above the cutoff and rounded up to the multiple, from torch's generator.

        They stay on the CPU: how much work each level has is decided there, without waiting for a device.
        """
        low = min(self.dropout_cutoff_index + 1, self.num_quantizers)
        drawn = torch.randint(low, self.num_quantizers + 1, (rows,))
        multiple = self.dropout_multiple_of
        return (-(-drawn // multiple) * multiple).clamp(max=self.num_quantizers)

    def take_in_usage(self) -> None:
        """Decays the usage of the codebooks that were in use, and of no others, before adding the new."""
        seen = self.pending_usage.sum(-1, keepdim=True) > 0
        self.usage.mul_(torch.where(seen, self.ema_decay, 1.0)).add_(self.pending_usage)

    def check_codes(self, codes: Tensor) -> Tensor:
        """Codes [batch, frames, columns] as [levels, groups, batch * frames], refused where they cannot be ours."""
        columns = codes.shape[-1]
        if columns % self.groups or columns > self.num_quantizers * self.groups:
            raise ValueError(
                f"Codes have {columns} columns; this quantizer has {self.num_quantizers} levels of {self.groups}."
            )
        if codes.numel() and (codes.min() < ABSENT or codes.max() >= self.codebook_size):
            raise ValueError(f"Codes must lie in 0..{self.codebook_size - 1}, or be {ABSENT} where a level is absent.")
        return codes.reshape(-1, columns).T.unflatten(0, (-1, self.groups))

    def _arrange(self, counts: Tensor | None, frames: int, levels: int, batch: int) -> tuple[Tensor | None, list[int]]:
        """Order that puts frames with more levels first, and how many frames reach each level.

        Then every level works on the head of one contiguous tensor, and a dropped level costs nothing.
        """
        if counts is None:
            return None, [batch * frames] * levels
        per_frame = counts.repeat_interleave(frames)
        order = per_frame.argsort(descending=True, stable=True)
        sizes = [frames * number for number in (counts[:, None] > torch.arange(levels)).sum(0).tolist()]
        return order, [size for size in sizes if size]

    def _note_usage(self, codes: Tensor) -> None:
        """Counts of codes [levels, groups, frames]; absent ones fall into a column of their own, which is dropped."""
        shape = codes.shape[0], self.groups, self.codebook_size + 1
        seen = torch.zeros(shape, device=codes.device)
        seen.scatter_add_(
            -1, torch.where(codes < 0, self.codebook_size, codes), torch.ones_like(codes, dtype=seen.dtype)
        )
        self.pending_usage[: codes.shape[0]] += seen[..., :-1]
