"""Hyper-connections: several residual streams, and a learned say in which of them a layer reads and writes."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madrigal.layers.norm import RMSNorm


class HyperConnection(nn.Module):
    """Around one branch of a layer: streams [batch, time, streams, dim] -> its input [batch, time, dim].

    `forward` also returns the way back: a function that takes the branch's output [batch, time, dim] and gives the new
    streams. Which streams are read, how they mix, and where the output goes are learned numbers plus a part that
    depends on the streams themselves. It starts as a plain residual: it reads one stream, mixes nothing, writes to all.
    """

    def __init__(self, dim: int, streams: int, index: int) -> None:
        super().__init__()
        self.streams = streams
        self.norm = RMSNorm(dim)
        self.to_say = nn.Linear(dim, streams + 2, bias=False)
        nn.init.zeros_(self.to_say.weight)
        read = torch.zeros(streams, 1)
        read[index % streams] = 1.0
        self.say = nn.Parameter(torch.cat((read, torch.eye(streams), torch.ones(streams, 1)), dim=1))
        self.scale = nn.Parameter(torch.full((streams + 2,), 0.01))

    def forward(self, x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        # Out of autocast: what is kept from layer to layer must not be rounded in each of them.
        with torch.autocast(x.device.type, enabled=False):
            say = self.say + self._heard(x).tanh() * self.scale  # [batch, time, streams, streams + 2]
            mixed = say[..., :-1].transpose(-1, -2) @ x
        entry, streams = mixed.split((1, self.streams), dim=-2)
        write = say[..., -1:]

        def leave(out: Tensor) -> Tensor:
            return streams + write * out.unsqueeze(-2)

        return entry.squeeze(-2), leave

    def _heard(self, x: Tensor) -> Tensor:
        """`to_say` of the normed streams; the norm is only a factor, so it can come after, on far fewer numbers."""
        length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        weight = self.to_say.weight * self.norm.weight
        return F.linear(x, weight) * (length.square() / x.shape[-1] + torch.finfo(x.dtype).eps).rsqrt()
