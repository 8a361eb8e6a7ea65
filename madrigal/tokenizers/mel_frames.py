"""Log-mel frames on a grid: frame t belongs to the samples from t * hop on, and silence lies around a recording."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madrigal.layers.spectra import log_mel, mel_filterbank, window


class MelFrames(nn.Module):
    """Waves [batch, samples], a multiple of `hop` -> log-mels [batch, samples / hop, n_mels].

    The window of `win_length` samples (those of `n_fft` unless given) lies centred on the hop that a frame belongs to.
    Bands are sums of magnitudes raised to `power`.
    """

    def __init__(
        self,
        sample_rate: int,
        *,
        hop: int,
        n_fft: int,
        n_mels: int,
        win_length: int | None = None,
        power: float = 1.0,
    ) -> None:
        super().__init__()
        self.hop, self.n_fft, self.win_length, self.power = hop, n_fft, win_length or n_fft, power
        self.filters: Tensor
        self.register_buffer("filters", mel_filterbank(n_mels, n_fft, sample_rate).T.clone(), persistent=False)

    def forward(self, wave: Tensor) -> Tensor:
        with torch.autocast(wave.device.type, enabled=False):
            around = self.win_length - self.hop
            padded = F.pad(wave.float(), (around // 2, around - around // 2))
            frames = padded.unfold(-1, self.win_length, self.hop) * window("hann", self.win_length, wave.device)
            magnitude = torch.fft.rfft(frames, n=self.n_fft).abs()
            return log_mel((magnitude if self.power == 1.0 else magnitude**self.power) @ self.filters)


class UtteranceNorm(nn.Module):
    """Takes the mean of an utterance from frames [batch, time, dim], and the deviation of the whole corpus.

    A mean over few frames says more about the sounds in them than about voice and microphone, so it is drawn towards
    the corpus' own, as if `prior` frames more had been heard.
    """

    def __init__(self, dim: int, *, prior: float) -> None:
        super().__init__()
        self.prior = prior
        self.mean: Tensor
        self.std: Tensor
        self.register_buffer("mean", torch.zeros(dim))
        self.register_buffer("std", torch.ones(dim))

    def forward(self, frames: Tensor, mask: Tensor | None = None) -> Tensor:
        """`mask` [batch, time] says which frames are real; the others become zero."""
        if mask is None:
            total, count = frames.sum(1), torch.full((len(frames), 1), float(frames.shape[1]), device=frames.device)
        else:
            total, count = (frames * mask[..., None]).sum(1), mask.sum(1, keepdim=True).float()
        mean = (total + self.prior * self.mean) / (count + self.prior)
        frames = (frames - mean[:, None]) / self.std
        return frames if mask is None else frames * mask[..., None]

    @torch.no_grad()
    def fit(self, frames: Tensor) -> None:
        """Take mean and deviation [dim] from frames [n, dim]."""
        self.mean.copy_(frames.mean(0))
        self.std.copy_(frames.std(0).clamp(min=1e-3))
