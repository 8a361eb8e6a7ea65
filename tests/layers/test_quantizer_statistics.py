"""The statistics of residual quantizers: they move once a step, over all ranks, and padding is none of them."""

import copy
from typing import Any

import pytest
import torch
from small_quantizers import DIM, KINDS, LEVELS, SIZE, collected, latents, make, same, state
from torch import Tensor

from madrigal.layers.quantizers import Quantizer, build_quantizer
from madrigal.layers.residual_vq import ResidualVQ


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
