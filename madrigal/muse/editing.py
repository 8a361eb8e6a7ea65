"""A part of a picture made anew: inside a mask, around the picture, or here and there; the rest keeps its tokens."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from madrigal.engine.randomness import seed_for
from madrigal.errors import UserError
from madrigal.muse.grids import cells, pixels
from madrigal.muse.maskgit_config import Size
from madrigal.muse.pictures import lowered
from madrigal.muse.tokenised import Tokenised


@dataclass(frozen=True)
class Edit:
    """Images [batch, 3, height, width], and which pixels of them are to be made, bool [batch, height, width]."""

    images: Tensor
    mask: Tensor

    @property
    def size(self) -> Size:
        return int(self.images.shape[-2]), int(self.images.shape[-1])

    def tokens(self, stage: Tokenised, size: Size) -> tuple[Tensor, Tensor]:
        """The picture's tokens for a stage that works at `size`, and which of them are to be made."""
        factor = stage.tool().downsample_factor
        mask = self.mask
        if size != self.size:
            mask = F.interpolate(mask[:, None].float(), size, mode="area")[:, 0] > 0
        return stage.tokens_of(lowered(self.images, size)), cells(mask, factor).to(stage.device)

    def laid(self, made: Tensor) -> Tensor:
        """What was made, with every pixel of the picture that was to stay as it was."""
        return torch.where(self.mask[:, None].to(made.device), made, self.images.to(made.device))


def inside(images: Tensor, mask: Tensor) -> Edit:
    """In-painting: pixels where `mask` [batch, height, width] is True are made anew."""
    if mask.shape != (len(images), *images.shape[2:]):
        raise UserError(
            f"The mask is {mask.shape[-1]}x{mask.shape[-2]} and the picture {images.shape[-1]}x{images.shape[-2]}: "
            "give a mask of the picture's size."
        )
    return Edit(images, mask.bool())


def around(images: Tensor, *, left: int = 0, top: int = 0, right: int = 0, bottom: int = 0, factor: int) -> Edit:
    """Out-painting: the picture goes on for so many pixels on each side; a token covers `factor` pixels a side."""
    sides = {"left": left, "top": top, "right": right, "bottom": bottom}
    for name, side in sides.items():
        if side < 0 or side % factor:
            raise UserError(f"{name} is {side} pixels; a picture goes on by multiples of {factor}.")
    if not any(sides.values()):
        raise UserError("Nothing is to be made around the picture: say by how many pixels it goes on.")
    # What lies beyond the edge is stood in for by the edge: the edge's own tokens should not see a border.
    wider = F.pad(images, (left, right, top, bottom), mode="replicate")
    mask = torch.ones(len(images), *wider.shape[2:], dtype=torch.bool, device=images.device)
    mask[:, top : top + images.shape[2], left : left + images.shape[3]] = False
    return Edit(wider, mask)


def varied(images: Tensor, strength: float, *, factor: int, seeds: list[int]) -> Edit:
    """A variation: a share `strength` of the cells of `factor` pixels a side, drawn by each picture's seed."""
    if not 0 < strength <= 1:
        raise UserError(f"A variation makes a share of the picture anew, over 0 and up to 1, not {strength}.")
    rows, columns = images.shape[2] // factor, images.shape[3] // factor
    chosen = torch.zeros(len(images), rows * columns, dtype=torch.bool)
    for row, seed in zip(chosen, seeds, strict=True):
        noise = torch.Generator().manual_seed(seed_for(seed, "variation"))
        row[torch.randperm(rows * columns, generator=noise)[: max(1, round(strength * rows * columns))]] = True
    return Edit(images, pixels(chosen.view(-1, rows, columns), factor).to(images.device))
