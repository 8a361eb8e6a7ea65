"""Training that begins with the weights of another training: pretraining, then reading, or speaking."""

from pathlib import Path

import torch
from torch import Tensor

from madrigal.errors import UserError
from madrigal.speartts.config import TextToSemanticConfig
from madrigal.speartts.model import TextToSemantic

SIZES = (
    "dim",
    "source_depth",
    "target_depth",
    "heads",
    "dim_head",
    "target_kv_heads",
    "ff_mult",
    "num_semantic_token_ids",
)
"""What has to agree for weights to fit."""


def sizes_of(config: TextToSemanticConfig) -> dict[str, object]:
    """The options that a model takes over from the one that it starts from."""
    return {name: getattr(config, name) for name in (*SIZES, "unique_consecutive")}


@torch.no_grad()
def start_from(model: TextToSemantic, name: str | Path) -> None:
    """Give `model` the weights of a run, a checkpoint or an exported folder.

    What speech alone cannot teach may be new: another text vocabulary, and a head at an early exit.
    """
    other = TextToSemantic.from_pretrained(name)
    for size in SIZES:
        there, here = getattr(other.config, size), getattr(model.config, size)
        if there != here:
            raise UserError(f"{name} has {size} {there}, and this model has {here}: give it model.{size}={there}.")
    weights = _by_layer(other)
    if other.config.text != model.config.text or other.end("text") != model.end("text"):
        weights = {key: tensor for key, tensor in weights.items() if key not in ("tables.text.weight", "starts.text")}
    for key, tensor in _by_layer(model).items():
        if key in weights:
            tensor.copy_(weights[key])


def _by_layer(model: TextToSemantic) -> dict[str, Tensor]:
    """Weights by names that do not depend on where the decoder's early exit is."""
    below = len(model.lower.layers)
    named: dict[str, Tensor] = {}
    for key, tensor in model.state_dict().items():
        part, _, rest = key.partition(".layers.")
        if part in ("lower", "upper") and rest:
            number, _, name = rest.partition(".")
            key = f"decoder.{int(number) + (below if part == 'upper' else 0)}.{name}"
        named[key] = tensor
    return named
