"""How the codes of a frame lie in a sequence: one after another, or side by side with a delay.

A section of a sequence is a row of columns. With `flatten` a column holds one code, and a frame of q codebooks takes
q columns. With `delay` a column holds one code of each codebook, codebook k being k frames late, so that a frame takes
one column and each codebook still sees the ones above it.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

PatternName = Literal["flatten", "delay"]


@dataclass(frozen=True)
class Pattern:
    """Where each code of [frames, quantizers] stands. A column has `width` slots."""

    name: PatternName
    quantizers: int

    @property
    def width(self) -> int:
        return self.quantizers if self.name == "delay" else 1

    @property
    def columns_per_frame(self) -> int:
        return 1 if self.name == "delay" else self.quantizers

    def columns(self, frames: Tensor) -> Tensor:
        """How many columns hold all codes of so many frames: [batch] -> [batch]."""
        if self.name == "delay":
            return torch.where(frames > 0, frames + self.quantizers - 1, 0)
        return frames * self.quantizers

    def begun(self, frames: Tensor) -> Tensor:
        """How many columns have only codes of these first frames in them, so that the next one has a new code."""
        return frames if self.name == "delay" else frames * self.quantizers

    def complete(self, columns: Tensor) -> Tensor:
        """How many frames are whole after so many columns: [batch] -> [batch]."""
        return (columns - self.quantizers + 1).clamp(min=0) if self.name == "delay" else columns // self.quantizers

    def place(self, column: Tensor) -> tuple[Tensor, Tensor]:
        """The frame and the codebook of each slot: [...] -> two of [..., width]; a frame below 0 is not there yet."""
        if self.name == "delay":
            codebook = torch.arange(self.quantizers, device=column.device).expand(*column.shape, -1)
            return column[..., None] - codebook, codebook
        return (column // self.quantizers)[..., None], (column % self.quantizers)[..., None]

    def after(self, steps: int, slot: int) -> tuple[int, int]:
        """What a slot holds so many columns after whole frames: how many frames after them, and of which codebook."""
        if self.name == "delay":
            return steps - slot, slot
        return divmod(steps, self.quantizers)
