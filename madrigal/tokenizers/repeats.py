"""Runs of the same token, made one: how long a sound lasts is then left to the acoustic stages."""

import torch
from torch import Tensor

from madrigal.data.collate import mask_from_lengths
from madrigal.data.tokens import PAD


def unique_consecutive(ids: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Ids [batch, time] of real `lengths` [batch] without consecutive duplicates: ids with -1 pads, new lengths.

    Without `lengths` everything that is not -1 is real.
    """
    real = ids != PAD if lengths is None else mask_from_lengths(lengths, ids.shape[1])
    kept = real.clone()
    # A token counts against the real one before it, so pads amid a row do not split a run.
    places = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
    last_real = torch.where(real, places, -1).cummax(dim=1).values if ids.shape[1] else places
    before = torch.cat((torch.full_like(ids[:, :1], -1), last_real[:, :-1]), dim=1)
    kept &= (before < 0) | (ids.gather(1, before.clamp(min=0)) != ids)
    new_lengths = kept.sum(dim=1)
    size = int(new_lengths.max()) if len(ids) else 0
    # Kept tokens move to the front in their order; the sort is stable.
    front = torch.argsort(~kept, dim=1, stable=True)[:, :size]
    unique = ids.gather(1, front).masked_fill(~mask_from_lengths(new_lengths, size), PAD)
    return unique, new_lengths
