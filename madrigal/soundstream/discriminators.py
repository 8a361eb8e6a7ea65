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

from madrigal.engine.recipe import known_keywords
from madrigal.errors import UserError
from madrigal.layers.complex_activations import ModReLU
from madrigal.layers.complex_convolutions import Complex, ComplexConv2d
from madrigal.layers.spectra import stft
from madrigal.soundstream.objective import ObjectiveConfig

Judgement = tuple[Tensor, list[Tensor]]


class WideConv1d(nn.Conv1d):
    """A convolution of many channels over few steps, as one matrix product: that leaves its large kernel in place."""

    def forward(self, x: Tensor) -> Tensor:
        size = self.kernel_size[0]
        steps = F.pad(x, (size // 2, size // 2)).unfold(2, size, 1)
        return F.linear(steps.transpose(1, 2).flatten(2), self.weight.flatten(1), self.bias).transpose(1, 2)


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
        self.last = WideConv1d(sizes[-1], sizes[-1], 5)
        self.to_logits = nn.Conv1d(sizes[-1], 1, 3, padding=1)

    def forward(self, wave: Tensor) -> Judgement:
        x = self.first(self.downsample(wave))
        features = []
        for conv in self.strided:
            x = F.leaky_relu(conv(x), 0.1)
            features.append(x)
        return self.to_logits(F.leaky_relu(self.last(x), 0.1)), features


class ComplexResidualUnit(nn.Module):
    """3x3 convolution around which the input is added, then a strided one; `stride` is (frequency, time)."""

    def __init__(self, in_channels: int, out_channels: int, stride: tuple[int, int]) -> None:
        super().__init__()
        kernel = (stride[0] + 2, stride[1] + 2)
        self.conv = ComplexConv2d(in_channels, in_channels, (3, 3), padding=(1, 1))
        self.activation = ModReLU()
        self.down = ComplexConv2d(in_channels, out_channels, kernel, stride=stride, padding=(1, 1))

    def forward(self, x: Complex, convolved: Complex | None = None) -> Complex:
        """`convolved` is what the first convolution makes of `x`, where that is already known."""
        convolved = self.conv(x) if convolved is None else convolved
        return self.down(self.activation(x, convolved))


class ComplexSTFTDiscriminator(nn.Module):
    """Complex convolutions over the STFT, until one band is left.

    [batch, input_channels, samples] -> logits [batch, 1 (2 without `logits_abs`), 1, time]. `strides` are those of
    (time, frequency) of each unit. The window is `n_fft` long and hops by a quarter unless told otherwise.
    """

    def __init__(
        self,
        *,
        input_channels: int = 1,
        channels: int = 32,
        strides: tuple[tuple[int, int], ...] = ((1, 2), (2, 2), (1, 2), (2, 2), (1, 2), (2, 2)),
        chan_mults: tuple[int, ...] = (1, 2, 4, 4, 8, 8),
        n_fft: int = 1024,
        hop_length: int | None = None,
        win_length: int | None = None,
        stft_normalized: bool = False,
        logits_abs: bool = True,
    ) -> None:
        super().__init__()
        self.n_fft, self.hop_length, self.win_length = n_fft, hop_length, win_length
        self.stft_normalized, self.logits_abs = stft_normalized, logits_abs
        self.time_stride = prod(time for time, _ in strides)
        bands, rest = divmod(n_fft // 2, prod(frequency for _, frequency in strides))
        if rest or not bands:
            raise UserError(
                f"complex_stft_discr_kwargs: the strides {strides} do not divide the {n_fft // 2} bands of "
                f"n_fft={n_fft}; choose a power of two."
            )
        sizes = [channels, *(channels * mult for mult in chan_mults)]
        self.first = ComplexConv2d(input_channels, channels, (7, 7), padding=(3, 3))
        self.head, *units = (
            ComplexResidualUnit(size_in, size_out, (frequency, time))
            for (size_in, size_out), (time, frequency) in zip(pairwise(sizes), strides, strict=True)
        )
        self.units = nn.ModuleList(units)
        self.to_logits = ComplexConv2d(sizes[-1], 1, (bands, 1))

    def forward(self, wave: Tensor) -> Judgement:
        spectrum = self._spectrum(wave)
        x = self.first(spectrum)
        features = [*x]
        # Nothing bends the signal between the first two convolutions, and the spectrum has but one channel.
        x = self.head(x, self.head.conv.after(self.first, spectrum))
        features.extend(x)
        for unit in self.units:
            x = unit(x)
            features.extend(x)
        real, imag = self.to_logits(x)
        if self.logits_abs:
            return torch.sqrt(real * real + imag * imag + 1e-8), features
        return torch.cat((real, imag), dim=1), features

    def _spectrum(self, wave: Tensor) -> Complex:
        """All bands but the highest, so that they can be halved, and as many frames as the strides divide."""
        x = stft(wave, self.n_fft, hop=self.hop_length, win_length=self.win_length, normalized=self.stft_normalized)
        missing = -x.shape[-1] % self.time_stride
        planes = (F.pad(plane[..., :-1, :], (0, missing)) for plane in (x.real, x.imag))
        real, imag = (plane.contiguous(memory_format=torch.channels_last) for plane in planes)
        return real, imag


class SpectrogramDiscriminator(nn.Module):
    """A light one: real convolutions over the compressed complex STFT of one resolution.

    [batch, input_channels, samples] -> logits [batch, 1, bands, frames].
    """

    def __init__(self, n_fft: int, *, input_channels: int = 1, channels: int = 32) -> None:
        super().__init__()
        self.n_fft = n_fft
        sizes = [2 * input_channels, channels, 2 * channels, 2 * channels, 2 * channels]
        strides = [(4, 1), (2, 1), (2, 2), (2, 2)]
        self.convs = nn.ModuleList(
            nn.Conv2d(size_in, size_out, (2 * stride[0] + 1, 3), stride=stride, padding=(stride[0], 1))
            for (size_in, size_out), stride in zip(pairwise(sizes), strides, strict=True)
        )
        self.to_logits = nn.Conv2d(sizes[-1], 1, 3, padding=1)

    def forward(self, wave: Tensor) -> Judgement:
        spectrum = stft(wave, self.n_fft)
        # Speech spans 60 dB: without compression only its vowels would be judged.
        square = spectrum.real.square() + spectrum.imag.square() + 1e-8
        scale = square**-0.35
        x = torch.cat((spectrum.real * scale, spectrum.imag * scale), dim=1)
        x = x.contiguous(memory_format=torch.channels_last)
        features = []
        for conv in self.convs:
            x = F.leaky_relu(conv(x), 0.1)
            features.append(x)
        return self.to_logits(x), features


class GuestDiscriminator(nn.Module):
    """A user's own module, asked for its features if it gives them only on request.

    It may return logits and features in complex numbers; they are taken as pairs of real ones.
    """

    def __init__(self, guest: nn.Module) -> None:
        super().__init__()
        self.guest = guest
        wanted = "return_intermediates"
        self.options: dict[str, Any] = {wanted: True} if wanted in inspect.signature(guest.forward).parameters else {}

    def forward(self, wave: Tensor) -> Judgement:
        logits, features = self.guest(wave, **self.options)
        return _as_real(logits), [_as_real(feature) for feature in features]


def _as_real(x: Tensor) -> Tensor:
    return torch.cat((x.real, x.imag), dim=1) if x.is_complex() else x


def build_discriminators(
    config: ObjectiveConfig, channels: int = 1, stft_discriminator: nn.Module | None = None
) -> nn.ModuleDict:
    """All of them by name: `scale_…` by its downsampling, `stft`, `spectrogram_…` by its n_fft."""
    named: dict[str, nn.Module] = {}
    factors: tuple[int, ...] = ()
    reached = 1
    for scale in config.discr_multi_scales:
        target = round(1 / scale)
        # Each scale continues from the one before, as far as it can.
        factors, reached = ((*factors, target // reached) if target % reached == 0 else (target,)), target
        factors = tuple(factor for factor in factors if factor > 1)
        named[f"scale_{target}"] = MultiScaleDiscriminator(input_channels=channels, factors=factors)
    if stft_discriminator is not None:
        named["stft"] = GuestDiscriminator(stft_discriminator)
    elif config.use_complex_stft_discr:
        more = known_keywords(ComplexSTFTDiscriminator, config.complex_stft_discr_kwargs, "complex_stft_discr_kwargs")
        named["stft"] = ComplexSTFTDiscriminator(
            **{
                "input_channels": channels,
                "stft_normalized": config.stft_normalized,
                "logits_abs": config.complex_stft_discr_logits_abs,
                **more,
            }
        )
    for n_fft in config.discr_spectrogram_n_ffts:
        named[f"spectrogram_{n_fft}"] = SpectrogramDiscriminator(
            n_fft, input_channels=channels, channels=config.discr_spectrogram_channels
        )
    return nn.ModuleDict(named)
