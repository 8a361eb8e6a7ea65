"""Small quantizers of every kind, and what tests ask of them."""

from typing import Any

import torch
from torch import Tensor

from madrigal.layers.quantizers import Quantizer, build_quantizer

DIM, SIZE, LEVELS = 8, 16, 4
KINDS: dict[str, dict[str, Any]] = {
    "vq": {},
    "projected": {"factorised_dim": 3},
    "cosine": {"factorised_dim": 3, "l2_normalised": True},
    "grouped": {"groups": 2},
    "lfq": {"kind": "lfq", "groups": 2},
    "fsq": {"kind": "fsq", "levels": (4, 4)},
}


def make(**options: Any) -> Any:
    """A small quantizer, started from the same noise as `latents`."""
    torch.manual_seed(0)
    kind = options.pop("kind", "vq")
    settings = {"dim": DIM, "codebook_size": SIZE, "num_quantizers": LEVELS, **options}
    quantizer = build_quantizer(kind, **settings)
    quantizer.initialize(latents(8, 50, seed=9).flatten(0, 1))
    return quantizer


def latents(batch: int = 2, frames: int = 10, *, seed: int = 1) -> Tensor:
    return torch.randn(batch, frames, DIM, generator=torch.Generator().manual_seed(seed))


def collected(quantizer: Quantizer, x: Tensor, *, seed: int = 0, **options: Any) -> Any:
    torch.manual_seed(seed)
    return quantizer(x, collect=True, **options)


def state(quantizer: Quantizer) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in quantizer.state_dict().items()}


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return all(torch.equal(left[name], right[name]) for name in left)
