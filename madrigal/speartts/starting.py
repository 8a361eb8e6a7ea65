"""Training that begins with the weights of another training: pretraining, then reading, or speaking."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from madrigal.audiolm.learned import fingerprints_of
from madrigal.engine.learned import learned_by
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
OF_TEXT = ("tables.text.", "starts.text", "ctc.")
"""Weights that mean something for one text vocabulary alone."""


def sizes_of(config: TextToSemanticConfig) -> dict[str, object]:
    """The options that a model takes over from the one that it starts from."""
    return {name: getattr(config, name) for name in (*SIZES, "unique_consecutive")}


def check_tokens(name: str | Path, tokenizer: Any) -> None:
    """Refuse a start that has learned the tokens of another tokenizer; an exported folder does not say whose they are.

    Ids of the same number would be taken, and mean other sounds.
    """
    start = Path(name)
    run = start.parent.parent if start.parent.name == "checkpoints" else start
    found, here = learned_by(run).get("tokenizer"), fingerprints_of(tokenizer, None).get("tokenizer")
    if None not in (found, here) and found != here:
        raise UserError(
            f"{name} has learned the tokens of another tokenizer ({found}, and this one is {here}): give it the "
            "tokenizer that it was trained with, or another start."
        )


@torch.no_grad()
def start_from(model: TextToSemantic, name: str | Path) -> None:
    """Give `model` the weights of a run, a checkpoint or an exported folder.

    What speech alone cannot teach may be new: another text vocabulary, with the head that reads it, and a head at an
    early exit.
    """
    other = TextToSemantic.from_pretrained(name)
    for size in SIZES:
        there, here = getattr(other.config, size), getattr(model.config, size)
        if there != here:
            raise UserError(f"{name} has {size} {there}, and this model has {here}: give it model.{size}={there}.")
    weights = _by_layer(other)
    if other.config.text != model.config.text or other.end("text") != model.end("text"):
        weights = {key: tensor for key, tensor in weights.items() if not key.startswith(OF_TEXT)}
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
