"""Lloyd's k-means, from which codebooks start."""

import torch
import torch.nn.functional as F
from torch import Tensor

POINTS_PER_CENTRE = 32
"""More points than this for each centre only cost time."""


def nearest(points: Tensor, centres: Tensor, *, cosine: bool = False) -> Tensor:
    """Scores [..., points, centres], highest for the nearest centre: one matrix product.

    Without `cosine` the score is half the squared length of the point minus half the squared distance; the length is
    left out, as it is the same for every centre.
    """
    if cosine:
        return points @ F.normalize(centres, dim=-1).transpose(-1, -2)
    half_lengths = centres.square().sum(-1).unsqueeze(-2) / 2
    if points.dim() == 2:
        return torch.addmm(half_lengths, points, centres.T, beta=-1)
    return torch.baddbmm(half_lengths, points, centres.transpose(-1, -2), beta=-1)


@torch.no_grad()
def kmeans(points: Tensor, size: int, *, iterations: int = 10, cosine: bool = False) -> tuple[Tensor, Tensor]:
    """Centres [size, dim] of points [n, dim], and the number of points of each [size].

    A centre that loses its points moves to a random one. Where there are fewer points than centres, the rest of the
    centres are points once more, a little moved so that no two are the same.
    """
    if len(points) > POINTS_PER_CENTRE * size:
        points = points[torch.randperm(len(points), device=points.device)[: POINTS_PER_CENTRE * size]]
    picks = torch.randperm(len(points), device=points.device)
    centres = points[picks.repeat(-(-size // len(points)))[:size]].clone()
    repeated = centres[len(points) :]
    repeated += 0.01 * points.std() * torch.randn_like(repeated)
    counts = torch.zeros(size, device=points.device, dtype=points.dtype)
    for _ in range(iterations):
        owners = nearest(points, centres, cosine=cosine).argmax(-1)
        counts = torch.bincount(owners, minlength=size).to(points.dtype)
        sums = torch.zeros_like(centres).index_add_(0, owners, points)
        strays = torch.randint(len(points), (size,), device=points.device)
        moved = torch.where(counts[:, None] > 0, sums / counts[:, None].clamp(min=1), points[strays])
        if len(points) >= size:
            centres = moved
        else:
            centres = torch.where(counts[:, None] > 0, moved, centres)
    return centres, counts
