"""Residual quantizers: codes that mean one thing, gradients that go through, options that do something."""

from typing import Any

import pytest
import torch
from small_quantizers import DIM, KINDS, LEVELS, SIZE, collected, latents, make

from madrigal.layers.residual_quantizer import share_between_clips
from madrigal.layers.residual_vq import rotate_onto, straight_through

# codes and embeddings


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("levels", [None, 1, 2])
def test_decoding_the_codes_gives_the_embedding(name: str, levels: int | None) -> None:
    quantizer = make(**KINDS[name])
    x = latents()
    result = quantizer(x, num_quantizers=levels)
    assert result.embedding.shape == x.shape
    assert result.codes.shape == (2, 10, (levels or LEVELS) * quantizer.groups)
    assert result.codes.dtype == torch.int64
    assert 0 <= result.codes.min() <= result.codes.max() < quantizer.codebook_size
    assert torch.allclose(quantizer.decode(result.codes), result.embedding, atol=1e-5)


@pytest.mark.parametrize("name", ["vq", "projected", "grouped", "fsq"])
def test_more_levels_come_closer(name: str) -> None:
    quantizer = make(**KINDS[name], quantize_dropout=False)
    x = latents(8, 50, seed=9)
    target = x
    if name == "fsq":  # an untrained projection loses dimensions; what it keeps is what the levels come closer to
        target = ((x @ quantizer.project_in[0]).tanh()) @ quantizer.project_out[0]
    errors = [(quantizer(x, num_quantizers=n).embedding - target).square().mean() for n in (1, 2, 4)]
    assert errors[0] > errors[1] > errors[2]


