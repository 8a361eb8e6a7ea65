"""Short-time Fourier transforms: over whole clips for losses, and causal ones that a codec can stream.

Both causal transforms use the same frames. With a hop of h samples, frame t covers the n_fft samples that
end at (t + 1) * h, so it is known as soon as its own h samples have arrived. Going back, a sample needs every
frame that covers it, the last of which ends n_fft - h samples later: the head's look-ahead and only delay.
"""

import math
from functools import lru_cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madrigal.layers.convolutions import StreamCache

MelScale = Literal["slaney", "htk"]
WindowKind = Literal["hann", "sine"]


@lru_cache(maxsize=64)
# What is first made while generating serves training later, so it must not be an inference tensor.
@torch.inference_mode(False)
def window(kind: WindowKind, size: int, device: torch.device | str = "cpu") -> Tensor:
    """Window [size]: "hann" (periodic), or "sine", which is zero nowhere and whose square is Hann's."""
    if kind == "hann":
        return torch.hann_window(size, device=device)
    return torch.sin(torch.pi * (torch.arange(size, device=device) + 0.5) / size)


def stft(
    wave: Tensor,
    n_fft: int,
    *,
    hop: int | None = None,
    win_length: int | None = None,
    normalized: bool = False,
) -> Tensor:
    """Centred Hann STFT of [..., samples] -> complex [..., bins, 1 + samples // hop].

    The hop is a quarter of the window unless given. A clip shorter than half a window is extended by silence,
    since reflection needs more samples than it adds.
    """
    win_length = win_length or n_fft
    rows = wave.reshape(-1, wave.shape[-1]).float()
    spectrum = torch.stft(
        rows,
        n_fft,
        hop or max(win_length // 4, 1),
        win_length,
        window("hann", win_length, wave.device),
        pad_mode="reflect" if rows.shape[-1] > n_fft // 2 else "constant",
        normalized=normalized,
        return_complex=True,
    )
    return spectrum.reshape(*wave.shape[:-1], *spectrum.shape[-2:])


def hz_to_mel(hz: Tensor, scale: MelScale = "slaney") -> Tensor:
    """Slaney's scale is linear up to 1 kHz (15 mel), then logarithmic; HTK's bends everywhere."""
    if scale == "htk":
        return 2595.0 * torch.log10(1.0 + hz / 700.0)
    above = 15.0 + 27.0 * torch.log(hz.clamp(min=1e-3) / 1000.0) / math.log(6.4)
    return torch.where(hz < 1000.0, hz * 3.0 / 200.0, above)


def mel_to_hz(mel: Tensor, scale: MelScale = "slaney") -> Tensor:
    """Inverse of `hz_to_mel`."""
    if scale == "htk":
        return 700.0 * (10.0 ** (mel / 2595.0) - 1.0)
    above = 1000.0 * torch.exp((mel - 15.0) * math.log(6.4) / 27.0)
    return torch.where(mel < 15.0, mel * 200.0 / 3.0, above)


@lru_cache(maxsize=64)
@torch.inference_mode(False)
def mel_filterbank(
    n_mels: int,
    n_fft: int,
    sample_rate: int,
    *,
    f_min: float = 0.0,
    f_max: float | None = None,
    scale: MelScale = "slaney",
    equal_area: bool = True,
) -> Tensor:
    """Triangles [n_mels, bins] over the bins of an STFT; `equal_area` divides each by half its width in Hz.

    A triangle narrower than the distance of two bins may catch none of them and leave a band that is always
    zero, so no side of a triangle is narrower than that.
    """
    bins = torch.linspace(0, sample_rate / 2, n_fft // 2 + 1, dtype=torch.float64)
    ends = torch.tensor([f_min, f_max or sample_rate / 2], dtype=torch.float64)
    first, last = hz_to_mel(ends, scale).tolist()
    corners = mel_to_hz(torch.linspace(first, last, n_mels + 2, dtype=torch.float64), scale)
    low, centre, high = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    narrowest = sample_rate / n_fft
    rising = 1 - (centre - bins) / (centre - low).clamp(min=narrowest)
    falling = 1 - (bins - centre) / (high - centre).clamp(min=narrowest)
    weights = torch.minimum(rising, falling).clamp(min=0)
    if equal_area:
        weights = weights * 2.0 / (high - low)
    return weights.float()


class MelSpectrogram(nn.Module):
    """Mel spectrogram, [..., samples] -> [..., n_mels, frames], of magnitudes raised to `power`."""

    def __init__(
        self,
        sample_rate: int,
        n_fft: int,
        *,
        hop: int | None = None,
        win_length: int | None = None,
        n_mels: int = 64,
        power: float = 1.0,
        scale: MelScale = "slaney",
        equal_area: bool = True,
        normalized: bool = False,
    ) -> None:
        super().__init__()
        self.n_fft, self.win_length = n_fft, win_length or n_fft
        self.hop = hop or max(self.win_length // 4, 1)
        self.power, self.normalized = power, normalized
        filters = mel_filterbank(n_mels, n_fft, sample_rate, scale=scale, equal_area=equal_area)
        self.filters: Tensor
        self.register_buffer("filters", filters.clone(), persistent=False)

    def forward(self, wave: Tensor) -> Tensor:
        with torch.autocast(wave.device.type, enabled=False):
            spectrum = stft(wave, self.n_fft, hop=self.hop, win_length=self.win_length, normalized=self.normalized)
            magnitude = spectrum.abs() if self.power == 1.0 else spectrum.abs().pow(self.power)
            # The transform leaves bins next to each other in memory; in this order nothing is copied.
            return (magnitude.transpose(-1, -2) @ self.filters.T).transpose(-1, -2)


def log_mel(mel: Tensor, floor: float = 1e-5) -> Tensor:
    """Natural logarithm of a mel spectrogram, with everything below `floor` taken as silence."""
    return mel.clamp(min=floor).log()


class CausalSTFT(nn.Module):
    """[batch, channels, frames * hop] -> complex [batch, channels, frames, bins], in chunks if need be."""

    def __init__(self, n_fft: int, hop: int) -> None:
        super().__init__()
        if n_fft < hop:
            raise ValueError(f"Windows of {n_fft} samples every {hop} samples would skip some.")
        self.n_fft, self.hop, self.context = n_fft, hop, n_fft - hop

    def forward(self, wave: Tensor, cache: StreamCache | None = None) -> Tensor:
        if wave.shape[-1] % self.hop:
            raise ValueError(f"{wave.shape[-1]} samples are not a multiple of the hop of {self.hop}.")
        past = None if cache is None else cache.get(self)
        wave = wave.float()
        wave = F.pad(wave, (self.context, 0)) if past is None else torch.cat((past, wave), dim=-1)
        if cache is not None:
            cache[self] = wave[..., wave.shape[-1] - self.context :].clone()
        if wave.shape[-1] < self.n_fft:
            return wave.new_zeros(*wave.shape[:-1], 0, self.n_fft // 2 + 1, dtype=torch.complex64)
        return torch.fft.rfft(wave.unfold(-1, self.n_fft, self.hop) * window("sine", self.n_fft, wave.device))


class CausalInverseSTFT(nn.Module):
    """Complex [batch, channels, frames, bins] -> [batch, channels, frames * hop - latency], undoing `CausalSTFT`.

    Frames are added where they overlap, under the window and divided by the sum of its squares. The output
    begins at time zero and holds the samples whose frames are all there; `extra_frames` more frames complete
    the last `latency` samples. With a cache, a chunk gives the samples that it completes.
    """

    def __init__(self, n_fft: int, hop: int) -> None:
        super().__init__()
        if n_fft < hop:
            raise ValueError(f"Frames of {n_fft} samples every {hop} samples would leave holes.")
        self.n_fft, self.hop = n_fft, hop
        self.latency = n_fft - hop
        self.extra_frames = -(-self.latency // hop)
        squares = F.pad(window("sine", n_fft).square(), (0, -n_fft % hop)).view(-1, hop).sum(0)
        envelope = squares.repeat(self.extra_frames + 1)[:n_fft]
        self.synthesis: Tensor
        self.register_buffer("synthesis", window("sine", n_fft) / envelope, persistent=False)

    def forward(self, spectrum: Tensor, cache: StreamCache | None = None) -> Tensor:
        if not spectrum.shape[-2]:
            return spectrum.real.new_zeros(*spectrum.shape[:-2], 0)
        wave = overlap_add(torch.fft.irfft(spectrum, n=self.n_fft) * self.synthesis, self.hop)
        complete = spectrum.shape[-2] * self.hop
        # The first `latency` samples lie before time zero.
        tail, early = (None, self.latency) if cache is None else cache.get(self, (None, self.latency))
        if tail is not None:
            wave = torch.cat((wave[..., : self.latency] + tail, wave[..., self.latency :]), dim=-1)
        if cache is not None:
            cache[self] = wave[..., complete:].clone(), max(early - complete, 0)
        return wave[..., min(early, complete) : complete]


def overlap_add(frames: Tensor, hop: int) -> Tensor:
    """[..., frames, size] -> [..., (frames - 1) * hop + size], each frame a hop behind the one before it."""
    count, size = frames.shape[-2:]
    rows = -(-size // hop)
    pieces = F.pad(frames, (0, -size % hop)).unflatten(-1, (rows, hop))
    # Row r of every frame belongs r hops later: as many additions of whole signals as frames overlap.
    wave = F.pad(pieces[..., 0, :], (0, 0, 0, rows - 1))
    for row in range(1, rows):
        wave = wave + F.pad(pieces[..., row, :], (0, 0, row, rows - 1 - row))
    return wave.flatten(-2)[..., : (count - 1) * hop + size]
