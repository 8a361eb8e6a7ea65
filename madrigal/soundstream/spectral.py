"""Encoder and decoder that work on STFT frames: several times faster on a CPU than strided convolutions.

One frame of the codec is one frame of the transform, so all the depth is spent at the frame rate, in dense matrix
products. The blocks are ConvNeXt's: a depthwise convolution over time, a norm, and a feed-forward.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madrigal.layers.convolutions import StreamCache
from madrigal.layers.spectra import CausalInverseSTFT, CausalSTFT
from madrigal.soundstream.config import SoundStreamConfig

COMPRESSION = 0.3
"""Power of the magnitudes that the encoder sees: speech spans 60 dB, and quiet bins must count too."""

FLOOR = 1e-4
"""Magnitude, for samples in [-1, 1], below which a bin is silent."""


class DepthwiseCausalConv(nn.Module):
    """Each channel's own filter over the past `kernel_size` frames, [batch, frames, dim] -> the same."""

    def __init__(self, dim: int, kernel_size: int) -> None:
        super().__init__()
        self.context = kernel_size - 1
        self.weight = nn.Parameter(torch.empty(dim, 1, 1, kernel_size).uniform_(-1, 1) * kernel_size**-0.5)
        self.bias = nn.Parameter(torch.zeros(dim))

    def forward(self, x: Tensor, cache: StreamCache | None = None) -> Tensor:
        if not x.shape[1]:
            return x
        past = None if cache is None else cache.get(self)
        x = F.pad(x, (0, 0, self.context, 0)) if past is None else torch.cat((past, x), dim=1)
        if cache is not None:
            cache[self] = x[:, x.shape[1] - self.context :].clone()
        # Seen as a picture of height one, frames-by-channels is the channels-last layout, whose depthwise kernel is
        # twice as fast as conv1d's and needs no copy.
        picture = x.transpose(1, 2).unsqueeze(2)
        return F.conv2d(picture, self.weight, self.bias, groups=x.shape[-1]).squeeze(2).transpose(1, 2)


class ConvNeXtBlock(nn.Module):
    """Causal ConvNeXt block, [batch, frames, dim] -> the same."""

    def __init__(self, dim: int, hidden: int, kernel_size: int, depth: int) -> None:
        super().__init__()
        self.conv = DepthwiseCausalConv(dim, kernel_size)
        self.norm = nn.LayerNorm(dim)
        self.expand = nn.Linear(dim, hidden)
        self.contract = nn.Linear(hidden, dim)
        # The stack starts close to the identity, however deep it is.
        nn.init.trunc_normal_(self.expand.weight, std=dim**-0.5)
        nn.init.trunc_normal_(self.contract.weight, std=(2 * depth * hidden) ** -0.5)
        nn.init.zeros_(self.contract.bias)

    def forward(self, x: Tensor, cache: StreamCache | None = None) -> Tensor:
        # The convolution is bound by memory, where casting to bfloat16 and back costs more than it saves.
        with torch.autocast(x.device.type, enabled=False):
            hidden = self.norm(self.conv(x.float(), cache))
        return x + self.contract(F.gelu(self.expand(hidden)))


class Backbone(nn.Module):
    """`depth` ConvNeXt blocks between two norms, [batch, frames, dim] -> the same."""

    def __init__(self, config: SoundStreamConfig) -> None:
        super().__init__()
        dim, depth = config.spectral_dim, config.spectral_depth
        hidden = round(dim * config.spectral_ff_mult)
        self.norm_in = nn.LayerNorm(dim)
        self.blocks = nn.ModuleList(
            ConvNeXtBlock(dim, hidden, config.spectral_kernel_size, depth) for _ in range(depth)
        )
        self.norm_out = nn.LayerNorm(dim)

    def forward(self, x: Tensor, cache: StreamCache | None = None) -> Tensor:
        x = self.norm_in(x.float())
        for block in self.blocks:
            x = block(x, cache)
        return self.norm_out(x)


