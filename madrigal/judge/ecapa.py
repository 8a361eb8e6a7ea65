"""ECAPA-TDNN (Desplanques, Thienpondt and Demuynck, 2020) for listening only: whose voice is it, as 192 numbers.

Runs the public VoxCeleb weights of SpeechBrain, whose names for layers it therefore keeps, without SpeechBrain itself:
that library needs torchaudio, and nothing here does. Its embeddings agree with SpeechBrain's to five digits.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from madrigal.judge.signals import Wave
from madrigal.judge.spectra import hertz_to_mel, mel_to_hertz

RATE = 16_000
WINDOW, HOP, BANDS, DEPTH = 400, 160, 80, 80.0
SCALE = 8
DILATIONS = {"blocks.1": 2, "blocks.2": 3, "blocks.3": 4}


def log_mel(wave: Wave) -> npt.NDArray[np.float32]:
    """[samples] at 16 kHz -> levels in dB [frames, 80], without their mean over time."""
    window = 0.54 - 0.46 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    padded = np.pad(wave.astype(np.float64), WINDOW // 2)
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::HOP] * window
    power = np.abs(np.fft.rfft(frames)) ** 2
    edges = mel_to_hertz(np.linspace(0.0, float(hertz_to_mel(RATE / 2)), BANDS + 2))
    # These weights were trained with triangles as wide to the right as they are to the left.
    slope = (np.linspace(0, RATE / 2, WINDOW // 2 + 1)[:, None] - edges[1:-1]) / np.diff(edges)[:-1]
    levels = 10 * np.log10(np.maximum(power @ np.maximum(0.0, 1.0 - np.abs(slope)), 1e-10))
    levels = np.maximum(levels, levels.max() - DEPTH)
    return np.asarray(levels - levels.mean(axis=0), dtype=np.float32)


class Ecapa:
    """The network over its weights by name: [samples] at 16 kHz -> embedding [192]."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        self.weights = weights

    @torch.no_grad()
    def embed(self, wave: Wave) -> npt.NDArray[np.float32]:
        """The voice of a wave of at least 0.05 s."""
        x = self._layer("blocks.0", torch.from_numpy(log_mel(wave)).T[None])
        outputs = []
        for name, dilation in DILATIONS.items():
            x = self._block(name, x, dilation)
            outputs.append(x)
        x = self._layer("mfa", torch.cat(outputs, dim=1))
        return np.asarray(self._convolution("fc", self._norm("asp_bn", self._pool(x))).flatten().numpy())

    def _convolution(self, name: str, x: Tensor, dilation: int = 1) -> Tensor:
        weight = self.weights[f"{name}.conv.weight"]
        edge = dilation * (weight.shape[-1] - 1) // 2
        padded = F.pad(x, (edge, edge), mode="reflect") if edge else x
        return F.conv1d(padded, weight, self.weights[f"{name}.conv.bias"], dilation=dilation)

    def _norm(self, name: str, x: Tensor) -> Tensor:
        mean, variance, weight, bias = (
            self.weights[f"{name}.norm.{part}"] for part in ("running_mean", "running_var", "weight", "bias")
        )
        return F.batch_norm(x, mean, variance, weight, bias)

    def _layer(self, name: str, x: Tensor, dilation: int = 1) -> Tensor:
        """Convolution, ReLU, batch norm: [1, channels, frames] -> the same frames."""
        return self._norm(f"{name}.norm", F.relu(self._convolution(f"{name}.conv", x, dilation)))

    def _block(self, name: str, x: Tensor, dilation: int) -> Tensor:
        """A squeeze-and-excitation Res2 block: every group of channels but the first hears the one before it."""
        first, *groups = self._layer(f"{name}.tdnn1", x).chunk(SCALE, dim=1)
        heard, before = [first], torch.zeros_like(first)
        for index, group in enumerate(groups):
            before = self._layer(f"{name}.res2net_block.blocks.{index}", group + before, dilation)
            heard.append(before)
        y = self._layer(f"{name}.tdnn2", torch.cat(heard, dim=1))
        squeezed = F.relu(self._convolution(f"{name}.se_block.conv1", y.mean(dim=2, keepdim=True)))
        return x + y * torch.sigmoid(self._convolution(f"{name}.se_block.conv2", squeezed))

    def _pool(self, x: Tensor) -> Tensor:
        """Attentive statistics: [1, channels, frames] -> mean and deviation, weighed by frame, [1, 2 * channels, 1]."""
        even = torch.full_like(x, 1.0 / x.shape[-1])
        context = torch.cat([x, *(part.expand_as(x) for part in _statistics(x, even))], dim=1)
        attention = self._convolution("asp.conv", torch.tanh(self._layer("asp.tdnn", context)))
        return torch.cat(_statistics(x, attention.softmax(dim=-1)), dim=1)


def _statistics(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    mean = (weight * x).sum(dim=-1, keepdim=True)
    variance = (weight * (x - mean) ** 2).sum(dim=-1, keepdim=True)
    return mean, variance.clamp(min=1e-12).sqrt()
