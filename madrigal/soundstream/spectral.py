"""Encoder and decoder that work on STFT frames: several times faster on a CPU than strided convolutions.

One frame of the codec is one frame of the transform, and the blocks between are ConvNeXt's.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madrigal.layers.convnext import ConvNeXt
from madrigal.layers.convolutions import StreamCache
from madrigal.layers.spectra import CausalInverseSTFT, CausalSTFT, mel_filterbank
from madrigal.soundstream.config import SoundStreamConfig

FLOOR = 1e-4
"""Magnitude, for samples in [-1, 1], below which a bin is silent."""

LEVEL_OFFSET, LEVEL_RANGE = 2.0, 4.0
"""Bring the logarithm of a magnitude of speech to about zero mean and unit variance."""


def backbone(config: SoundStreamConfig) -> ConvNeXt:
    """The causal blocks of an encoder or a decoder."""
    dim = config.spectral_dim
    hidden = round(dim * config.spectral_ff_mult)
    return ConvNeXt(dim, depth=config.spectral_depth, hidden=hidden, kernel_size=config.spectral_kernel_size)


def spectral_features(spectrum: Tensor) -> Tensor:
    """Complex [batch, channels, frames, bins] -> [batch, frames, channels * 3 * bins]: real parts, imaginary, levels.

    Real and imaginary parts are relative to the frame's own level, so that the phase of quiet speech is as plain as
    that of loud speech; the logarithms tell the levels.
    """
    magnitude = spectrum.abs().clamp(min=FLOOR)
    frame = magnitude.square().mean((1, 3), keepdim=True).sqrt()
    real, imaginary = torch.view_as_real(spectrum / frame).unbind(-1)
    level = (magnitude.log() + LEVEL_OFFSET) / LEVEL_RANGE
    return torch.stack((real, imaginary, level), dim=2).movedim(3, 1).transpose(2, 3).flatten(2)


class SpectralEncoder(nn.Module):
    """[batch, channels, frames * hop] -> [batch, codebook_dim, frames]; frame t sees samples before (t + 1) * hop."""

    def __init__(self, config: SoundStreamConfig) -> None:
        super().__init__()
        self.stft = CausalSTFT(config.n_fft, config.downsample_factor)
        bins = config.n_fft // 2 + 1
        self.embed = nn.Linear(3 * bins * config.input_channels, config.spectral_dim)
        self.backbone = backbone(config)
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
        self.backbone = backbone(config)
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


@torch.no_grad()
def start_as_vocoder(encoder: SpectralEncoder, decoder: SpectralDecoder, sample_rate: int) -> None:
    """Let the codec begin as one made by hand: the phase of the low bins and the levels of mel bands, straight through.

    From a random start it would first learn to whisper, which has a low loss and noise for a phase, and be long in
    leaving that. Three eighths of the latents each carry real and imaginary parts, the rest carry the levels.
    """
    channels, bins = decoder.channels, decoder.head.out_features // (3 * decoder.channels)
    seats = min(encoder.project.weight.shape) // channels
    phases = min(3 * seats // 8, bins - 1)
    levels = seats - 2 * phases
    bands = mel_filterbank(levels, 2 * (bins - 1), sample_rate, equal_area=False) + 1e-9
    into, out = encoder.embed.weight.mul_(0.3), decoder.head.weight.mul_(0.3)
    into[: seats * channels] = 0.0
    for linear in (encoder.project, decoder.project):
        linear.weight.mul_(0.3)[: seats * channels] = 0.0
        linear.weight.diagonal()[: seats * channels] = 1.0
    low = torch.arange(phases)
    for channel in range(channels):
        first = channel * seats
        for part in range(2):  # real, imaginary; bin 0 has no phase
            into[first + part * phases + low, (part * channels + channel) * bins + 1 + low] = 0.5
            row = ((1 + part) * channels + channel) * bins + 1 + low
            out[row] = 0.0
            out[row, first + part * phases + low] = 1.0
        heard = slice(first + 2 * phases, first + seats)
        into[heard, (2 * channels + channel) * bins : (2 * channels + channel + 1) * bins] = bands / bands.sum(
            1, keepdim=True
        )
        rows = slice(channel * bins, (channel + 1) * bins)
        out[rows, : seats * channels] = 0.0
        out[rows, heard] = LEVEL_RANGE * (bands / bands.sum(0, keepdim=True)).T
    for linear in (encoder.embed, encoder.project, decoder.project, decoder.head):
        linear.bias.zero_()
    decoder.head.bias[: channels * bins] = -LEVEL_OFFSET
