"""Norms that adapt to a vector, and layers that are joined across the middle."""

import weakref
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from small_transformers import DIM, mask_of, small
from torch import Tensor

from madrigal.layers.norm import AdaptiveRMSNorm, adapted_to
from madrigal.layers.placing import normed_and_turned
from madrigal.layers.positions import RotaryPositions, turn
from madrigal.layers.transformer import Transformer

COND = 6


def plain_norm(norm: AdaptiveRMSNorm, x: Tensor, cond: Tensor) -> Tensor:
    scale, shift = F.linear(cond, norm.to_scale_and_shift.weight, norm.to_scale_and_shift.bias).chunk(2, dim=-1)
    return F.rms_norm(x, x.shape[-1:]) * norm.weight * (1 + scale[:, None]) + shift[:, None]


def test_the_quick_norm_is_the_plain_one_forward_and_backward() -> None:
    torch.manual_seed(0)
    norm = AdaptiveRMSNorm(8, COND).double()
    for parameter in norm.parameters():
        torch.nn.init.normal_(parameter)
    x, cond = torch.randn(3, 5, 8, dtype=torch.float64), torch.randn(3, COND, dtype=torch.float64)
    above = torch.randn(3, 5, 8, dtype=torch.float64)
    gradients = []
    for call in (norm, lambda *given: plain_norm(norm, *given)):
        inputs = [x.clone().requires_grad_(), cond.clone().requires_grad_(), *norm.parameters()]
        out = call(*inputs[:2])
        gradients.append([out, *torch.autograd.grad(out, inputs, above)])
    for found, wanted in zip(*gradients, strict=True):
        torch.testing.assert_close(found, wanted)
    with torch.no_grad():
        torch.testing.assert_close(norm(x, cond), gradients[0][0])


@pytest.mark.parametrize("turned", [True, False])
@pytest.mark.parametrize("rows", [True, False])
def test_queries_normed_and_turned_at_once_are_as_one_after_the_other(turned: bool, rows: bool) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 5, 2, 4, dtype=torch.float64, requires_grad=True)
    scale = torch.randn(3, 1, 2, 4, dtype=torch.float64, requires_grad=True)
    cos, sin = RotaryPositions(8).table(9, torch.float64, torch.device("cpu"))
    places = torch.tensor([[0, 1, 2, 3, 4], [3, 4, 4, 5, 6]])
    rotation = (cos[places].unsqueeze(1), sin[places].unsqueeze(1)) if rows else (cos[:5], sin[:5])
    found = normed_and_turned(x, scale, rotation if turned else None)
    wanted = F.rms_norm(x, (2, 4), eps=torch.finfo(torch.float32).eps) * scale
    wanted = turn(wanted, *rotation) if turned else wanted
    torch.testing.assert_close(found, wanted)
    above = torch.randn_like(x)
    for one, other in zip(*(torch.autograd.grad(out, (x, scale), above) for out in (found, wanted)), strict=True):
        torch.testing.assert_close(one, other)
    with torch.no_grad():
        torch.testing.assert_close(normed_and_turned(x, scale, rotation if turned else None), wanted)


@pytest.mark.parametrize("cross_attend", [True, False])
def test_it_starts_as_a_transformer_that_does_not_adapt(cross_attend: bool) -> None:
    options: dict[str, Any] = {"heads": 2, "dim_head": 8, "causal": False, "cross_attend": cross_attend}
    adaptive = Transformer(DIM, 4, cond_dim=COND, skips=True, **options)
    plain = Transformer(DIM, 4, **options)
    plain.load_state_dict(adaptive.state_dict(), strict=False)
    x = torch.randn(2, 7, DIM)
    torch.testing.assert_close(adaptive(x, cond=torch.randn(2, COND)), plain(x))


def test_a_row_adapts_to_its_own_vector() -> None:
    model = small(causal=False, cond_dim=COND)
    x, cond = torch.randn(2, 7, DIM), torch.randn(2, COND)
    together = model(x, cond=cond)
    for row in range(2):
        torch.testing.assert_close(together[row], model(x[row : row + 1], cond=cond[row : row + 1])[0])
    assert not torch.allclose(together, model(x, cond=cond.flip(0)), atol=1e-3)


def test_adapted_beforehand_it_is_the_same() -> None:
    model = small(causal=False, cond_dim=COND)
    x, conds = torch.randn(2, 7, DIM), torch.randn(3, 2, COND)
    with torch.no_grad():
        for cond, made in zip(conds, adapted_to(model, conds), strict=True):
            torch.testing.assert_close(model(x, cond=made), model(x, cond=cond))


@pytest.mark.parametrize("depth", [1, 4, 5])
def test_VB11_skips_join_the_first_half_to_the_second(depth: int) -> None:
    joined = small(depth=depth, causal=False, skips=True)
    assert len(joined.joins) == depth // 2
    x = torch.randn(2, 7, DIM)
    mask = mask_of("11111..", "1111111")
    together = joined(x, mask=mask)
    torch.testing.assert_close(together[0, :5], joined(x[:1, :5])[0], rtol=1e-4, atol=1e-5)
    if depth > 1:
        with torch.no_grad():
            for join in joined.joins:
                join.weight[:, DIM:] = 0  # only what is joined, not what it is joined to
        assert not torch.allclose(joined(x, mask=mask), together, atol=1e-3)


def kept(model: Transformer) -> int:
    """How many inputs of earlier layers are alive while a layer runs, at the most."""
    inputs: list[weakref.ref[Tensor]] = []
    alive: list[int] = []

    def note(_: Any, given: tuple[Tensor, ...]) -> None:
        alive.append(sum(ref() is not None for ref in inputs))
        inputs.append(weakref.ref(given[0]))

    for layer in model.layers:
        layer.register_forward_pre_hook(note)
    with torch.no_grad():
        model(torch.randn(1, 3, DIM))
    return max(alive)


def test_VB18_nothing_is_kept_where_nothing_is_joined() -> None:
    assert kept(small(depth=8, causal=False)) <= 1
    assert kept(small(depth=8, causal=False, skips=True)) >= 3


def test_a_causal_transformer_with_skips_goes_on_from_a_cache() -> None:
    model = small(depth=4, skips=True)
    x = torch.randn(2, 6, DIM)
    cache = model.new_cache(2)
    pieces = [model(x[:, :4], cache=cache), model(x[:, 4:5], cache=cache), model(x[:, 5:], cache=cache)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("causal", [True, False])
def test_half_precision_does_not_round_the_residual(causal: bool) -> None:
    model = small(causal=causal, cond_dim=COND, skips=True, qk_norm=True)
    x, cond = torch.randn(2, 7, DIM), torch.randn(2, COND)
    with torch.autocast("cpu", torch.bfloat16):
        low = model(x, cond=cond)
        low.square().sum().backward()
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, model(x, cond=cond), rtol=0.1, atol=0.3)


def test_what_does_not_fit_is_refused() -> None:
    x, cond = torch.randn(1, 3, DIM), torch.randn(1, COND)
    with pytest.raises(ValueError, match="needs cond in every call"):
        small(cond_dim=COND)(x)
    with pytest.raises(ValueError, match="needs cond in every call"):
        small()(x, cond=cond)
    adaptive = small(cond_dim=COND)
    with pytest.raises(ValueError, match="token by token"):
        adaptive(x, cond=cond, cache=adaptive.new_cache(1))
    with pytest.raises(ValueError, match="one residual stream"):
        small(skips=True, residual_streams=2)
