"""Nearest centres by one matrix product, and Lloyd's k-means, from which codebooks start."""

import torch
import torch.nn.functional as F
from torch import Tensor

POINTS_PER_CENTRE = 32
"""More points than this for each centre only cost time."""


def nearness(points: Tensor, centres: Tensor, *, cosine: bool = False) -> Tensor:
    """[groups, n, dim] and [groups, size, dim] -> [groups, n, size], largest at the nearest centre.

    It is (|point|^2 - distance^2) / 2, which needs no distance to be computed; with `cosine`, the cosine.
    """
    if cosine:
        return F.normalize(points, dim=-1) @ F.normalize(centres, dim=-1).transpose(-1, -2)
    half_lengths = centres.square().sum(-1).unsqueeze(-2) / 2
    return torch.baddbmm(half_lengths, points, centres.transpose(-1, -2), beta=-1)


@torch.no_grad()
def kmeans(
    points: Tensor,
    size: int,
    *,
    iterations: int = 10,
    cosine: bool = False,
    points_per_centre: int = POINTS_PER_CENTRE,
    spread: bool = False,
) -> tuple[Tensor, Tensor]:
    """Centres [size, dim] of points [n, dim], and how many points each has [size].

    It starts from random points, or, with `spread`, from points far from each other (k-means++).

    A centre that loses its points moves to a random one. Where there are fewer points than centres, the other
    centres are points once more, a little moved so that no two are the same.
    """
    limit = points_per_centre * size
    order = torch.randperm(len(points), device=points.device)
    points = points[order[:limit]]
    centres = points.repeat(-(-size // len(points)), 1)[:size]
    centres[len(points) :] += 0.01 * points.std() * torch.randn_like(centres[len(points) :])
    if spread and len(points) > size:
        centres = _far_apart(points[: POINTS_PER_CENTRE * size], size)
    counts = points.new_zeros(size)
    for _ in range(iterations):
        owners = nearness(points[None], centres[None], cosine=cosine)[0].argmax(-1)
        counts = torch.bincount(owners, minlength=size).to(points.dtype)
        sums = torch.zeros_like(centres).index_add_(0, owners, points)
        strays = points[torch.randint(len(points), (size,), device=points.device)]
        lost = centres if len(points) < size else strays
        centres = torch.where(counts[:, None] > 0, sums / counts[:, None].clamp(min=1), lost)
    return centres, counts


def _far_apart(points: Tensor, size: int) -> Tensor:
    """[size, dim] of points [n, dim], each drawn with the square of its distance to those before it."""
    squares = points.square().sum(-1)
    chosen = torch.randint(len(points), (1,), device=points.device)
    distances = torch.full_like(squares, torch.inf)
    for _ in range(size - 1):
        centre = points[chosen[-1]]
        distances = torch.minimum(distances, (squares - 2 * (points @ centre) + centre.square().sum()).clamp(min=0))
        # Where all points are taken already, any will do.
        weights = distances if bool(distances.any()) else torch.ones_like(distances)
        chosen = torch.cat((chosen, torch.multinomial(weights, 1)))
    return points[chosen]
