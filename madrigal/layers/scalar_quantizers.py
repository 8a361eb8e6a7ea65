"""Quantizers without a codebook: every dimension is rounded by itself, and the code is a number in mixed base."""

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from madrigal.layers.residual_quantizer import ABSENT, Frames, Quantizer
from madrigal.layers.residual_vq import straight_through

SHARPNESS = 4.0
"""Steepness of the soft bits that the entropy of a lookup-free quantizer is measured on."""


class ResidualScalarQuantizer(Quantizer):
    """Projects to one dimension for each entry of `steps`, and rounds dimension i to `steps[i]` even steps.

    Level 0 spans [-1, 1]; what rounding leaves is spanned by the next level, `ratio` times smaller. `bounded` keeps
    the projection in range by tanh.
    """

    def __init__(
        self, *, dim: int, steps: Sequence[int], ratio: Sequence[float], bounded: bool, groups: int = 1, **options: Any
    ) -> None:
        super().__init__(dim=dim, codebook_size=prod(steps), groups=groups, **options)
        if min(steps) < 2:
            raise ValueError(f"Each dimension needs at least two steps, not {list(steps)}.")
        self.bounded = bounded
        width = dim // groups
        self.project_in = nn.Parameter(torch.randn(groups, width, len(steps)) * width**-0.5)
        self.project_out = nn.Parameter(torch.randn(groups, len(steps), width) * len(steps) ** -0.5)
        self.steps: Tensor
        self.bases: Tensor
        self.ratio: Tensor
        self.register_buffer("steps", torch.tensor(steps), persistent=False)
        bases = [prod(steps[:place]) for place in range(len(steps))]
        self.register_buffer("bases", torch.tensor(bases), persistent=False)
        self.register_buffer("ratio", torch.tensor(ratio), persistent=False)

    def quantize(self, frames: Frames, collect: bool) -> tuple[Tensor, Tensor, Tensor]:
        x = torch.bmm(frames.vectors, self.project_in)
        if self.bounded:
            x = x.tanh()
        shape = len(frames.sizes), self.groups, x.shape[1]
        codes = torch.full(shape, ABSENT, device=x.device)
        lefts, left = [], x.detach().clone()
        for level, size in enumerate(frames.sizes):
            part = left[:, :size]
            lefts.append(part.clone())
            scale = self.ratio**level
            step = ((part / scale + 1) / 2 * (self.steps - 1)).round().clamp(min=0).minimum(self.steps - 1)
            codes[level, :, :size] = (step.long() * self.bases).sum(-1)
            part -= self._values(step) * scale
        points = straight_through(x, x.detach() - left)
        return torch.bmm(points, self.project_out), codes, self.penalty(x, left, lefts, frames)

    def penalty(self, x: Tensor, left: Tensor, lefts: list[Tensor], frames: Frames) -> Tensor:
        """What keeps `x` [groups, frames, steps] where it can be rounded: nothing, as tanh bounds it."""
        return x.new_zeros(())

    def decode(self, codes: Tensor) -> Tensor:
        columns = self.check_codes(codes)
        points = self.project_out.new_zeros(self.groups, columns.shape[-1], len(self.steps))
        for level, chosen in enumerate(columns):
            step = chosen.clamp(min=0)[..., None] // self.bases % self.steps
            points += self._values(step) * self.ratio**level * (chosen != ABSENT)[..., None]
        embedding = torch.bmm(points, self.project_out)
        return embedding.transpose(0, 1).flatten(1).unflatten(0, codes.shape[:2])

    def _values(self, step: Tensor) -> Tensor:
        return 2 * step / (self.steps - 1) - 1


class ResidualFSQ(ResidualScalarQuantizer):
    """Finite scalar quantization, with `levels` steps a dimension (at least 3, so that what is left shrinks)."""

    def __init__(self, *, levels: Sequence[int], **options: Any) -> None:
        if min(levels) < 3:
            raise ValueError(f"Each of the levels must be at least 3, not {list(levels)}.")
        super().__init__(steps=levels, ratio=[1 / (steps - 1) for steps in levels], bounded=True, **options)


class ResidualLFQ(ResidualScalarQuantizer):
    """Lookup-free quantization: the signs of log2(codebook_size) dimensions are the bits of a code.

    The penalty draws `x` to its quantized value and, by `entropy_weight`, makes every bit certain for a frame and,
    `diversity_gamma` times as much, both values of it equally frequent over the batch.
    """

    def __init__(
        self,
        *,
        codebook_size: int,
        commitment_weight: float = 1.0,
        entropy_weight: float = 0.1,
        diversity_gamma: float = 1.0,
        **options: Any,
    ) -> None:
        bits = codebook_size.bit_length() - 1
        if codebook_size != 2**bits or not bits:
            raise ValueError(f"A lookup-free codebook has a power of two of codes, not {codebook_size}.")
        super().__init__(steps=[2] * bits, ratio=[0.5] * bits, bounded=False, **options)
        self.commitment_weight, self.entropy_weight = commitment_weight, entropy_weight
        self.diversity_gamma = diversity_gamma

    def penalty(self, x: Tensor, left: Tensor, lefts: list[Tensor], frames: Frames) -> Tensor:
        weight = frames.weights()
        count = weight.sum().clamp(min=1)
        target = x.detach() - left
        commitment = ((x - target).square() * weight).sum() / (count * x.shape[0] * x.shape[-1])
        entropy = x.new_zeros(())
        for level, start in enumerate(lefts):
            size = start.shape[1]
            certain = torch.sigmoid(SHARPNESS * (x[:, :size] - (x[:, :size] - start).detach()) / 0.5**level)
            share = weight[:size] / weight[:size].sum().clamp(min=1)
            entropy = entropy + (_binary_entropy(certain) * share).sum(1).mean()
            entropy = entropy - self.diversity_gamma * _binary_entropy((certain * share).sum(1)).mean()
        return self.commitment_weight * commitment + self.entropy_weight * entropy / len(lefts)


def _binary_entropy(p: Tensor) -> Tensor:
    p = p.clamp(1e-6, 1 - 1e-6)
    return -(p * p.log() + (1 - p) * (1 - p).log())
