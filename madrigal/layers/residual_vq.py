"""Residual vector quantization with learned codebooks, in full or through narrow projections."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madrigal.layers.codebooks import Codebooks
from madrigal.layers.residual_quantizer import ABSENT, Frames, Gather, Quantizer, Reduce


def straight_through(x: Tensor, target: Tensor) -> Tensor:
    """`target`, with the gradient of `x`."""
    return x + (target - x).detach()


def rotate_onto(x: Tensor, target: Tensor) -> Tensor:
    """`target`, with the gradient of the rotation and scaling that takes each vector of `x` onto it.

    The "rotation trick": unlike the plain copy, the gradient keeps its angle to the vector that it belongs to.
    """
    with torch.no_grad():
        length = x.norm(dim=-1, keepdim=True).clamp(min=1e-9)
        goal = target.norm(dim=-1, keepdim=True)
        start, end = x / length, target / goal.clamp(min=1e-9)
        middle = F.normalize(start + end, dim=-1)
        scale = goal / length
    mirrored = x - 2 * (x * middle).sum(-1, keepdim=True) * middle
    return straight_through(scale * (mirrored + 2 * (x * start).sum(-1, keepdim=True) * end), target)


class ResidualVQ(Quantizer):
    """Each level replaces what is left of a frame by the nearest vector of its codebook.

    With `factorised_dim`, each level projects to so few dimensions, looks up there, and projects back: the search is
    cheap and all codes come into use. With `l2_normalised`, the nearest is that of the smallest angle.
    """

    def __init__(
        self,
        *,
        dim: int,
        codebook_size: int,
        num_quantizers: int,
        groups: int = 1,
        commitment_weight: float = 1.0,
        ema_decay: float = 0.95,
        dead_code_threshold: float = 2.0,
        stochastic_sample_codes: bool = False,
        rotation_trick: bool = True,
        kmeans_init: bool = True,
        factorised_dim: int | None = None,
        l2_normalised: bool = False,
        **dropout: Any,
    ) -> None:
        super().__init__(dim=dim, codebook_size=codebook_size, num_quantizers=num_quantizers, groups=groups, **dropout)
        width = dim // groups
        self.commitment_weight, self.ema_decay = commitment_weight, ema_decay
        self.sample_codes, self.kmeans_init = stochastic_sample_codes, kmeans_init
        self.pass_gradient = rotate_onto if rotation_trick else straight_through
        self.codebooks = Codebooks(
            num_quantizers,
            groups,
            codebook_size,
            factorised_dim or width,
            decay=ema_decay,
            dead_percent=dead_code_threshold,
            cosine=l2_normalised,
            kmeans_init=kmeans_init,
        )
        self.narrow: nn.Parameter | None = None
        self.widen: nn.Parameter | None = None
        if factorised_dim is not None:
            narrow = torch.randn(num_quantizers, groups, width, factorised_dim) * width**-0.5
            self.narrow = nn.Parameter(narrow)
            # A projection and its transpose, so that at first each level takes off a part of what is left.
            self.widen = nn.Parameter(narrow.transpose(-1, -2).clone())

    @property
    def initialized(self) -> bool:
        return bool(self.codebooks.initialized)

    def quantize(self, frames: Frames, collect: bool) -> tuple[Tensor, Tensor, Tensor]:
        if collect:
            self.codebooks.begin()
        residual = self._residual_projected if self.narrow is not None else self._residual
        return residual(frames, collect)

    def _residual(self, frames: Frames, collect: bool) -> tuple[Tensor, Tensor, Tensor]:
        """The loop over the levels builds no graph: the gradients of all levels are known in closed form."""
        x = frames.vectors
        codes = self._no_codes(frames)
        with torch.no_grad():
            left, pull, error = x.clone(), torch.zeros_like(x), x.new_zeros(())
            weight = frames.weights()
            for level, size in enumerate(frames.sizes):
                part = left[:, :size]
                codes[level, :, :size] = self._choose(level, part, frames.valid, collect)
                part -= self.codebooks.lookup(level, codes[level, :, :size])
                pull[:, :size] += part
                error += (part.square() * weight[:size]).sum()
            embedding = x - left
        # Each level's loss is the square of what it leaves; the sum of their gradients in x is 2 * pull.
        commitment = error + 2 * ((x - x.detach()) * pull * weight).sum()
        return self.pass_gradient(x, embedding), codes, self._mean(commitment, frames, x.shape[-1])

    def _residual_projected(self, frames: Frames, collect: bool) -> tuple[Tensor, Tensor, Tensor]:
        assert self.narrow is not None
        assert self.widen is not None
        left, total = frames.vectors, torch.zeros_like(frames.vectors)
        codes = self._no_codes(frames)
        commitment, weight = total.new_zeros(()), frames.weights()
        for level, size in enumerate(frames.sizes):
            left = left[:, :size]
            point = torch.bmm(left, self.narrow[level])
            with torch.no_grad():
                codes[level, :, :size] = self._choose(level, point, frames.valid, collect)
                vector = self.codebooks.lookup(level, codes[level, :, :size])
            commitment = commitment + ((point - vector).square() * weight[:size]).sum()
            out = torch.bmm(self.pass_gradient(point, vector), self.widen[level])
            left = left - out
            total = total + F.pad(out, (0, 0, 0, total.shape[1] - size))
        return total, codes, self._mean(commitment, frames, self.narrow.shape[-1])

    def _choose(self, level: int, points: Tensor, valid: Tensor | None, collect: bool) -> Tensor:
        codes = self.codebooks.search(level, points, sample=collect and self.sample_codes)
        if collect:
            keep = slice(None) if valid is None else valid[: points.shape[1]]
            self.codebooks.collect(level, points[:, keep].detach(), codes[:, keep])
        return codes

    def _no_codes(self, frames: Frames) -> Tensor:
        shape = len(frames.sizes), self.groups, frames.vectors.shape[1]
        return torch.full(shape, ABSENT, device=frames.vectors.device)

    def _mean(self, total: Tensor, frames: Frames, width: int) -> Tensor:
        return self.commitment_weight * total / (frames.weights().sum().clamp(min=1) * self.groups * width)

    def decode(self, codes: Tensor) -> Tensor:
        columns = self.check_codes(codes)
        total = self.codebooks.vectors.new_zeros(self.groups, columns.shape[-1], self.dim // self.groups)
        for level, chosen in enumerate(columns):
            vectors = self.codebooks.lookup(level, chosen.clamp(min=0))
            if self.widen is not None:
                vectors = torch.bmm(vectors, self.widen[level])
            total += vectors * (chosen != ABSENT)[..., None]
        return total.transpose(0, 1).flatten(1).unflatten(0, codes.shape[:2])

    @torch.no_grad()
    def initialize(self, x: Tensor) -> None:
        if not self.kmeans_init:
            return
        left = x.float().unflatten(-1, (self.groups, -1)).transpose(0, 1).contiguous()
        for level in range(self.num_quantizers):
            points = left if self.narrow is None else torch.bmm(left, self.narrow[level])
            self.usage[level] = self.codebooks.initialize_level(level, points)
            vectors = self.codebooks.lookup(level, self.codebooks.search(level, points))
            left = left - (vectors if self.widen is None else torch.bmm(vectors, self.widen[level]))
        self.codebooks.initialized.fill_(True)

    @torch.no_grad()
    def commit(self, reduce: Reduce | None = None, gather: Gather | None = None) -> None:
        if not self.codebooks.pools:
            return
        pools = torch.stack(self.codebooks.pools)
        if reduce is not None:
            reduce(self.pending_usage)
            reduce(self.codebooks.pending)
        if gather is not None:
            # Micro-batch m of rank r is the (m * world + r)-th of the step.
            pools = torch.stack(list(gather(pools)), dim=1).flatten(0, 1)
        self.codebooks.commit(self.pending_usage, self.codebooks.pending, pools)
        self.take_in_usage()
        self.discard()

    def discard(self) -> None:
        super().discard()
        self.codebooks.discard()
