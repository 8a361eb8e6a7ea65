"""From a list of items to a batch: audio padded with zeros, and the lengths that say what is padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from madrigal.errors import UserError

Batch = dict[str, Any]


def collate(items: Sequence[Any], *, pad_to_longest: bool = True) -> Batch:
    """A batch dict from items that are dicts, tensors ([samples] or [channels, samples]) or tuples.

    Audio under a key "audio" or "audio_…" becomes float32 [batch, channels, samples] with int64 [batch] valid
    samples under "lengths" or "lengths_…", and so does the "target" that belongs to it; it is padded with zeros to the
    longest, or cut to the shortest.
    Strings become a list, numbers a tensor, other tensors are stacked.
    """
    if not items:
        raise UserError("A batch needs at least one item.")
    rows = [_named(item) for item in items]
    batch: Batch = {}
    for key in rows[0]:
        if any(row.keys() != rows[0].keys() for row in rows):
            raise UserError("The items of a batch have different fields; give every item the same ones.")
        values = [row[key] for row in rows]
        if key == "target" or key == "audio" or key.startswith("audio_"):
            batch[key], lengths = _join_audio(key, values, pad_to_longest)
            if key != "target":
                batch.setdefault(key.replace("audio", "lengths", 1), lengths)
        else:
            batch[key] = _join(key, values)
    return batch


def mask_from_lengths(lengths: Tensor, size: int) -> Tensor:
    """[batch] valid lengths to a bool mask [batch, size], True where the data is real."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]


def _named(item: Any) -> dict[str, Any]:
    """An item as a dict: the waves of a tuple are audio, audio_1, … in order, and a string is text."""
    if isinstance(item, Mapping):
        return dict(item)
    named: dict[str, Any] = {}
    for part in item if isinstance(item, tuple) else (item,):
        kind = "text" if isinstance(part, str) else "audio"
        number = sum(name.split("_")[0] == kind for name in named)
        named[f"{kind}_{number}" if number else kind] = part
    return named


def _join_audio(key: str, values: list[Any], pad_to_longest: bool) -> tuple[Tensor, Tensor]:
    waves = [torch.as_tensor(value, dtype=torch.float32) for value in values]
    waves = [wave[None] if wave.dim() == 1 else wave for wave in waves]
    if any(wave.dim() != 2 for wave in waves):
        raise UserError(f'"{key}" of an item must have the shape [samples] or [channels, samples].')
    if len({wave.shape[0] for wave in waves}) > 1:
        raise UserError(f'The items of a batch differ in the number of channels of "{key}"; mix them to one number.')
    lengths = [wave.shape[-1] for wave in waves]
    size = max(lengths) if pad_to_longest else min(lengths)
    padded = [functional.pad(wave[:, :size], (0, max(0, size - wave.shape[-1]))) for wave in waves]
    return torch.stack(padded), torch.tensor([min(length, size) for length in lengths], dtype=torch.int64)


def _join(key: str, values: list[Any]) -> Any:
    if all(isinstance(value, Tensor | np.ndarray) for value in values):
        tensors = [torch.as_tensor(value) for value in values]
        if len({tensor.shape for tensor in tensors}) > 1:
            raise UserError(f'The items of a batch differ in the shape of "{key}"; bring them to one shape.')
        return torch.stack(tensors)
    if all(isinstance(value, Number) for value in values):
        return torch.tensor(values)
    return values