@pytest.mark.parametrize("name", ["grouped", "lfq"])
def test_AM12_codes_are_level_major_so_the_first_columns_are_the_coarse_ones(name: str) -> None:
    quantizer = make(**KINDS[name])
    x = latents()
    whole = quantizer(x).codes
    for levels in (1, 2, 3):
        assert torch.equal(quantizer(x, num_quantizers=levels).codes, whole[..., : levels * 2])
    # Changing the channels of the second group changes its columns and no others.
    changed = x.clone()
    changed[..., DIM // 2 :] = 3 * latents(seed=5)[..., DIM // 2 :]
    moved = (quantizer(changed).codes != whole).any(0).any(0)
    assert not moved[0::2].any()
    assert moved[1]


@pytest.mark.parametrize("name", ["grouped", "lfq"])
def test_AM30_every_call_gives_the_same_three_dimensional_codes(name: str) -> None:
    quantizer = make(**KINDS[name])
    codes = quantizer(latents()).codes
    assert codes.dim() == 3
    assert quantizer.decode(codes[..., :2]).shape == (2, 10, DIM)


@pytest.mark.parametrize("name", KINDS)
def test_AM6_every_level_and_group_has_codes_of_its_own(name: str) -> None:
    quantizer = make(**KINDS[name])
    columns = LEVELS * quantizer.groups
    codes = torch.full((1, quantizer.codebook_size * columns, columns), -1)
    for column in range(columns):
        place = column * quantizer.codebook_size
        codes[0, place : place + quantizer.codebook_size, column] = torch.arange(quantizer.codebook_size)
    embedding = quantizer.decode(codes)[0]
    assert len(torch.unique(embedding, dim=0)) == len(embedding)


def test_absent_levels_decode_to_nothing_and_are_no_code() -> None:
    quantizer = make()
    codes = quantizer(latents()).codes
    cut = codes.clone()
    cut[..., 2:] = -1
    assert torch.allclose(quantizer.decode(cut), quantizer.decode(codes[..., :2]))


def test_codes_that_cannot_be_ours_are_refused() -> None:
    quantizer = make(groups=2)
    for bad in (torch.full((1, 2, 2), SIZE), torch.full((1, 2, 2), -2), torch.zeros(1, 2, 3), torch.zeros(1, 2, 10)):
        with pytest.raises(ValueError, match="Codes"):
            quantizer.decode(bad.long())
    with pytest.raises(ValueError, match="levels"):
        quantizer(latents(), num_quantizers=LEVELS + 1)


@pytest.mark.parametrize("name", KINDS)
def test_codes_do_not_depend_on_autocast(name: str) -> None:
    quantizer = make(**KINDS[name])
    with torch.autocast("cpu", torch.bfloat16):
        codes = quantizer(latents()).codes
    assert torch.equal(codes, quantizer(latents()).codes)


# gradients


@pytest.mark.parametrize("name", KINDS)
def test_gradients_reach_the_encoder_and_the_projections(name: str) -> None:
    quantizer = make(**KINDS[name])
    x = latents().requires_grad_()
    result = collected(quantizer, x)
    (result.embedding.square().sum() + result.commitment).backward()
    assert x.grad is not None
    assert x.grad.abs().sum() > 0
    learned = {name: p for name, p in quantizer.named_parameters() if p.requires_grad}
    assert all(p.grad is not None and p.grad.isfinite().all() for p in learned.values())


def test_commitment_is_the_sum_of_squares_that_the_levels_leave() -> None:
    quantizer = make(commitment_weight=0.5)
    x = latents().requires_grad_()
    result = quantizer(x)
    expected = torch.zeros(())
    for levels in range(1, LEVELS + 1):
        embedding = quantizer.decode(result.codes[..., :levels])
        expected = expected + 0.5 * (x - embedding).square().mean()
    assert torch.allclose(result.commitment, expected)
    (grad,) = torch.autograd.grad(result.commitment, x)
    (wanted,) = torch.autograd.grad(expected, x)
    assert torch.allclose(grad, wanted, atol=1e-6)


def test_rotation_trick_keeps_the_value_and_turns_the_gradient() -> None:
    x, target = latents().requires_grad_(), latents(seed=2)
    for pass_gradient in (rotate_onto, straight_through):
        assert torch.allclose(pass_gradient(x, target), target, atol=1e-6)
    (turned,) = torch.autograd.grad(rotate_onto(x, target).sum(), x)
    (copied,) = torch.autograd.grad(straight_through(x, target).sum(), x)
    assert torch.allclose(copied, torch.ones_like(x))
    # A rotation and scaling: the gradient's length is scaled by |target| / |x|, its angle to x is that of 1 to target.
    scale = target.norm(dim=-1) / x.norm(dim=-1)
    assert torch.allclose(turned.norm(dim=-1), scale * DIM**0.5, rtol=1e-4)
    cosine = torch.nn.functional.cosine_similarity
    assert torch.allclose(cosine(turned, x, dim=-1), cosine(copied, target, dim=-1), atol=1e-4)


def test_rotation_of_nothing_is_finite() -> None:
    x = torch.zeros(1, 2, 3, requires_grad=True)
    rotate_onto(x, torch.ones(1, 2, 3)).sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()


# options


@pytest.mark.parametrize(
    "options",
    [
        {"ema_decay": 0.5},
        {"dead_code_threshold": 90},
        {"kmeans_init": False},
        {"factorised_dim": 3},
        {"groups": 2},
        {"l2_normalised": True},
        {"codebook_size": 8},
    ],
    ids=lambda options: next(iter(options)),
)
def test_options_change_the_codebooks_that_are_learned(options: dict[str, Any]) -> None:
    plain, other = make(), make(**options)
    for quantizer in (plain, other):
        collected(quantizer, latents(8, 20))
        quantizer.commit()
    left, right = plain.codebooks.vectors, other.codebooks.vectors
    assert left.shape != right.shape or not torch.allclose(left, right)


def test_sampled_codes_vary_but_stay_near() -> None:
    quantizer = make(stochastic_sample_codes=True, quantize_dropout=False)
    x = latents(8, 50, seed=9)
    first, again = (collected(quantizer, x, seed=seed) for seed in (0, 1))
    assert not torch.equal(first.codes, again.codes)
    assert torch.equal(quantizer(x).codes, make(quantize_dropout=False)(x).codes), "only when collecting"
    best = (quantizer(x, num_quantizers=1).embedding - x).square().mean()
    sampled = (quantizer.decode(first.codes[..., :1]) - x).square().mean()
    assert best < sampled < 2 * best


def test_options_that_contradict_each_other_are_refused() -> None:
    for kind, options, message in (
        ("fsq", {"levels": (4, 5)}, "do not make"),
        ("fsq", {"levels": None}, "do not make"),
        ("fsq", {"levels": (8, 2)}, "at least 3"),
        ("vq", {"levels": (4, 4)}, "belong to"),
        ("lfq", {"codebook_size": 12}, "power of two"),
        ("vq", {"groups": 3}, "groups"),
    ):
        with pytest.raises(ValueError, match=message):
            make(kind=kind, **options)


@pytest.mark.parametrize("name", KINDS)
def test_clip_invariance_asks_clips_to_share_their_codes(name: str) -> None:
    x = (latents(4, 10) + 5 * latents(4, 1, seed=2)).requires_grad_()
    plain = make(**KINDS[name])(x).commitment
    weighted = make(**KINDS[name], clip_invariance=2.0)(x).commitment
    assert torch.allclose(weighted - plain, 2 * share_between_clips(x), atol=1e-4)
    (grad,) = torch.autograd.grad(weighted - plain, x)
    assert share_between_clips(x - 5 * grad) < share_between_clips(x)


def test_share_between_clips_is_a_share_and_knows_padding() -> None:
    x = latents(4, 10)
    alike = x - x.mean(1, keepdim=True)
    assert share_between_clips(alike) < 1e-6
    assert share_between_clips(x.mean(1, keepdim=True).expand_as(x)) == pytest.approx(1, abs=1e-4)
    assert share_between_clips(x[:1]) < 1e-6, "one clip alone"
    mask = torch.arange(15).expand(4, 15) < 10
    padded = torch.cat((x, torch.full((4, 5, DIM), 9.0)), dim=1)
    assert torch.allclose(share_between_clips(padded, mask), share_between_clips(x))
    assert share_between_clips(torch.zeros(2, 3, DIM)) == 0


def test_lookup_free_penalty_prefers_bits_of_equal_frequency() -> None:
    quantizer = make(kind="lfq", num_quantizers=1)
    even = collected(quantizer, latents(8, 50) * 3).commitment
    one_sided = collected(quantizer, latents(8, 50).abs() * 3 @ torch.ones(DIM, DIM)).commitment
    assert even < one_sided
