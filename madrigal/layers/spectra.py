"""Short-time Fourier transforms: for losses over whole clips, and causal ones that a codec can stream.

The two causal transforms use the same frames. With a hop of h samples, frame t covers the n_fft samples that end at
(t + 1) * h, so it is known as soon as its own h samples have arrived. Going back, the sample s needs every frame that
covers it, the last of which ends n_fft - h samples later: that is the head's look-ahead, and its only delay.
"""

from functools import lru_cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madrigal.layers.convolutions import StreamCache

MelScale = Literal["slaney", "htk"]
WindowKind = Literal["hann", "sine"]


@lru_cache(maxsize=64)
def window(kind: WindowKind, size: int, device: torch.device | str = "cpu") -> Tensor:
    """Window [size]: "hann" (periodic), or "sine", whose square adds up to one at half overlap and is zero nowhere."""
    if kind == "hann":
        return torch.hann_window(size, device=device)
    return torch.sin(torch.pi * (torch.arange(size, device=device) + 0.5) / size)


def stft(
    wave: Tensor, n_fft: int, *, hop: int | None = None, win_length: int | None = None, normalized: bool = False
) -> Tensor:
    """Centred Hann STFT of [..., samples] -> complex [..., bins, 1 + samples // hop].

    The hop is a quarter of the window unless given. A clip that is shorter than half a window is extended by silence,
    since reflection needs more samples than it reflects.
    """
    win_length = win_length or n_fft
    hop = hop or max(win_length // 4, 1)
    shape, wave = wave.shape, wave.reshape(-1, wave.shape[-1]).float()
    mode = "reflect" if wave.shape[-1] > n_fft // 2 else "constant"
    spectrum = torch.stft(
        wave,
        n_fft,
        hop,
        win_length,
        window("hann", win_length, wave.device),
        pad_mode=mode,
        normalized=normalized,
        return_complex=True,
    )
    return spectrum.reshape(*shape[:-1], *spectrum.shape[-2:])


def hz_to_mel(hz: Tensor, scale: MelScale = "slaney") -> Tensor:
    """Slaney's scale is linear up to 1 kHz (15 mel) and logarithmic above; HTK's is logarithmic throughout."""
    if scale == "htk":
        return 2595.0 * torch.log10(1.0 + hz / 700.0)
    linear = hz * 3.0 / 200.0
    return torch.where(hz < 1000.0, linear, 15.0 + 27.0 * torch.log(hz.clamp(min=1e-3) / 1000.0) / _LOG_6_4)


def mel_to_hz(mel: Tensor, scale: MelScale = "slaney") -> Tensor:
    if scale == "htk":
        return 700.0 * (10.0 ** (mel / 2595.0) - 1.0)
    return torch.where(mel < 15.0, mel * 200.0 / 3.0, 1000.0 * torch.exp((mel - 15.0) * _LOG_6_4 / 27.0))


_LOG_6_4 = 1.8562979903656263


@lru_cache(maxsize=64)
def mel_filterbank(
    n_mels: int,
    n_fft: int,
    sample_rate: int,
    *,
    f_min: float = 0.0,
    f_max: float | None = None,
    scale: MelScale = "slaney",
    equal_area: bool = True,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Triangles [n_mels, bins] over the bins of an STFT, each of area one in Hz when `equal_area`.

    Triangles narrower than the distance of two bins would catch none of them and leave a band that is always zero, so
    each is widened to reach its nearest bins.
    """
    bins = torch.linspace(0, sample_rate / 2, n_fft // 2 + 1, dtype=torch.float64)
    ends = torch.tensor([f_min, f_max or sample_rate / 2], dtype=torch.float64)
    low_mel, high_mel = hz_to_mel(ends, scale)
    corners = mel_to_hz(torch.linspace(float(low_mel), float(high_mel), n_mels + 2, dtype=torch.float64), scale)
    low, centre, high = corners[:-2, None], corners[1:-1, None], corners[2:, None]
    spacing = sample_rate / n_fft
    rising = (bins - low) / (centre - low).clamp(min=spacing)
    rising = torch.where(centre - low < spacing, 1 - (centre - bins) / spacing, rising)
    falling = torch.where(high - centre < spacing, 1 - (bins - centre) / spacing, (high - bins) / (high - centre))
    weights = torch.minimum(rising, falling).clamp(min=0)
    if equal_area:
        weights = weights * 2.0 / (high - low)
    return weights.float().to(device)


class MelSpectrogram(nn.Module):
    """Mel spectrogram [..., samples] -> [..., n_mels, frames], of magnitudes (power 1) or energies (power 2)."""

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
        self.n_fft, self.win_length, self.normalized, self.power = n_fft, win_length or n_fft, normalized, power
        self.hop = hop or max(self.win_length // 4, 1)
        filters = mel_filterbank(n_mels, n_fft, sample_rate, scale=scale, equal_area=equal_area)
        self.filters: Tensor
        self.register_buffer("filters", filters, persistent=False)

    def forward(self, wave: Tensor) -> Tensor:
        spectrum = stft(wave, self.n_fft, hop=self.hop, win_length=self.win_length, normalized=self.normalized)
        magnitude = spectrum.abs() if self.power == 1.0 else spectrum.abs().pow(self.power)
        # The transform leaves frames before bins in memory; multiplied in that order nothing is copied.
        with torch.autocast(wave.device.type, enabled=False):
            return (magnitude.transpose(-1, -2) @ self.filters.T).transpose(-1, -2)


def log_mel(mel: Tensor, floor: float = 1e-5) -> Tensor:
    """Natural logarithm of a mel spectrogram, with everything below `floor` taken as silence."""
    return mel.clamp(min=floor).log()


class CausalSTFT(nn.Module):
    """[batch, channels, frames * hop] -> complex [batch, channels, frames, n_fft // 2 + 1], streaming."""

    def __init__(self, n_fft: int, hop: int) -> None:
        super().__init__()
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
            return torch.zeros(*wave.shape[:-1], 0, self.n_fft // 2 + 1, dtype=torch.complex64, device=wave.device)
        frames = wave.unfold(-1, self.n_fft, self.hop) * window("sine", self.n_fft, wave.device)
        return torch.fft.rfft(frames)


class CausalInverseSTFT(nn.Module):
    """Complex [batch, channels, frames, n_fft // 2 + 1] -> [batch, channels, samples], the inverse of `CausalSTFT`.

    Overlapping frames are added under the window and divided by the sum of its squares. The output is time-aligned with
    the frames: whole, it drops the `latency` samples before time zero and ends where the last frame begins to stand
    alone, so `frames * hop - latency` samples; callers append `extra_frames` to complete the rest. With a cache, a
    chunk gives the samples that it completes.
    """

    def __init__(self, n_fft: int, hop: int) -> None:
        super().__init__()
        if n_fft < hop:
            raise ValueError(f"Frames of {n_fft} samples every {hop} samples would leave holes.")
        self.n_fft, self.hop = n_fft, hop
        self.latency = n_fft - hop
        self.extra_frames = -(-self.latency // hop)
        squares = F.pad(window("sine", n_fft) ** 2, (0, self.extra_frames * hop - self.latency)).view(-1, hop).sum(0)
        envelope = squares.repeat(self.extra_frames + 1)[:n_fft]
        self.synthesis: Tensor
        self.register_buffer("synthesis", window("sine", n_fft) / envelope, persistent=False)

    def forward(self, spectrum: Tensor, cache: StreamCache | None = None) -> Tensor:
        frames = torch.fft.irfft(spectrum, n=self.n_fft) * self.synthesis
        wave = self._overlap_add(frames)
        size = spectrum.shape[-2] * self.hop
        tail, drop = (None, self.latency) if cache is None else cache.get(self, (None, self.latency))
        if tail is not None:
            wave = torch.cat((wave[..., : self.latency] + tail, wave[..., self.latency :]), dim=-1)
        if cache is not None:
            cache[self] = wave[..., size:].clone(), max(drop - size, 0)
        return wave[..., min(drop, size) : size]

    def _overlap_add(self, frames: Tensor) -> Tensor:
        """[..., frames, n_fft] -> [..., frames * hop + latency]."""
        rows = self.extra_frames + 1
        count = frames.shape[-2]
        pieces = F.pad(frames, (0, rows * self.hop - self.n_fft)).unflatten(-1, (rows, self.hop))
        # Each row of pieces is the signal shifted by a hop: as many additions as frames overlap.
        total = sum(F.pad(pieces[..., row, :], (0, 0, row, rows - 1 - row)) for row in range(rows))
        assert isinstance(total, Tensor)
        return total.flatten(-2)[..., : count * self.hop + self.latency]
