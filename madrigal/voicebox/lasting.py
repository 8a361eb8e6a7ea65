"""Whole frames for symbols: as near to the wished durations as they can be, one or more each, with an exact sum."""

from collections.abc import Sequence

import torch
from torch import Tensor

from madrigal.errors import UserError


def whole_frames(
    durations: Tensor, lengths: Tensor, *, known: Tensor | None = None, totals: Sequence[int] | Tensor | None = None
) -> Tensor:
    """Wished `durations` float [batch, symbols] of rows of `lengths` symbols -> int64 alike, 0 behind a row's end.

    `known` int64 [batch, symbols] stay as they are where they are above 0. With `totals` [batch] the others are
    stretched alike, so that each row has this sum; without, its sum is the nearest to the wished one.
    """
    found = torch.zeros(durations.shape, dtype=torch.int64, device=durations.device)
    wanted = [None] * len(durations) if totals is None else [int(total) for total in totals]
    for row, (length, total) in enumerate(zip(lengths.tolist(), wanted, strict=True)):
        kept = torch.zeros(length, dtype=torch.int64) if known is None else known[row, :length].cpu().clamp(min=0)
        free = kept == 0
        wish = durations[row, :length].cpu().double()[free].clamp(min=1e-3)
        left = round(float(wish.clamp(min=1.0).sum())) if total is None else total - int(kept.sum())
        if left < len(wish) or (len(wish) == 0 and left > 0 and total is not None):
            raise UserError(
                f"{total} frames are too few or too many for {length} symbols, of which {length - len(wish)} last "
                f"{int(kept.sum())} frames: ask for more time, or for other words."
            )
        kept[free] = shared_out(wish, left)
        found[row, :length] = kept
    return found


def shared_out(wish: Tensor, total: int) -> Tensor:
    """Whole numbers of one or more with the sum `total`, in the proportions of `wish` [n] as far as that goes."""
    if not len(wish):
        return wish.long()
    at_least = torch.zeros(len(wish), dtype=torch.bool)
    while True:
        # Those that would get less than one get one, and the others share out the rest.
        others = wish[~at_least].sum()
        scale = (total - int(at_least.sum())) / others if others > 0 else torch.tensor(0.0)
        share = torch.where(at_least, 1.0, wish * scale)
        if not bool((share < 1).any()):
            break
        at_least = at_least | (share < 1)
    whole = share.floor().long()
    nearest = torch.argsort(share - whole, descending=True, stable=True)
    whole[nearest[: total - int(whole.sum())]] += 1
    return whole
