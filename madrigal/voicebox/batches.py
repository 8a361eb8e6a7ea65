"""What a trainer of flows is given: features or waves, and ids of their frames.

An item of a dataset is a wave [samples] or [1, samples], features [frames, dim_in], a tuple of one of these and ids, or
a dict: "audio" or "features"; "ids" at frame rate, "symbols" with "durations", or "semantic" tokens. Older names are
"wave" and "raw_wave", "phoneme_ids" (symbols) and "semantic_token_ids".
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from madrigal.data.collate import Batch
from madrigal.errors import UserError
from madrigal.voicebox.source import collate_aligned

OLDER = {"wave": "audio", "raw_wave": "audio", "phoneme_ids": "symbols", "semantic_token_ids": "semantic"}


def collate_flows(items: Sequence[Any], dim_in: int) -> Batch:
    """A batch of such items: beside what `source.py` says, "features" [batch, frames, dim_in], "features_lengths"."""
    named = [_named(item, dim_in) for item in items]
    features = [torch.as_tensor(item.pop("features")).float() for item in named if "features" in item]
    if features and len(features) < len(named):
        raise UserError("Some items of a batch are features and others waves; give the same for all.")
    if any(row.ndim != 2 or row.shape[1] != dim_in for row in features):
        raise UserError(f'"features" of an item must have the shape [frames, {dim_in}].')
    # Rows without sound have no length of their own to be collated by.
    batch = collate_aligned(named) if any(named) else {}
    if features:
        batch["features"] = pad_sequence(features, batch_first=True)
        batch["features_lengths"] = torch.tensor([len(row) for row in features])
    return batch


def _named(item: Any, dim_in: int) -> dict[str, Any]:
    if isinstance(item, Mapping):
        return {OLDER.get(str(name), str(name)): value for name, value in item.items()}
    named: dict[str, Any] = {}
    for part in item if isinstance(item, tuple) else (item,):
        part = torch.as_tensor(part)
        kind = "ids" if not part.is_floating_point() else "features" if _is_features(part, dim_in) else "audio"
        if kind in named:
            raise UserError(f"An item holds {kind} twice; give (sound, ids), or a dict with their names.")
        named[kind] = part
    return named


def _is_features(part: Tensor, dim_in: int) -> bool:
    return part.ndim == 2 and part.shape[1] == dim_in
