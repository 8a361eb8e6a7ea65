"""The time-domain encoder and decoder: strided causal convolutions and dilated residual units over the wave."""

from itertools import cycle, islice, pairwise
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madrigal.layers.convolutions import CausalConv1d, CausalConvTranspose1d, PadMode, StreamCache
from madrigal.soundstream.config import SoundStreamConfig

UNITS_PER_BLOCK = 3


class CausalSequential(nn.ModuleList):
    """Causal layers one after the other, each given the cache."""

    def forward(self, x: Tensor, cache: StreamCache | None = None) -> Tensor:
        for layer in self:
            x = layer(x, cache)
        return x


class SqueezeExcite(nn.Module):
    """Gates the channels by their mean over the past. [batch, channels, time] -> the same shape."""

    def __init__(self, channels: int, reduction: int = 4, min_channels: int = 8) -> None:
        super().__init__()
        inner = max(min_channels, channels // reduction)
        self.net = nn.Sequential(nn.Conv1d(channels, inner, 1), nn.SiLU(), nn.Conv1d(inner, channels, 1), nn.Sigmoid())

    def forward(self, x: Tensor, cache: StreamCache | None = None) -> Tensor:
        total, count = x.cumsum(dim=-1), torch.arange(1, x.shape[-1] + 1, device=x.device)
        if cache is not None:
            past, seen = cache.get(self, (x.new_zeros((), dtype=torch.float64), 0))
            # A stream's sum outgrows single precision.
            total, count = total + past, count + seen
            cache[self] = total[..., -1:].clone() if x.shape[-1] else past, seen + x.shape[-1]
        return x * self.net((total / count).to(x.dtype))


class GateLoop(nn.Module):
    """A learned leaky memory of each channel, h[t] = a[t] h[t-1] + (1 - a[t]) v[t].

    It is read through a gate and added to the input. [batch, channels, time] -> the same shape.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(channels)
        self.to_parts = nn.Linear(channels, 3 * channels)
        self.to_out = nn.Linear(channels, channels)

    def forward(self, x: Tensor, cache: StreamCache | None = None) -> Tensor:
        value, keep, gate = self.to_parts(self.norm(x.transpose(1, 2))).chunk(3, dim=-1)
        keep = keep.sigmoid()
        value = value * (1 - keep)
        if cache is not None and self in cache:
            value = torch.cat((value[:, :1] + keep[:, :1] * cache[self], value[:, 1:]), dim=1)
        memory = linear_recurrence(keep, value)
        if cache is not None:
            cache[self] = memory[:, -1:].clone()
        return x + self.to_out(memory * F.silu(gate)).transpose(1, 2)


def linear_recurrence(keep: Tensor, value: Tensor) -> Tensor:
    """h[t] = keep[t] h[t-1] + value[t] over dim 1, in log2(time) rounds, each reaching twice as far back."""
    reach = 1
    while reach < value.shape[1]:
        value = torch.cat((value[:, :reach], value[:, reach:] + keep[:, reach:] * value[:, :-reach]), dim=1)
        keep = torch.cat((keep[:, :reach], keep[:, reach:] * keep[:, :-reach]), dim=1)
        reach *= 2
    return value


class ResidualUnit(nn.Module):
    """Dilated convolution of 7, then one of 1. [batch, channels, time] -> the same shape."""

    def __init__(self, channels: int, dilation: int, *, squeeze_excite: bool, pad_mode: PadMode) -> None:
        super().__init__()
        self.wide = CausalConv1d(channels, channels, 7, dilation=dilation, pad_mode=pad_mode)
        self.mix = CausalConv1d(channels, channels, 1)
        self.gate = SqueezeExcite(channels) if squeeze_excite else None

    def forward(self, x: Tensor, cache: StreamCache | None = None) -> Tensor:
        out = F.elu(self.mix(F.elu(self.wide(x, cache))))
        if self.gate is not None:
            out = self.gate(out, cache)
        return x + out


def _units(channels: int, dilations: tuple[int, ...], config: SoundStreamConfig) -> list[nn.Module]:
    return [
        ResidualUnit(channels, d, squeeze_excite=config.squeeze_excite, pad_mode=config.pad_mode)
        for d in islice(cycle(dilations), UNITS_PER_BLOCK)
    ]


class SeanetEncoder(CausalSequential):
    """[batch, input_channels, frames * hop] -> [batch, codebook_dim, frames]."""

    def __init__(self, config: SoundStreamConfig) -> None:
        sizes = [config.channels, *(config.channels * mult for mult in config.channel_mults)]
        layers: list[nn.Module] = [CausalConv1d(config.input_channels, sizes[0], 7, pad_mode=config.pad_mode)]
        for (size_in, size_out), stride in zip(pairwise(sizes), config.strides, strict=True):
            layers += _units(size_in, config.enc_cycle_dilations, config)
            layers.append(CausalConv1d(size_in, size_out, 2 * stride, stride=stride, pad_mode=config.pad_mode))
            if config.use_gate_loop_layers:
                layers.append(GateLoop(size_out))
        layers.append(CausalConv1d(sizes[-1], config.codebook_dim, 3, pad_mode=config.pad_mode))
        super().__init__(layers)


class SeanetDecoder(CausalSequential):
    """[batch, codebook_dim, frames] -> [batch, input_channels, frames * hop]."""

    latency = 0

    def __init__(self, config: SoundStreamConfig) -> None:
        sizes = [config.channels, *(config.channels * mult for mult in config.channel_mults)]
        layers: list[nn.Module] = [CausalConv1d(config.codebook_dim, sizes[-1], 7, pad_mode=config.pad_mode)]
        for (size_out, size_in), stride in zip(reversed(list(pairwise(sizes))), reversed(config.strides), strict=True):
            layers.append(CausalConvTranspose1d(size_in, size_out, 2 * stride, stride=stride))
            layers += _units(size_out, config.dec_cycle_dilations, config)
            if config.use_gate_loop_layers:
                layers.append(GateLoop(size_out))
        layers.append(CausalConv1d(sizes[0], config.input_channels, 7, pad_mode=config.pad_mode))
        super().__init__(layers)

    def flush(self, cache: StreamCache) -> Tensor:
        """No samples: every frame has given its own at once."""
        batch = next((past.shape[0] for past in cache.values() if isinstance(past, Tensor)), 1)
        last = cast(CausalConv1d, self[-1])
        return last.weight.new_zeros(batch, last.out_channels, 0)
