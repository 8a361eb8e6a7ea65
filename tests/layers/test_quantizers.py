"""Residual quantizers: codes that mean one thing, statistics that move once a step, options that do something."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from madrigal.layers.kmeans import POINTS_PER_CENTRE, kmeans, nearness
from madrigal.layers.quantizers import Quantizer, build_quantizer
from madrigal.layers.residual_quantizer import share_between_clips
from madrigal.layers.residual_vq import ResidualVQ, rotate_onto, straight_through

DIM, SIZE, LEVELS = 8, 16, 4
KINDS: dict[str, dict[str, Any]] = {
    "vq": {},
    "projected": {"factorised_dim": 3},
    "cosine": {"factorised_dim": 3, "l2_normalised": True},
    "grouped": {"groups": 2},
    "lfq": {"kind": "lfq", "groups": 2},
    "fsq": {"kind": "fsq", "levels": (4, 4)},
}


def make(**options: Any) -> Any:
    """A small quantizer, started from the same noise as `latents`."""
    torch.manual_seed(0)
    kind = options.pop("kind", "vq")
    settings = {"dim": DIM, "codebook_size": SIZE, "num_quantizers": LEVELS, **options}
    quantizer = build_quantizer(kind, **settings)
    quantizer.initialize(latents(8, 50, seed=9).flatten(0, 1))
    return quantizer


def latents(batch: int = 2, frames: int = 10, *, seed: int = 1) -> Tensor:
    return torch.randn(batch, frames, DIM, generator=torch.Generator().manual_seed(seed))


def collected(quantizer: Quantizer, x: Tensor, *, seed: int = 0, **options: Any) -> Any:
    torch.manual_seed(seed)
    return quantizer(x, collect=True, **options)


def state(quantizer: Quantizer) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in quantizer.state_dict().items()}


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return all(torch.equal(left[name], right[name]) for name in left)


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


# statistics


@pytest.mark.parametrize("name", KINDS)
def test_AT11_statistics_move_once_a_step_and_only_on_commit(name: str) -> None:
    quantizer = make(**KINDS[name])
    before = state(quantizer)
    quantizer(latents())
    collected(quantizer, latents())
    collected(quantizer, latents(seed=2))
    assert same(before, state(quantizer))
    quantizer.commit()
    after = state(quantizer)
    assert not same(before, after)
    quantizer.commit()
    assert same(after, state(quantizer))


@pytest.mark.parametrize("name", KINDS)
def test_a_skipped_step_leaves_no_trace(name: str) -> None:
    quantizer = make(**KINDS[name])
    before = state(quantizer)
    collected(quantizer, latents())
    quantizer.discard()
    quantizer.commit()
    assert same(before, state(quantizer))


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("accumulation", [1, 2])
def test_two_ranks_come_to_the_same_codebooks_as_one_process(name: str, accumulation: int) -> None:
    options = {**KINDS[name], "dead_code_threshold": 80}
    alone = make(**options)
    ranks = [copy.deepcopy(alone), copy.deepcopy(alone)]
    batches = [latents(seed=20 + j) for j in range(2 * accumulation)]
    for j, batch in enumerate(batches):
        collected(alone, batch, seed=j)
        collected(ranks[j % 2], batch, seed=j)
    before = state(alone)
    torch.manual_seed(1)
    alone.commit()
    mailbox = [_pending(rank) for rank in ranks]
    for number, rank in enumerate(ranks):
        torch.manual_seed(2 + number)
        rank.commit(*_callables(mailbox, _pending(rank)))
    assert not same(before, state(alone))
    assert same(state(ranks[0]), state(ranks[1]))
    for tensor_name, tensor in state(alone).items():
        assert torch.allclose(tensor, state(ranks[0])[tensor_name], atol=1e-5)
    if accumulation == 1:
        assert same(state(alone), state(ranks[0]))


def _pending(quantizer: Quantizer) -> list[Tensor]:
    """What a rank is going to send, in the order of sending."""
    sent = [quantizer.pending_usage.clone()]
    if isinstance(quantizer, ResidualVQ):
        sent += [quantizer.codebooks.pending.clone(), torch.stack(quantizer.codebooks.pools)]
    return sent


def _callables(mailbox: list[list[Tensor]], own: list[Tensor]) -> tuple[Any, Any]:
    """reduce and gather of a rank whose peers' messages are in the mailbox."""
    turn = iter(range(len(own)))

    def reduce(tensor: Tensor) -> Tensor:
        index = next(turn)
        assert torch.equal(tensor, own[index])
        return tensor.copy_(sum(rank[index] for rank in mailbox))  # type: ignore[arg-type]

    def gather(tensor: Tensor) -> list[Tensor]:
        index = next(turn)
        assert torch.equal(tensor.nan_to_num(), own[index].nan_to_num())
        return [rank[index] for rank in mailbox]

    return reduce, gather


def test_codes_move_to_the_mean_of_their_points() -> None:
    quantizer = make(ema_decay=0.0, dead_code_threshold=0, quantize_dropout=False)
    x = latents(8, 50)
    owners = collected(quantizer, x).codes[..., 0].flatten()
    quantizer.commit()
    used = owners.unique()
    means = torch.stack([x.flatten(0, 1)[owners == code].mean(0) for code in used])
    assert torch.allclose(quantizer.codebooks.vectors[0, 0, used], means, atol=1e-5)


