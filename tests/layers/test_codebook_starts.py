"""K-means: where codebooks begin."""

import torch
from small_quantizers import DIM, SIZE, latents, make

from madrigal.layers.kmeans import POINTS_PER_CENTRE, kmeans, nearness
from madrigal.layers.quantizers import build_quantizer


def test_kmeans_gives_means_of_its_own_points_and_leaves_no_centre_empty() -> None:
    points = latents(4, 50).flatten(0, 1)
    torch.manual_seed(0)
    centres, counts = kmeans(points, SIZE, iterations=50)
    owners = nearness(points[None], centres[None])[0].argmax(-1)
    assert torch.equal(torch.bincount(owners, minlength=SIZE).float(), counts)
    assert (counts > 0).all()
    means = torch.stack([points[owners == code].mean(0) for code in range(SIZE)])
    assert torch.allclose(means, centres, atol=1e-5)


def test_kmeans_looks_at_no_more_points_than_it_needs() -> None:
    _, counts = kmeans(latents(40, 50).flatten(0, 1), 4)
    assert counts.sum() == 4 * POINTS_PER_CENTRE


def test_kmeans_with_fewer_points_than_centres_gives_distinct_centres() -> None:
    torch.manual_seed(0)
    points = torch.randn(5, DIM)
    centres, counts = kmeans(points, SIZE)
    assert len(centres.unique(dim=0)) == SIZE
    assert counts.sum() == 5


def test_kmeans_init_leaves_less_than_random_codebooks() -> None:
    x = latents(8, 50, seed=9)
    error = [(make(kmeans_init=start)(x).embedding - x).square().mean() for start in (True, False)]
    assert error[0] < 0.7 * error[1]
    assert make().initialized
    fresh = build_quantizer("vq", dim=DIM, codebook_size=SIZE, num_quantizers=1)
    assert not fresh.initialized


def test_nearness_ranks_by_distance_or_by_angle() -> None:
    points, centres = torch.randn(1, 20, DIM), torch.randn(1, 9, DIM)
    assert torch.equal(nearness(points, centres).argmax(-1), torch.cdist(points, centres).argmin(-1))
    cosines = torch.nn.functional.cosine_similarity(points[0][:, None], centres[0][None], dim=-1)
    assert torch.allclose(nearness(points, centres, cosine=True)[0], cosines, atol=1e-5)
    scaled = centres * torch.rand(1, 9, 1).add(0.1)
    assert torch.equal(nearness(points, scaled, cosine=True).argmax(-1), cosines.argmax(-1)[None])
