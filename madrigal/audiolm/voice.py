"""A short way to a voice: the mean of what has been heard so far joins every column that comes.

Attention can find the voice of a prompt by itself, but a small model learns that late, if at all: what lies just before
tells a voice so well. Codes stand for vectors, and the mean of a second or two of them is a spectrum that hardly
depends on what was said.
"""

import torch
from torch import Tensor, nn

LEAST = 50  # frames: training stops to listen anywhere after so many


class Voice(nn.Module):
    """What a mean [batch, columns, dim] adds to each column, [batch, columns, dim]; nothing before it is trained."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        last = nn.Linear(dim, dim)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)
        self.layers = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), last)

    def forward(self, mean: Tensor) -> Tensor:
        out: Tensor = self.layers(4 * mean)  # a mean is shorter than what it is the mean of
        return out


def running_mean(x: Tensor, heard: Tensor, upto: Tensor | None = None) -> Tensor:
    """The mean of the `heard` columns up to each column, itself included, [batch, columns, dim]; zeros before.

    x [batch, columns, dim], heard bool [batch, columns]. After `upto` [batch] of them a row listens no more.
    """
    number = heard.cumsum(1)
    if upto is not None:
        heard = heard & (number <= upto[:, None])
    weights = heard.to(x.dtype)[..., None]
    return (x * weights).cumsum(1) / weights.cumsum(1).clamp(min=1)


def listening_lengths(heard: Tensor, columns_per_frame: int) -> Tensor:
    """[batch] how many columns each row of a training batch listens to: at random, as prompts are long or short."""
    least = LEAST * columns_per_frame
    more = (heard.sum(1) - least).clamp(min=0)
    return least + (torch.rand(len(heard), device=heard.device) * (more + 1)).long()
