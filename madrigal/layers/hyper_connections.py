"""Hyper-connections: several residual streams, and a learned say in which of them a layer reads and writes."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


class HyperConnection(nn.Module):
    """Around one branch of a layer: streams [batch, time, streams, dim] -> its input [batch, time, dim].

    `forward` also returns the way back: a function that takes the branch's output [batch, time, dim] and gives the new
    streams. Which streams are read, how they mix, and where the output goes are learned numbers plus a part that
    depends on the streams themselves. It starts as a plain residual: reads stream `index`, mixes nothing, writes to all.
    """

    def __init__(self, dim: int, streams: int, index: int) -> None:
        super().__init__()
        self.streams = streams
        self.norm = nn.RMSNorm(dim)
        self.to_say = nn.Linear(dim, streams + 2, bias=False)
        nn.init.zeros_(self.to_say.weight)
        read = torch.zeros(streams, 1)
        read[index % streams] = 1.0
        self.say = nn.Parameter(torch.cat((read, torch.eye(streams), torch.ones(streams, 1)), dim=1))
        self.scale = nn.Parameter(torch.full((streams + 2,), 0.01))

    def forward(self, x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        say = self.say + self.to_say(self.norm(x)).tanh() * self.scale  # [batch, time, streams, streams + 2]
        mixed = say[..., :-1].transpose(-1, -2).to(x.dtype) @ x
        write = say[..., -1:].to(x.dtype)

        def leave(out: Tensor) -> Tensor:
            return mixed[..., 1:, :] + write * out.unsqueeze(-2)

        return mixed[..., 0, :], leave
