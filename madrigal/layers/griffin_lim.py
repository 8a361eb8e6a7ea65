"""Sound from log-mels without anything learned (Griffin and Lim 1984; with momentum, Perraudin et al. 2013).

The floor for every vocoder, and the start of ours: phases that agree from frame to frame are hard for a network that
sees only a few frames, and easy for an iteration.
"""

import torch
from torch import Tensor, nn

from madrigal.layers.hop_stft import hop_stft, inverse_hop_stft
from madrigal.layers.spectra import mel_filterbank

MOMENTUM = 0.99
PERIOD = 509
"""Frames after which the first guess of the phases comes again."""


class GriffinLim(nn.Module):
    """Log-mels [batch, frames, n_mels] -> waves [batch, frames * hop].

    The first guess of a frame's phases follows from its number, counted from `start`: the same frames always sound the
    same, and a piece of them as it sounds in the whole, but for `reach` frames at its ends.
    """

    def __init__(self, sample_rate: int, *, hop: int, n_fft: int, n_mels: int, iterations: int = 32) -> None:
        super().__init__()
        self.n_fft, self.hop, self.iterations = n_fft, hop, iterations
        filters = mel_filterbank(n_mels, n_fft, sample_rate)
        angles = torch.rand(PERIOD, n_fft // 2 + 1, generator=torch.Generator().manual_seed(0)) * 2 * torch.pi
        self.filters: Tensor
        self.guess: Tensor
        self.register_buffer("filters", filters.clone(), persistent=False)
        # Two real planes: a module that is moved to bfloat16 has no complex numbers.
        self.register_buffer("guess", torch.stack((angles.cos(), angles.sin()), dim=-1), persistent=False)

    @property
    def reach(self) -> int:
        """Frames on each side that a frame's sound depends on."""
        return (self.iterations + 1) * ((self.n_fft - 1) // self.hop)

    @torch.no_grad()
    def forward(self, log_mels: Tensor, start: int = 0) -> Tensor:
        return inverse_hop_stft(self.spectrum(log_mels, start), self.n_fft, self.hop)

    @torch.no_grad()
    def spectrum(self, log_mels: Tensor, start: int = 0) -> Tensor:
        """Complex [batch, frames, bins]: what `forward` makes sound of."""
        with torch.autocast(log_mels.device.type, enabled=False):
            size = self.magnitudes(log_mels.float().exp())
            numbers = torch.arange(start, start + size.shape[1], device=size.device) % PERIOD
            phase = torch.view_as_complex(self.guess.float()[numbers]).expand(size.shape)
            before = torch.zeros_like(phase)
            for _ in range(self.iterations):
                heard = hop_stft(inverse_hop_stft(size * phase, self.n_fft, self.hop), self.n_fft, self.hop)
                phase = heard + MOMENTUM * (heard - before)
                phase = phase / phase.abs().clamp(min=1e-8)
                before = heard
            return size * phase

    def magnitudes(self, mels: Tensor) -> Tensor:
        """Mels [batch, frames, n_mels] -> magnitudes [batch, frames, bins] that have them, none below zero.

        Multiplicative steps (Lee and Seung 1999) from an even spread of each band over its bins.
        """
        size = mels @ (self.filters / self.filters.square().sum(1, keepdim=True))
        gain = mels @ self.filters
        for _ in range(20):
            size = size * gain / (size @ self.filters.T @ self.filters).clamp(min=1e-8)
        return size
