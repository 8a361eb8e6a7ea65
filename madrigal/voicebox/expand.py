"""Symbols and their durations to ids at frame rate, and back.

    symbols [batch, symbols]  a b c     durations [batch, symbols]  2 1 3     ids [batch, frames]  a a b c c c

Ids and symbols are padded with -1, durations with 0.
"""

from fractions import Fraction

import torch
from torch import Tensor

from madrigal.data.collate import mask_from_lengths
from madrigal.data.tokens import PAD


def expand(symbols: Tensor, durations: Tensor) -> Tensor:
    """Symbols and durations [batch, symbols] -> ids [batch, frames], as long as the longest row."""
    ends = durations.cumsum(1)
    frames = int(ends[:, -1].max()) if durations.numel() else 0
    places = torch.arange(frames, device=symbols.device).expand(len(symbols), -1).contiguous()
    which = torch.searchsorted(ends, places, right=True)
    ids = symbols.gather(1, which.clamp(max=max(symbols.shape[1] - 1, 0)))
    return ids.masked_fill(which >= symbols.shape[1], PAD)


def collapse(ids: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Ids [batch, frames] -> symbols, durations [batch, symbols] and lengths [batch]: runs of one id become one symbol.

    That is how semantic tokens get their durations. Two symbols of text that are the same become one.
    """
    lengths = (ids != PAD).sum(1) if lengths is None else lengths
    real = mask_from_lengths(lengths, ids.shape[1])
    before = torch.cat((torch.full_like(ids[:, :1], PAD), ids[:, :-1]), dim=1)
    begins = real & (ids != before)
    counts = begins.sum(1)
    size = int(counts.max()) if len(ids) else 0
    run = (begins.cumsum(1) - 1).clamp(min=0)
    durations = torch.zeros(len(ids), size, dtype=torch.int64, device=ids.device).scatter_add_(1, run, real.long())
    starts = torch.argsort(~begins, dim=1, stable=True)[:, :size]
    return ids.gather(1, starts).masked_fill(~mask_from_lengths(counts, size), PAD), durations, counts


def at_frame_rate(ids: Tensor, lengths: Tensor, from_rate: Fraction | float, to_rate: Fraction | float) -> Tensor:
    """Ids [batch, time] at one rate -> ids [batch, frames] at another: a frame has the id that its middle falls into.

    A row of `lengths` ids covers lengths / from_rate seconds, and has as many whole frames as these hold.
    """
    ratio = Fraction(to_rate).limit_denominator(100_000) / Fraction(from_rate).limit_denominator(100_000)
    up, down = ratio.numerator, ratio.denominator
    frames = lengths * up // down
    places = torch.arange(int(frames.max()) if len(ids) else 0, device=ids.device)
    # Whole numbers all through: a fraction of a frame would add up over a long recording.
    which = ((2 * places + 1) * down // (2 * up)).clamp(max=max(ids.shape[1] - 1, 0))
    return ids[:, which].masked_fill(~mask_from_lengths(frames, len(places)), PAD)


def crop(symbols: Tensor, durations: Tensor, start: int, stop: int) -> tuple[Tensor, Tensor]:
    """The symbols [symbols] that sound in frames start … stop-1, and for how many of these frames each does."""
    ends = durations.cumsum(0)
    inside = ends.clamp(start, stop) - (ends - durations).clamp(start, stop)
    kept = inside > 0
    return symbols[kept], inside[kept]
