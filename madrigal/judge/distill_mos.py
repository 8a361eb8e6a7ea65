"""Distill-MOS (Stahl and Gamper, 2025) for listening only: how good speech sounds, as one number from 1 to 5.

Runs the weights of the package distillmos, whose names for layers it therefore keeps, without the package: that one
needs torchaudio and librosa, and nothing here does. Its scores agree with the package's to four digits behind
the point.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from madrigal.judge.signals import Wave

RATE = 16_000
WINDOW, HOP = 320, 160
SEGMENT, STEP = 122_880, 16_000
"""Samples that are judged at once (7.68 s), and how far apart segments start at the most."""
HEADS = 8
LAYERS = "transformer_pool_attn.transformer.transformer_encoder.layers"


class DistillMos:
    """The network over its weights by name: [samples] at 16 kHz -> a mean opinion score."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        self.weights = weights
        self.depth = 1 + max(int(name.removeprefix(LAYERS).split(".")[1]) for name in weights if LAYERS in name)
        self.convolutions = sorted({int(name.split(".")[2]) for name in weights if name.startswith("cnn.cnn.")})
        self.positions = weights["transformer_pool_attn.transformer.position_encoding.pe"]

    @torch.no_grad()
    def score(self, wave: Wave) -> float:
        """Of the whole wave: the mean over its segments; a shorter one is filled up with silence."""
        rows = torch.from_numpy(np.stack([wave[at : at + SEGMENT] for at in _starts(len(wave))]))
        rows = F.pad(rows, (0, SEGMENT - rows.shape[1]))
        return float((1 + 4 * self._quality(rows)).mean())

    def _quality(self, waves: Tensor) -> Tensor:
        """Segments [rows, samples] -> quality [rows, 1], 0 to 1."""
        # One at a time: a batch of spectrograms is large, and no quicker on a CPU.
        x = torch.cat([self._heard(row[None]) for row in waves])
        x = self._norm("transformer_pool_attn.norm_input", x)
        x = self._norm("transformer_pool_attn.transformer.norm", x)
        x = self._linear("transformer_pool_attn.transformer.linear_proj", x) + self.positions
        for number in range(self.depth):
            x = self._layer(f"{LAYERS}.{number}", x)
        x = self._norm("transformer_pool_attn.norm_trans", x)
        hidden = F.relu(self._linear("transformer_pool_attn.pool.linear1", x))
        attention = self._linear("transformer_pool_attn.pool.linear2", hidden).softmax(dim=1)
        return torch.sigmoid(self._linear("transformer_pool_attn.pool.linear3", (attention * x).sum(dim=1)))

    def _heard(self, wave: Tensor) -> Tensor:
        """[1, samples] -> features of 20 ms [1, frames, channels]."""
        x = _spectrum(wave / (wave.abs().amax() + 1e-8))
        for place, index in enumerate(self.convolutions):
            weight, bias = (self.weights[f"cnn.cnn.{index}.{part}"] for part in ("weight", "bias"))
            # Frequencies are halved by all but the first, time by the last alone.
            stride = (1 if place == 0 else 2, 2 if index == self.convolutions[-1] else 1)
            x = F.leaky_relu(F.conv2d(x, weight, bias, stride=stride, padding=(0, 1)), 0.1)
        return x.flatten(1, 2).transpose(1, 2)

    def _layer(self, name: str, x: Tensor) -> Tensor:
        """Attention and feed-forward, each followed by a norm of its sum with the stream."""
        x = self._layer_norm(f"{name}.norm1", x + self._attend(f"{name}.self_attn", x))
        inner = F.relu(self._linear(f"{name}.linear1", x))
        return self._layer_norm(f"{name}.norm2", x + self._linear(f"{name}.linear2", inner))

    def _attend(self, name: str, x: Tensor) -> Tensor:
        rows, frames, dim = x.shape
        weight, bias = (self.weights[f"{name}.in_proj_{part}"] for part in ("weight", "bias"))
        q, k, v = (
            part.view(rows, frames, HEADS, dim // HEADS).transpose(1, 2)
            for part in F.linear(x, weight, bias).chunk(3, dim=-1)
        )
        heard = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(rows, frames, dim)
        return self._linear(f"{name}.out_proj", heard)

    def _linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def _layer_norm(self, name: str, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def _norm(self, name: str, x: Tensor) -> Tensor:
        """Batch norm over features [rows, frames, channels], with the means of the training."""
        mean, variance, weight, bias = (
            self.weights[f"{name}.{part}"] for part in ("running_mean", "running_var", "weight", "bias")
        )
        return F.batch_norm(x.transpose(1, 2), mean, variance, weight, bias).transpose(1, 2)


def _starts(samples: int) -> list[int]:
    """Where segments begin: evenly from the first to the last that fits, at most a second apart."""
    rest = max(0, samples - SEGMENT)
    return [int(place * rest) for place in np.linspace(0, 1, math.ceil(rest / STEP) + 1)]


def _spectrum(wave: Tensor) -> Tensor:
    """[1, samples] -> real and imaginary parts [1, 2, bins, frames], with magnitudes to the power of 0.3."""
    edge = (WINDOW - HOP) // 2
    padded = F.pad(wave[None], (edge, edge), mode="reflect")[0]
    bins = torch.stft(padded, WINDOW, HOP, window=torch.hann_window(WINDOW), center=False, return_complex=True)
    magnitude = bins.abs().clamp(min=1e-12)
    return torch.view_as_real(bins * magnitude**-0.7).permute(0, 3, 1, 2)
