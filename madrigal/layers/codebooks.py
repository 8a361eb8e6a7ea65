"""Codebooks that follow the data: moving averages, and new places for codes that nobody uses.

All randomness is in collecting: each micro-batch offers a random pool of vectors. Committing draws nothing, so
every rank comes to the same codebooks, and the same as one process that saw all the micro-batches.
"""

import torch
from torch import Tensor, nn

from madrigal.layers.kmeans import kmeans, nearness

POOL = 128
"""Vectors of each level that a micro-batch offers as places for dead codes."""


SPLIT = 0.1
"""How far from the code that it splits a revived code begins, as a part of the way to a point of that code."""


class Codebooks(nn.Module):
    """Vectors [levels, groups, size, dim] of a residual quantizer.

    The vectors are parameters without gradient, so that an average of the weights averages them as well. Each is the
    mean of the points that chose it, `mass` [levels, groups, size] says of how many: points of n steps ago count
    `decay` ** n. A code whose mass falls under `dead_percent` percent of an equal share is dead, and is revived by
    splitting another that has many points.
    """

    def __init__(
        self,
        levels: int,
        groups: int,
        size: int,
        dim: int,
        *,
        decay: float,
        dead_percent: float,
        cosine: bool = False,
        kmeans_init: bool = True,
    ) -> None:
        super().__init__()
        self.size, self.decay, self.dead_percent, self.cosine = size, decay, dead_percent, cosine
        self.vectors = nn.Parameter(torch.randn(levels, groups, size, dim) * dim**-0.5, requires_grad=False)
        self.mass: Tensor
        self.initialized: Tensor
        self.pending: Tensor
        self.register_buffer("mass", torch.ones(levels, groups, size))
        self.register_buffer("initialized", torch.tensor(not kmeans_init))
        self.register_buffer("pending", torch.zeros_like(self.vectors), persistent=False)
        self.pools: list[Tensor] = []
        self._spots: Tensor | None = None

    def search(self, level: int, points: Tensor, *, sample: bool = False) -> Tensor:
        """Codes [groups, n] for points [groups, n, dim]: the nearest, or with `sample` one of the near ones.

        Sampled codes follow the posterior of a mixture of Gaussians around the vectors, as wide as the level's
        present error, so that the noise is in proportion on every level.
        """
        scores = nearness(points, self.vectors[level], cosine=self.cosine)
        if not sample:
            return scores.argmax(-1)
        lengths = torch.ones_like(scores[..., 0]) if self.cosine else points.square().sum(-1)
        variance = (lengths - 2 * scores.amax(-1) + float(self.cosine)).mean() / points.shape[-1]
        noise = torch.empty_like(scores).exponential_().log()
        return (scores / variance.clamp(min=1e-9) - noise).argmax(-1)

    def lookup(self, level: int, codes: Tensor) -> Tensor:
        """Vectors [groups, n, dim] of codes [groups, n]."""
        rows = self.vectors[level].flatten(0, 1).index_select(0, self._rows(codes).flatten())
        return rows.unflatten(0, codes.shape)

    def begin(self) -> None:
        """A micro-batch begins to collect: draws where in it the pool is taken from."""
        levels, groups, _, dim = self.vectors.shape
        # What stays NaN marks a level that this micro-batch did not reach.
        self.pools.append(self.vectors.new_full((levels, groups, POOL, dim), torch.nan))
        self._spots = torch.rand(POOL, device=self.vectors.device)

    def collect(self, level: int, points: Tensor, codes: Tensor) -> None:
        """Note the points [groups, n, dim] that chose the codes [groups, n]."""
        if not points.shape[1]:
            return
        assert self._spots is not None, "begin() opens a micro-batch"
        # Summed by itself before it is added, as a rank of its own would sum it: the results agree to the bit.
        sums = torch.zeros_like(self.pending[level]).flatten(0, 1)
        sums.index_add_(0, self._rows(codes).flatten(), points.flatten(0, 1))
        self.pending[level] += sums.view_as(self.pending[level])
        self.pools[-1][level] = points[:, (self._spots * points.shape[1]).long()]

    @torch.no_grad()
    def commit(self, counts: Tensor, sums: Tensor, pools: Tensor) -> None:
        """Move the vectors: counts [levels, groups, size] and sums of a step, pools [micro-batches, levels, ...]."""
        seen = counts.sum(-1, keepdim=True) > 0
        self.mass.mul_(torch.where(seen, self.decay, 1.0)).add_(counts)
        step = (sums - counts[..., None] * self.vectors) / self.mass[..., None].clamp(min=1e-6)
        self.vectors.add_(step)
        for level, group in seen[..., 0].nonzero().tolist():
            self._revive(self.vectors[level, group], self.mass[level, group], pools[:, level, group])

    def discard(self) -> None:
        self.pending.zero_()
        self.pools.clear()

    def initialize_level(self, level: int, points: Tensor) -> Tensor:
        """k-means over points [groups, n, dim]; returns how many points each code has [groups, size]."""
        found = [kmeans(group, self.size, cosine=self.cosine) for group in points]
        with torch.no_grad():
            self.vectors[level] = torch.stack([centres for centres, _ in found])
        self.mass[level] = torch.stack([counts for _, counts in found])
        return self.mass[level]

    def _revive(self, vectors: Tensor, mass: Tensor, pools: Tensor) -> None:
        """Each dead code of one codebook goes beside the code of a vector of the pool, and they share its points.

        The pool is as dense as the data, so it is the crowded codes that are split. The new place is near the old code
        and not the vector itself: in many dimensions no other point is as near to a single point as to a mean.
        """
        dead = (mass < mass.mean() * self.dead_percent / 100).nonzero().flatten()
        if not len(dead):
            return
        # One vector of each micro-batch in turn, as far as they go; the other codes wait for the next step.
        offered = pools[~pools[:, 0, 0].isnan()].transpose(0, 1).flatten(0, 1)[: len(dead)]
        dead = dead[: len(offered)]
        owners = nearness(offered[None], vectors[None], cosine=self.cosine)[0].argmax(-1)
        shared = mass / (1 + torch.bincount(owners, minlength=self.size))
        mass.copy_(shared)
        mass[dead] = shared[owners]
        vectors[dead] = torch.lerp(vectors[owners], offered, SPLIT)

    def _rows(self, codes: Tensor) -> Tensor:
        """Rows of a level's table for codes [groups, n]: each group has rows of its own."""
        groups = torch.arange(codes.shape[0], device=codes.device)
        return codes + (groups * self.size)[:, None]
