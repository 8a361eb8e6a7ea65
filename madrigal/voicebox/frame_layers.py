"""What the model has beside its transformer: vectors of a time, of a frame's place and of a voice."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madrigal.layers.convnext import DepthwiseConv


class TimeVector(nn.Module):
    """Times of a flow [batch], from 0 to 1 -> vectors [batch, dim]."""

    frequencies: Tensor

    def __init__(self, dim: int) -> None:
        super().__init__()
        steps = torch.arange(dim // 2) / max(dim // 2 - 1, 1)
        # From a tenth of a turn over the whole flow to a hundred and more.
        self.register_buffer("frequencies", 2 * math.pi * 0.1 * 2000.0**steps, persistent=False)
        self.net = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, times: Tensor) -> Tensor:
        angles = times[:, None] * self.frequencies
        # Out of autocast: a time in bfloat16 has two digits, and neighbouring steps would share it.
        with torch.autocast(times.device.type, enabled=False):
            vectors: Tensor = self.net(torch.cat((angles.sin(), angles.cos()), dim=-1))
        return vectors


class FramePositions(nn.Module):
    """What a frame's neighbours say of its place, by one filter for each channel. [batch, frames, dim] -> the same."""

    def __init__(self, dim: int, kernel: int) -> None:
        super().__init__()
        self.filters = DepthwiseConv(dim, kernel, causal=False)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """`mask` [batch, frames]: behind the end of a row there is silence, however long its padding."""
        if mask is not None:
            x = x.masked_fill(~mask[..., None], 0.0)
        if torch.is_grad_enabled():
            return F.gelu(self.filters(x))
        # Without a way back, it takes longer to round the frames than to filter them.
        with torch.autocast(x.device.type, enabled=False):
            return F.gelu(self.filters(x.to(self.filters.weight.dtype)))


class VoiceVector(nn.Module):
    """The given frames [batch, frames, dim_in] summed up in one vector [batch, dim], by their mean and their spread.

    A row of which nothing is given has a learned vector.
    """

    def __init__(self, dim_in: int, hidden: int, dim: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(dim_in, hidden, 5, padding=2)
        self.second = nn.Conv1d(hidden, hidden, 5, padding=2)
        self.to_vector = nn.Linear(2 * hidden, dim)
        self.nobody = nn.Parameter(torch.zeros(dim))

    def forward(self, context: Tensor | None, given: Tensor | None, rows: int) -> Tensor:
        """`context` is zero where `given` [batch, frames] is False."""
        if context is None or given is None:
            return self.nobody.expand(rows, -1)
        weights = given[:, None].float()
        count = weights.sum(-1)
        # Nothing is heard between and behind the given frames, however much room there is.
        heard = F.gelu(self.first(context.transpose(1, 2))) * weights
        heard = F.gelu(self.second(heard)).float()
        mean = (heard * weights).sum(-1) / count.clamp(min=1)
        spread = (((heard - mean[..., None]).square() * weights).sum(-1) / count.clamp(min=1) + 1e-5).sqrt()
        vector = self.to_vector(torch.cat((mean, spread), dim=-1)).float()
        return torch.where(count > 0, vector, self.nobody)
