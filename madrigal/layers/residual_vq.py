"""Residual vector quantization with codebooks that follow the data by exponential moving averages."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madrigal.layers.kmeans import kmeans, nearest
from madrigal.layers.quantizers import ABSENT, Frames, Gather, Quantizer, Reduce

POOL = 128
"""Vectors of each level that a micro-batch offers as new places for dead codes."""


def rotate_onto(x: Tensor, target: Tensor) -> Tensor:
    """`target`, with the gradient of the rotation and scaling that takes `x` onto it (the rotation trick)."""
    with torch.no_grad():
        length, goal = x.norm(dim=-1, keepdim=True), target.norm(dim=-1, keepdim=True)
        start, end = x / length.clamp(min=1e-9), target / goal.clamp(min=1e-9)
        middle = F.normalize(start + end, dim=-1)
        scale = goal / length.clamp(min=1e-9)
    moved = x - 2 * (x * middle).sum(-1, keepdim=True) * middle + 2 * (x * start).sum(-1, keepdim=True) * end
    moved = moved * scale
    return moved + (target - moved).detach()


def straight_through(x: Tensor, target: Tensor) -> Tensor:
    return x + (target - x).detach()


class ResidualVQ(Quantizer):
    def __init__(
        self,
        *,
        dim: int,
        commitment_weight: float = 1.0,
        ema_decay: float = 0.95,
        dead_code_threshold: float = 2.0,
        stochastic_sample_codes: bool = False,
        rotation_trick: bool = True,
        kmeans_init: bool = True,
        factorised_dim: int | None = None,
        l2_normalised: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(dim=dim, **options)
        self.commitment_weight, self.ema_decay = commitment_weight, ema_decay
        self.dead_code_threshold, self.stochastic_sample_codes = dead_code_threshold, stochastic_sample_codes
        self.rotation_trick, self.l2_normalised = rotation_trick, l2_normalised
        width = dim // self.groups
        self.factorised = factorised_dim is not None
        code_dim = factorised_dim or width
        levels, groups = self.num_quantizers, self.groups
        codebooks = torch.randn(levels, groups, self.codebook_size, code_dim) * code_dim**-0.5
        self.codebooks = nn.Parameter(codebooks, requires_grad=False)
        if factorised_dim:
            self.project_in = nn.Parameter(torch.randn(levels, groups, width, code_dim) * width**-0.5)
            self.project_out = nn.Parameter(torch.randn(levels, groups, code_dim, width) * code_dim**-0.5)
        self.initialized: Tensor
        self.register_buffer("initialized", torch.tensor(not kmeans_init))
        self.pending_sums: Tensor
        self.register_buffer("pending_sums", torch.zeros_like(codebooks), persistent=False)
        self.pools: list[Tensor] = []

    def search(self, level: int, points: Tensor, sample: bool) -> Tensor:
        scores = nearest(points, self.codebooks[level], cosine=self.l2_normalised)
        return scores.argmax(-1)

    def quantize(self, frames: Frames, collect: bool) -> tuple[Tensor, Tensor, Tensor]:
        x = frames.vectors
        codes = x.new_full((len(frames.sizes), self.groups, x.shape[1]), ABSENT, dtype=torch.long)
        pool = self.codebooks.new_zeros(self.num_quantizers, self.groups, POOL, self.codebooks.shape[-1]) if collect else None
        u = torch.rand(POOL) if collect else None
        if self.factorised:
            out, loss = self.fact(frames, collect, codes, pool, u)
        else:
            with torch.no_grad():
                r = x.detach().clone(); G = torch.zeros_like(r); loss = 0.
                for l, n in enumerate(frames.sizes):
                    h = r[:, :n]
                    idx = self.search(l, h, collect)
                    codes[l, :, :n] = idx
                    e = torch.stack([b[i] for b, i in zip(self.codebooks[l], idx)])
                    if collect: self.note(l, h, idx, pool, u)
                    h -= e
                    G[:, :n] += h
                    loss = loss + h.square().sum()
                q = x - r
            N = x.numel()
            loss = (loss + 2*((x - x.detach()) * G).sum()) / N
            out = (rotate_onto if self.rotation_trick else straight_through)(x, q)
        if pool is not None: self.pools.append(pool)
        return out, codes, self.commitment_weight * loss

    def fact(self, frames, collect, codes, pool, u):
        x = frames.vectors; r = x; out = None; loss = 0.
        total = torch.zeros_like(x)
        move = rotate_onto if self.rotation_trick else straight_through
        pieces = []
        for l, n in enumerate(frames.sizes):
            if n < r.shape[1]: r = r[:, :n]
            z = torch.bmm(r, self.project_in[l])
            with torch.no_grad():
                idx = self.search(l, z, collect); codes[l, :, :n] = idx
                e = torch.stack([b[i] for b, i in zip(self.codebooks[l], idx)])
                if collect: self.note(l, z, idx, pool, u)
            loss = loss + (z - e).square().sum() / (x.shape[1] * self.groups * z.shape[-1])
            o = torch.bmm(move(z, e), self.project_out[l])
            r = r - o
            pieces.append(o)
        out = total
        for o in pieces:
            out = out + F.pad(o, (0, 0, 0, x.shape[1] - o.shape[1]))
        return out, loss

    def note(self, l, z, idx, pool, u):
        for g in range(self.groups):
            self.pending_sums[l, g].index_add_(0, idx[g], z[g].detach())
        pool[l] = z[:, (u * z.shape[1]).long()].detach()

    def decode(self, codes: Tensor) -> Tensor:
        raise NotImplementedError

    @torch.no_grad()
    def initialize(self, x: Tensor) -> None:
        r = x.float().unflatten(-1, (self.groups, -1)).transpose(0, 1).clone()
        for l in range(self.num_quantizers):
            z = torch.bmm(r, self.project_in[l]) if self.factorised else r
            for g in range(self.groups):
                c, n = kmeans(z[g], self.codebook_size, cosine=self.l2_normalised)
                self.codebooks[l, g] = c; self.usage[l, g] = n
            idx = self.search(l, z, False)
            e = torch.stack([b[i] for b, i in zip(self.codebooks[l], idx)])
            r = r - (torch.bmm(e, self.project_out[l]) if self.factorised else e)
        self.usage.mul_(self.dead_code_threshold*4*self.codebook_size/ self.usage.sum(-1,keepdim=True))
        self.initialized.fill_(True)

    @torch.no_grad()
    def commit(self, reduce: Reduce | None = None, gather: Gather | None = None) -> None:
        if reduce is not None:
            reduce(self.pending_usage); reduce(self.pending_sums)
        self.take_in_usage(self.ema_decay)
        n = self.pending_usage[..., None]
        self.codebooks += (self.pending_sums - n * self.codebooks) / self.usage[..., None].clamp(min=1e-6)
        cand = torch.stack(self.pools, 2).flatten(2, 3)  # level, group, micro*pool
        seen = self.pending_usage.sum(-1) > 0
        self.revived = 0
        for l in range(self.num_quantizers):
            for g in range(self.groups):
                if not seen[l, g]: continue
                share = self.usage[l, g].mean()
                thr = self.dead_code_threshold if self.dead_code_threshold >= 1 else self.dead_code_threshold * share
                dead = (self.usage[l, g] < thr).nonzero().flatten()[: cand.shape[2]]
                if len(dead):
                    self.revived += len(dead)
                    self.codebooks[l, g, dead] = cand[l, g, : len(dead)]
                    self.usage[l, g, dead] = share
        self.discard()

    def discard(self) -> None:
        super().discard()
        self.pending_sums.zero_()
        self.pools = []
