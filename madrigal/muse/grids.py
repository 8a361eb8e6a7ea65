"""Tokens of a picture lie on a grid: where each stands, and where a coarser grid's tokens lie upon a finer one."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madrigal.errors import UserError
from madrigal.layers.positions import SinusoidalPositions


class GridPositions(nn.Module):
    """The place of every token of a grid, row and column: (rows, columns) -> [rows * columns, dim].

    Waves of the row and the column, mixed by what is learned: a grid of any size and shape has places.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.waves = SinusoidalPositions(dim // 2)
        self.mix = nn.Linear(dim, dim)

    def forward(self, rows: int, columns: int) -> Tensor:
        device = self.mix.weight.device
        down = self.waves(torch.arange(rows, device=device))[:, None].expand(-1, columns, -1)
        across = self.waves(torch.arange(columns, device=device))[None].expand(rows, -1, -1)
        places: Tensor = self.mix(torch.cat((down, across), dim=-1).flatten(0, 1))
        return places


def as_grid(ids: Tensor) -> Tensor:
    """Ids [batch, rows, columns], or those of square pictures in one row, [batch, tokens]."""
    if ids.ndim == 3:
        return ids
    side = math.isqrt(ids.shape[-1])
    if ids.ndim != 2 or side * side != ids.shape[-1]:
        raise UserError(
            f"Ids of the shape {list(ids.shape)} lie on no square grid: give them as [batch, rows, columns]."
        )
    return ids.unflatten(1, (side, side))


def upon(coarse: Tensor, rows: int, columns: int) -> Tensor:
    """Ids [batch, some rows, some columns] upon a grid of rows and columns: each cell has the id that covers it."""
    down = torch.arange(rows, device=coarse.device) * coarse.shape[1] // rows
    across = torch.arange(columns, device=coarse.device) * coarse.shape[2] // columns
    return coarse[:, down][:, :, across]


def cells(mask: Tensor, factor: int) -> Tensor:
    """A mask of pixels [batch, height, width] as one of tokens: those with a masked pixel in their cell."""
    return F.max_pool2d(mask[:, None].float(), factor)[:, 0] > 0


def pixels(mask: Tensor, factor: int) -> Tensor:
    """A mask of tokens [batch, rows, columns] as one of pixels."""
    return mask.repeat_interleave(factor, dim=1).repeat_interleave(factor, dim=2)
