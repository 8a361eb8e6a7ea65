"""ConvNeXt blocks over frames: a depthwise convolution over time, a norm, and a feed-forward.

All the depth is spent at the frame rate, in dense matrix products: what is quick on any machine.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madrigal.layers.convolutions import StreamCache


class DepthwiseConv(nn.Module):
    """Each channel's own filter over `kernel_size` frames, [batch, frames, dim] -> the same.

    A causal one sees the frames up to its own, and streams by a cache; the other one sees as many on both sides.
    """

    def __init__(self, dim: int, kernel_size: int, *, causal: bool = True) -> None:
        super().__init__()
        if not causal and not kernel_size % 2:
            raise ValueError(f"A kernel of {kernel_size} frames has no middle; choose an odd number.")
        self.context = kernel_size - 1
        self.ahead = 0 if causal else self.context // 2
        self.weight = nn.Parameter(torch.empty(dim, 1, 1, kernel_size).uniform_(-1, 1) * kernel_size**-0.5)
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor, cache: StreamCache | None = None) -> Tensor:
        if not x.shape[1]:
            return x
        past = None if cache is None else cache.get(self)
        x = F.pad(x, (0, 0, self.context - self.ahead, self.ahead)) if past is None else torch.cat((past, x), dim=1)
        if cache is not None:
            cache[self] = x[:, x.shape[1] - self.context :].clone()
        # Seen as a picture, frames-by-channels is the channels-last layout, whose depthwise kernel is twice as fast as
        # conv1d's and needs no copy. One row is quicker on the way there, one column on the way there and back; in 16
        # bits torch 2.13 never returns from some small rows on a CPU.
        is_half = x.dtype != torch.float32 or torch.is_autocast_enabled(x.device.type)
        is_column = is_half or torch.is_grad_enabled()
        side, weight = (3, self.weight.transpose(2, 3)) if is_column else (2, self.weight)
        picture = x.transpose(1, 2).unsqueeze(side)
        out = F.conv2d(picture, weight, self.bias, groups=x.shape[-1]).squeeze(side).transpose(1, 2)
        return out.contiguous()  # in 16 bits it is not, and whatever comes next would be slow on the way back


class ConvNeXtBlock(nn.Module):
    """[batch, frames, dim] -> the same."""

    def __init__(self, dim: int, hidden: int, kernel_size: int, *, causal: bool = True) -> None:
        super().__init__()
        self.conv = DepthwiseConv(dim, kernel_size, causal=causal)
        self.norm = nn.LayerNorm(dim)
        self.expand = nn.Linear(dim, hidden)
        self.contract = nn.Linear(hidden, dim)
        # Every block starts as the identity.
        nn.init.trunc_normal_(self.expand.weight, std=dim**-0.5)
        nn.init.zeros_(self.contract.weight)
        nn.init.zeros_(self.contract.bias)

    def forward(self, x: Tensor, cache: StreamCache | None = None) -> Tensor:
        # The convolution is bound by memory, where casting to bfloat16 and back costs more than it saves.
        with torch.autocast(x.device.type, enabled=False):
            hidden = self.norm(self.conv(x.float(), cache))
        return x + self.contract(F.gelu(self.expand(hidden)))


class ConvNeXt(nn.Module):
    """`depth` blocks, [batch, frames, dim] -> the same.

    Nothing is normalised but inside the blocks: what the first layer hands on reaches the last one as it is.
    """

    def __init__(self, dim: int, *, depth: int, hidden: int, kernel_size: int, causal: bool = True) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(ConvNeXtBlock(dim, hidden, kernel_size, causal=causal) for _ in range(depth))

    def forward(self, x: Tensor, cache: StreamCache | None = None, *, mask: Tensor | None = None) -> Tensor:
        """What `mask` [batch, frames] says is no frame is as nothing to the others: a row is the same in any batch."""
        x = x.float()
        for block in self.blocks:
            x = block(x if mask is None else x.masked_fill(~mask[..., None], 0.0), cache)
        return x
