"""A Fourier transform whose frame i lies centred on its own hop, the samples from i * hop to (i + 1) * hop.

There are as many frames as whole hops, and going back gives exactly frames * hop samples: time is cut the same
way for sound, for frames and for whatever is said about them. Silence lies around a recording.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from madrigal.layers.spectra import overlap_add, window


def margins(n_fft: int, hop: int) -> tuple[int, int]:
    """Samples of a window before and behind the hop that it is centred on."""
    if n_fft < hop:
        raise ValueError(f"Windows of {n_fft} samples every {hop} samples would skip some.")
    before = (n_fft - hop) // 2
    return before, n_fft - hop - before


def hop_stft(wave: Tensor, n_fft: int, hop: int) -> Tensor:
    """Hann windows of [..., samples] -> complex [..., samples // hop, bins]."""
    count = wave.shape[-1] // hop
    if not count:
        return wave.new_zeros(*wave.shape[:-1], 0, n_fft // 2 + 1, dtype=torch.complex64)
    frames = F.pad(wave.float(), margins(n_fft, hop)).unfold(-1, n_fft, hop)[..., :count, :]
    return torch.fft.rfft(frames * window("hann", n_fft, wave.device))


def inverse_hop_stft(spectrum: Tensor, n_fft: int, hop: int) -> Tensor:
    """Complex [..., frames, bins] -> [..., frames * hop]; undoes `hop_stft` where windows overlap by a half or more.

    Frames are added under their window and divided by the sum of its squares, which is smaller at both ends, where
    the frames of the silence around are not there.
    """
    count = spectrum.shape[-2]
    if not count:
        return spectrum.real.new_zeros(*spectrum.shape[:-2], 0)
    shape = window("hann", n_fft, spectrum.device)
    frames = torch.fft.irfft(spectrum, n=n_fft) * shape
    before, _ = margins(n_fft, hop)
    kept = slice(before, before + count * hop)
    weight = overlap_add(shape.square().expand(count, n_fft), hop)[kept]
    return overlap_add(frames, hop)[..., kept] / weight.clamp(min=1e-3)
