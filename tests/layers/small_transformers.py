"""Small transformers for the tests, with weights that are large enough for mistakes to show."""

from typing import Any

import torch
from torch import Tensor, nn

from madrigal.layers.transformer import Transformer

DIM, DIM_CONTEXT = 16, 12
POSITIONS = ["rotary", "relative", "none"]
KV_HEADS = [None, 2, 1]


def small(seed: int = 0, depth: int = 2, **options: Any) -> Transformer:
    torch.manual_seed(seed)
    made = Transformer(DIM, depth, heads=4, dim_head=8, dim_context=DIM_CONTEXT, **options).eval()
    for parameter in made.parameters():
        nn.init.normal_(parameter, std=0.3)
    return made


def mask_of(*rows: str) -> Tensor:
    """`"11.1"`: real, real, pad, real."""
    return torch.tensor([[letter == "1" for letter in row] for row in rows])


def conditions(way: str, rows: int, ragged: bool) -> dict[str, Tensor]:
    """What is given beside the tokens: nothing, a prefix or a context, perhaps with pads and a row that has none."""
    if way == "none":
        return {}
    name, dim = ("prefix", DIM) if way == "prefix" else ("context", DIM_CONTEXT)
    given = {name: torch.randn(rows, 4, dim)}
    if ragged:
        given[f"{name}_mask"] = mask_of("11.1", "....", "1111")[:rows]
    return given
