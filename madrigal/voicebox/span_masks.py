"""Which frames a model is to make while it learns, and which it is given.

One span of a row is made, at a random place, and the rest is given; in some rows all is made. What is drawn depends on
torch's generator and on the lengths alone: a row is masked the same whatever its padding.
"""

import torch
from torch import Tensor

from madrigal.data.collate import mask_from_lengths


def span_masks(
    lengths: Tensor, size: int, *, fractions: tuple[float, float] = (0.7, 1.0), whole_prob: float = 0.0
) -> Tensor:
    """Bool [batch, size], True = to be made: a span of a fraction of each row, never beyond its length.

    `lengths` int64 [batch]; `whole_prob`: the share of rows that are made whole. At least one frame of a row is made.
    """
    device = lengths.device
    low, high = fractions
    fraction = low + (high - low) * torch.rand(len(lengths), device=device)
    place = torch.rand(len(lengths), device=device)
    whole = torch.rand(len(lengths), device=device) < whole_prob
    span = (lengths * fraction).round().long().clamp(min=1).minimum(lengths)
    start = (place * (lengths - span + 1)).long().minimum(lengths - span)
    start, span = start.masked_fill(whole, 0), torch.where(whole, lengths, span)
    places = torch.arange(size, device=device)
    inside = (places >= start[:, None]) & (places < (start + span)[:, None])
    return inside & mask_from_lengths(lengths, size)


def chosen_rows(rows: int, share: float, device: torch.device | str = "cpu") -> Tensor:
    """Bool [rows]: each is chosen with this chance."""
    return torch.rand(rows, device=device) < share


def spread_times(rows: int, device: torch.device | str = "cpu") -> Tensor:
    """Times [rows] in 0 … 1: each alone is as likely as any other, and together they cover the whole range.

    Losses differ much with the time; a batch whose times lie close together would tell little.
    """
    first = torch.rand((), device=device)
    return (first + torch.randperm(rows, device=device) / rows) % 1.0