def test_codebooks_are_parameters_without_gradient_and_counts_are_buffers() -> None:
    quantizer = make()
    assert not dict(quantizer.named_parameters())["codebooks.vectors"].requires_grad
    assert {"usage", "codebooks.mass", "codebooks.initialized"} <= set(dict(quantizer.named_buffers()))
    assert not any("pending" in name for name in quantizer.state_dict())


def test_dead_codes_come_back_to_life() -> None:
    torch.manual_seed(0)
    quantizer = build_quantizer("vq", dim=DIM, codebook_size=SIZE, num_quantizers=1, kmeans_init=False)
    quantizer.codebooks.vectors[0, 0, 1:] += 100  # type: ignore[index, union-attr]
    for step in range(150):
        collected(quantizer, latents(8, 20, seed=step))
        quantizer.commit()
    assert quantizer.perplexity().item() > SIZE / 2


def test_dead_codes_find_points_in_many_dimensions_too() -> None:
    # There, a code that is put onto a point is nearest to no other point: it must begin beside a code in use.
    torch.manual_seed(0)
    quantizer: Any = build_quantizer("vq", dim=64, codebook_size=SIZE, num_quantizers=1, dead_code_threshold=20)
    quantizer.codebooks.vectors[0, 0] = 100 + torch.randn(SIZE, 64)
    quantizer.codebooks.vectors[0, 0, 0] = 0
    for _ in range(80):
        quantizer(torch.randn(8, 20, 64), collect=True)
        quantizer.commit()
    codes = quantizer(torch.randn(8, 50, 64)).codes
    used = torch.bincount(codes.flatten(), minlength=SIZE) > 0
    assert used.float().mean() > 0.9


def test_a_level_that_a_step_did_not_reach_stays_as_it_is() -> None:
    quantizer = make(dead_code_threshold=99)
    before = state(quantizer)
    collected(quantizer, latents(), num_quantizers=2)
    quantizer.commit()
    after = state(quantizer)
    for name in ("codebooks.vectors", "codebooks.mass", "usage"):
        assert torch.equal(after[name][2:], before[name][2:])
        assert not torch.equal(after[name][:2], before[name][:2])


@pytest.mark.parametrize("name", KINDS)
def test_padding_counts_in_no_statistics_and_no_loss(name: str) -> None:
    quantizer, other = make(**KINDS[name], quantize_dropout=False), make(**KINDS[name], quantize_dropout=False)
    x = latents()
    padded = torch.cat((x, 5 * latents(seed=3)), dim=1)
    mask = torch.arange(20).expand(2, 20) < 10
    whole = collected(quantizer, x)
    masked = collected(other, padded, mask=mask)
    assert torch.allclose(whole.commitment, masked.commitment, atol=1e-6)
    assert torch.equal(whole.codes, masked.codes[:, :10])
    quantizer.commit()
    other.commit()
    assert torch.allclose(quantizer.usage, other.usage)
    if isinstance(quantizer, ResidualVQ):
        assert torch.allclose(quantizer.codebooks.mass, other.codebooks.mass)


def test_perplexity_is_that_of_the_committed_usage() -> None:
    quantizer = make(groups=2)
    quantizer.usage.zero_()
    quantizer.usage[..., :4] = 7.0
    quantizer.usage[1, 0] = 1.0
    expected = torch.full((LEVELS * 2,), 4.0)
    expected[2] = SIZE
    assert torch.allclose(quantizer.perplexity(), expected, rtol=1e-4)


# quantizer dropout


def test_dropped_levels_are_absent_and_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    quantizer = make()
    points: list[int] = []
    search = quantizer.codebooks.search

    def counting(level: int, x: Tensor, **options: Any) -> Tensor:
        points.append(x.shape[1])
        return search(level, x, **options)

    monkeypatch.setattr(quantizer.codebooks, "search", counting)
    result = collected(quantizer, latents(16, 5))
    levels = (result.codes >= 0).sum(-1)
    assert levels.unique().tolist() == [2, 3, 4]
    assert (levels == levels[:, :1]).all(), "one draw for each row"
    assert sum(points) == levels.sum()
    assert torch.allclose(quantizer.decode(result.codes), result.embedding, atol=1e-5)


def test_dropout_draws_from_torchs_generator_alone() -> None:
    quantizer = make()
    first, again, other = (collected(quantizer, latents(16), seed=seed).codes for seed in (3, 3, 4))
    assert torch.equal(first, again)
    assert not torch.equal(first >= 0, other >= 0)


@pytest.mark.parametrize(
    ("options", "possible"),
    [
        ({"dropout_cutoff_index": 0}, [1, 2, 3, 4]),
        ({"dropout_cutoff_index": 2}, [3, 4]),
        ({"dropout_multiple_of": 2}, [2, 4]),
        ({"quantize_dropout": False}, [4]),
    ],
)
def test_dropout_options_say_which_numbers_are_drawn(options: dict[str, Any], possible: list[int]) -> None:
    codes = collected(make(**options), latents(64, 1)).codes
    assert (codes >= 0).sum(-1).unique().tolist() == possible


def test_dropout_is_asked_for_by_the_call_and_not_by_the_mode() -> None:
    quantizer = make().train()
    assert (quantizer(latents(16)).codes >= 0).all()
    torch.manual_seed(0)
    assert (quantizer(latents(16), dropout=True).codes < 0).any()
    assert (collected(quantizer.eval(), latents(16)).codes < 0).any()
    assert (collected(quantizer, latents(16), dropout=False).codes >= 0).all()
    assert (collected(quantizer, latents(16), num_quantizers=4).codes >= 0).all()


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


# k-means


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
