"""Causal convolutions over time that can also be fed chunk by chunk.

Every causal layer of the package has the call `forward(x, cache=None)`. Without a cache, `x` is a whole signal. With
one, `x` is the next chunk of it: the layer keeps what it still needs of the past in the cache under its own key, and
the chunks' outputs, put one after the other, equal the output for the whole.
"""

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

StreamCache = dict[Any, Any]
"""What the layers of one stream remember between chunks, keyed by the layer that remembers it."""

PadMode = Literal["constant", "replicate"]
"""What stands before the first sample: silence, or the first sample itself. Both can be known without the future."""


def pad_past(x: Tensor, amount: int, mode: PadMode) -> Tensor:
    """Extends `x` [batch, channels, time] to the left by `amount` steps."""
    if amount == 0:
        return x
    if mode == "constant":
        return F.pad(x, (amount, 0))
    return F.pad(x, (amount, 0), mode="replicate")


class CausalConv1d(nn.Conv1d):
    """Convolution whose output at t sees the input up to t only.

    [batch, in_channels, time] -> [batch, out_channels, time // stride]; the time must be a multiple of the stride.
    With stride s, output frame i sees the input up to the last sample of its own s samples.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        *,
        stride: int = 1,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = True,
        pad_mode: PadMode = "constant",
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride=stride, dilation=dilation, groups=groups, bias=bias
        )
        if kernel_size < stride:
            raise ValueError(f"A kernel of {kernel_size} with stride {stride} would skip samples.")
        self.pad_mode_past: PadMode = pad_mode
        self.context = dilation * (kernel_size - 1) + 1 - stride

    def forward(self, x: Tensor, cache: StreamCache | None = None) -> Tensor:
        if x.shape[-1] % self.stride[0]:
            raise ValueError(f"{x.shape[-1]} samples are not a multiple of the stride {self.stride[0]}.")
        if self.context == 0:
            return self.convolve(x)
        past = cache.get(self) if cache is not None else None
        x = pad_past(x, self.context, self.pad_mode_past) if past is None else torch.cat((past, x), dim=-1)
        if cache is not None:
            cache[self] = x[..., x.shape[-1] - self.context :].clone()
        return self.convolve(x)

    def convolve(self, x: Tensor) -> Tensor:
        return F.conv1d(x, self.weight, self.bias, self.stride, 0, self.dilation, self.groups)


class CausalConvTranspose1d(nn.ConvTranspose1d):
    """Upsampling convolution that never looks ahead.

    [batch, in_channels, time] -> [batch, out_channels, time * stride]. Input frame i reaches the output from i * stride
    on; what reaches beyond the end of a chunk is kept in the cache and added to the beginning of the next.
    """

    def __init__(
        self, in_channels: int, out_channels: int, kernel_size: int, *, stride: int, bias: bool = True
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride=stride, bias=bias)
        if kernel_size < stride:
            raise ValueError(f"A kernel of {kernel_size} with stride {stride} would leave holes.")
        self.overlap = kernel_size - stride

    def forward(self, x: Tensor, cache: StreamCache | None = None) -> Tensor:  # type: ignore[override]
        size = x.shape[-1] * self.stride[0]
        if cache is None:
            return F.conv_transpose1d(x, self.weight, self.bias, self.stride)[..., :size]
        out = F.conv_transpose1d(x, self.weight, None, self.stride)
        tail = cache.get(self)
        if tail is not None:
            out[..., : self.overlap] += tail
        cache[self] = out[..., size:].clone()
        out = out[..., :size]
        return out if self.bias is None else out + self.bias[:, None]
