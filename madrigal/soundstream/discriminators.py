"""The critics: each hears a wave [batch, channels, samples] and returns logits and the features on the way to them.

Time is the last dimension of the logits and of every feature, so that padding can be masked out of all of them.
"""

import inspect
from itertools import pairwise
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madrigal.layers.spectra import stft
from madrigal.soundstream.config import SoundStreamConfig

Judgement = tuple[Tensor, list[Tensor]]
Complex = tuple[Tensor, Tensor]
"""Real and imaginary part. Apart, each is laid out as the convolutions want it, and nothing is copied."""


class MultiScaleDiscriminator(nn.Module):
    """Strided grouped convolutions over the wave at a fraction of its rate; `factors` are averaged away in turn.

    [batch, input_channels, samples] -> logits [batch, 1, about samples / (prod(factors) * 256)].
    """

    def __init__(
        self,
        *,
        input_channels: int = 1,
        channels: int = 16,
        groups: tuple[int, ...] = (4, 16, 64, 256),
        chan_max: int = 1024,
        factors: tuple[int, ...] = (),
    ) -> None:
        super().__init__()
        self.downsample = nn.Sequential(*(nn.AvgPool1d(2 * f, stride=f, padding=f) for f in factors))
        self.first = nn.Conv1d(input_channels, channels, 15, padding=7)
        sizes = [min(channels * 4**i, chan_max) for i in range(len(groups) + 1)]
        self.strided = nn.ModuleList(
            nn.Conv1d(size_in, size_out, 41, stride=4, padding=20, groups=group)
            for (size_in, size_out), group in zip(pairwise(sizes), groups, strict=True)
        )
        self.last = nn.Conv1d(sizes[-1], sizes[-1], 5, padding=2)
        self.to_logits = nn.Conv1d(sizes[-1], 1, 3, padding=1)

    def forward(self, wave: Tensor) -> Judgement:
        x = self.first(self.downsample(wave))
        features = []
        for conv in self.strided:
            x = F.leaky_relu(conv(x), 0.1)
            features.append(x)
        return self.to_logits(F.leaky_relu(self.last(x), 0.1)), features


class ComplexConv2d(nn.Module):
    """Complex convolution from three real ones instead of four (Gauss)."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple[int, int],
        *,
        stride: tuple[int, int] = (1, 1),
        padding: tuple[int, int] = (0, 0),
    ) -> None:
        super().__init__()
        self.stride, self.padding = stride, padding
        bound = (2 * in_channels * kernel_size[0] * kernel_size[1]) ** -0.5
        # Channels last in memory, as the activations are.
        shape = (2, out_channels, *kernel_size, in_channels)
        self.weight = nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(2, out_channels).uniform_(-bound, bound))

    def forward(self, x: Complex) -> Complex:
        (real, imag), (w_real, w_imag), (b_real, b_imag) = x, self.weight.movedim(-1, 2), self.bias
        both = self._convolve(real + imag, w_real, (b_real + b_imag) / 2)
        from_real = self._convolve(real, w_imag - w_real, (b_imag - b_real) / 2)
        from_imag = self._convolve(imag, w_imag + w_real, (b_imag - b_real) / 2)
        return both - from_imag, both + from_real

    def _convolve(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.conv2d(x, weight, bias, self.stride, self.padding)


class ModReLU(nn.Module):
    """Shifts the modulus by a learned amount, cuts it at zero and keeps the phase."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(()))

    def forward(self, x: Complex) -> Complex:
        real, imag = x
        scale = F.relu(1 + self.shift * torch.rsqrt(real * real + imag * imag + 1e-8))
        return real * scale, imag * scale


class ComplexResidualUnit(nn.Module):
    """3x3 convolution around which the input is added, then a strided one; `stride` is (frequency, time)."""

    def __init__(self, in_channels: int, out_channels: int, stride: tuple[int, int]) -> None:
        super().__init__()
        kernel = (stride[0] + 2, stride[1] + 2)
        self.conv = ComplexConv2d(in_channels, in_channels, (3, 3), padding=(1, 1))
        self.activation = ModReLU()
        self.down = ComplexConv2d(in_channels, out_channels, kernel, stride=stride, padding=(1, 1))

    def forward(self, x: Complex) -> Complex:
        real, imag = self.activation(self.conv(x))
        return self.down((x[0] + real, x[1] + imag))


class ComplexSTFTDiscriminator(nn.Module):
    """Complex convolutions over the STFT, until one band is left.

    [batch, input_channels, samples] -> logits [batch, 1 (2 without `logits_abs`), 1, time]. `strides` are those of
    (time, frequency) of each unit.
    """

    def __init__(
        self,
        *,
        input_channels: int = 1,
        channels: int = 32,
        strides: tuple[tuple[int, int], ...] = ((1, 2), (2, 2), (1, 2), (2, 2), (1, 2), (2, 2)),
        chan_mults: tuple[int, ...] = (1, 2, 4, 4, 8, 8),
        n_fft: int = 1024,
        hop_length: int = 256,
        win_length: int = 1024,
        stft_normalized: bool = False,
        logits_abs: bool = True,
    ) -> None:
        super().__init__()
        self.n_fft, self.hop_length, self.win_length = n_fft, hop_length, win_length
        self.stft_normalized, self.logits_abs = stft_normalized, logits_abs
        self.time_stride = prod(time for time, _ in strides)
        bands, rest = divmod(n_fft // 2, prod(frequency for _, frequency in strides))
        if rest or not bands:
            raise ValueError(f"The strides {strides} do not divide the {n_fft // 2} bands of n_fft={n_fft}.")
        sizes = [channels, *(channels * mult for mult in chan_mults)]
        self.first = ComplexConv2d(input_channels, channels, (7, 7), padding=(3, 3))
        self.units = nn.ModuleList(
            ComplexResidualUnit(size_in, size_out, (frequency, time))
            for (size_in, size_out), (time, frequency) in zip(pairwise(sizes), strides, strict=True)
        )
        self.to_logits = ComplexConv2d(sizes[-1], 1, (bands, 1))

    def forward(self, wave: Tensor) -> Judgement:
        x = self.first(self._spectrum(wave))
        features = [*x]
        for unit in self.units:
            x = unit(x)
            features.extend(x)
        real, imag = self.to_logits(x)
        if self.logits_abs:
            return torch.sqrt(real * real + imag * imag + 1e-8), features
        return torch.cat((real, imag), dim=1), features

    def _spectrum(self, wave: Tensor) -> Complex:
        """All bands but the highest, so that they can be halved, and as many frames as the strides divide."""
        x = stft(
            wave, self.n_fft, hop=self.hop_length, win_length=self.win_length, normalized=self.stft_normalized
        )
        missing = -x.shape[-1] % self.time_stride
        planes = (F.pad(plane[..., :-1, :], (0, missing)) for plane in (x.real, x.imag))
        real, imag = (plane.contiguous(memory_format=torch.channels_last) for plane in planes)
        return real, imag
