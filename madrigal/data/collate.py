"""From a list of items to a batch: audio padded with zeros, tokens with PAD, and lengths that say what is padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from madrigal.data.tokens import PAD
from madrigal.errors import UserError

Batch = dict[str, Any]

TOKEN_FIELDS = frozenset({"semantic", "acoustic"})
"""Fields that hold rows of ids, [time] or [time, quantizers], each with a length of its own."""


def collate(items: Sequence[Any], *, pad_to_longest: bool = True) -> Batch:
    """A batch dict from items that are dicts, tensors ([samples] or [channels, samples]) or tuples.

    Audio under a key "audio" or "audio_…" becomes float32 [batch, channels, samples] with int64 [batch] valid
    samples under "lengths" or "lengths_…", and so does the "target" that belongs to it; it is padded with zeros to the
    longest, or cut to the shortest. Rows of tokens ("semantic", "acoustic") become int64 [batch, time] or [batch, time,
    quantizers], padded with PAD, with int64 [batch] "semantic_lengths" or "acoustic_lengths".
    Strings become a list, numbers and bools a tensor, other tensors are stacked.
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
        elif key in TOKEN_FIELDS:
            batch[key], batch[f"{key}_lengths"] = join_tokens(key, values)
        else:
            batch[key] = _join(key, values)
    return batch


def mask_from_lengths(lengths: Tensor, size: int) -> Tensor:
    """[batch] valid lengths to a bool mask [batch, size], True where the data is real."""
    return torch.arange(size, device=lengths.device) < lengths[:, None]


def join_tokens(key: str, values: Sequence[Any]) -> tuple[Tensor, Tensor]:
    """Rows of ids [time] or [time, quantizers] to int64 [batch, time, …] padded with PAD, and their lengths [batch]."""
    rows = [torch.as_tensor(value) for value in values]
    if any(row.is_floating_point() or row.dim() not in (1, 2) for row in rows):
        raise UserError(f'"{key}" of an item must hold whole numbers of the shape [time] or [time, quantizers].')
    if len({row.shape[1:] for row in rows}) > 1:
        raise UserError(f'The items of a batch differ in the number of quantizers of "{key}"; cut them to one number.')
    padded = pad_sequence([row.long() for row in rows], batch_first=True, padding_value=PAD)
    return padded, torch.tensor([len(row) for row in rows], dtype=torch.int64)


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