def spectral_features(spectrum: Tensor) -> Tensor:
    """Complex [batch, channels, frames, bins] -> [batch, frames, channels * 3 * bins].

    Real and imaginary part under a compressed magnitude, which tell the phase, and the logarithm, which tells the
    level of what is too quiet to show in the other two.
    """
    magnitude = spectrum.abs().clamp(min=FLOOR)
    parts = torch.view_as_real(spectrum * magnitude ** (COMPRESSION - 1)).unbind(-1)
    level = (magnitude.log() + 2.0) / 4.0
    return torch.stack((*parts, level), dim=2).movedim(3, 1).flatten(2)


class SpectralEncoder(nn.Module):
    """[batch, channels, frames * hop] -> [batch, codebook_dim, frames]; frame t sees samples before (t + 1) * hop."""

    def __init__(self, config: SoundStreamConfig) -> None:
        super().__init__()
        self.stft = CausalSTFT(config.n_fft, config.downsample_factor)
        bins = config.n_fft // 2 + 1
        self.embed = nn.Linear(3 * bins * config.input_channels, config.spectral_dim)
        self.backbone = Backbone(config)
        self.project = nn.Linear(config.spectral_dim, config.codebook_dim)

    def forward(self, wave: Tensor, cache: StreamCache | None = None) -> Tensor:
        features = spectral_features(self.stft(wave, cache))
        return self.project(self.backbone(self.embed(features), cache)).transpose(1, 2)


class SpectralDecoder(nn.Module):
    """[batch, codebook_dim, frames] -> [batch, channels, frames * hop].

    Sample s is complete when the frames that cover it are there, `latency` samples after s. Whole clips come out
    without that delay: the frames beyond the end, which their last samples need, are made from silence in the latents.
    With a cache, a chunk gives the samples that it completes, and `flush` the rest.
    """

    def __init__(self, config: SoundStreamConfig) -> None:
        super().__init__()
        self.channels = config.input_channels
        self.codebook_dim = config.codebook_dim
        self.istft = CausalInverseSTFT(config.n_fft, config.downsample_factor)
        self.latency = self.istft.latency
        self.project = nn.Linear(config.codebook_dim, config.spectral_dim)
        self.backbone = Backbone(config)
        self.head = nn.Linear(config.spectral_dim, 3 * self.channels * (config.n_fft // 2 + 1))

    def forward(self, latents: Tensor, cache: StreamCache | None = None) -> Tensor:
        if cache is None:
            latents = F.pad(latents, (0, self.istft.extra_frames))
        wave = self.istft(self.spectrum(latents, cache), cache)
        if cache is None:
            return wave[..., : (latents.shape[-1] - self.istft.extra_frames) * self.istft.hop]
        cache[self] = latents.shape[0], cache.get(self, (0, 0))[1] + latents.shape[-1]
        return wave

    def flush(self, cache: StreamCache) -> Tensor:
        """The samples that were still waiting for a frame: the stream ends here."""
        batch, frames = cache.get(self, (1, 0))
        waiting = min(self.latency, frames * self.istft.hop)
        silence = self.project.weight.new_zeros(batch, self.codebook_dim, self.istft.extra_frames)
        return self.istft(self.spectrum(silence, cache), cache)[..., :waiting]

    def spectrum(self, latents: Tensor, cache: StreamCache | None = None) -> Tensor:
        """Complex [batch, channels, frames, bins] from [batch, codebook_dim, frames].

        The phase is the direction of two numbers, not an angle: an angle has a seam where it turns round, and the
        encoder's real and imaginary parts would have to be bent into one.
        """
        hidden = self.backbone(self.project(latents.transpose(1, 2)), cache)
        level, real, imaginary = self.head(hidden).float().unflatten(-1, (3, self.channels, -1)).unbind(2)
        size = level.clamp(max=5.0).exp() * torch.rsqrt(real.square() + imaginary.square() + 1e-3)
        return torch.complex(size * real, size * imaginary).transpose(1, 2)
