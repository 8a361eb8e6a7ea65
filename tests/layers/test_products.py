"""Packed weights: what they give, when they serve, and that nothing of them is left."""

import pytest
import torch
from torch import nn

from madrigal.layers.feed_forward import FeedForward
from madrigal.layers.products import Linear, packed
from madrigal.layers.transformer import Transformer

PRECISIONS = pytest.mark.parametrize(("low", "tolerance"), [(False, 1e-5), (True, 2e-2)])


@PRECISIONS
@pytest.mark.parametrize("bias", [True, False])
@torch.no_grad()
def test_a_packed_product_is_the_same(bias: bool, low: bool, tolerance: float) -> None:
    torch.manual_seed(0)
    linear, x = Linear(24, 10, bias=bias), torch.randn(2, 7, 24)
    with torch.autocast("cpu", torch.bfloat16, enabled=low):
        plain = linear(x)
        with packed(linear):
            assert linear.packed
            found = linear(x)
        assert not linear.packed
    assert found.dtype == plain.dtype
    torch.testing.assert_close(found, plain, rtol=tolerance, atol=tolerance)


@PRECISIONS
@torch.no_grad()
def test_a_packed_feed_forward_is_the_same(low: bool, tolerance: float) -> None:
    torch.manual_seed(0)
    layer, x = FeedForward(20), torch.randn(3, 5, 20)
    with torch.autocast("cpu", torch.bfloat16, enabled=low):
        plain = layer(x)
        with packed(layer):
            found = layer(x)
    torch.testing.assert_close(found, plain, rtol=tolerance, atol=tolerance)


@PRECISIONS
@pytest.mark.parametrize("more", [{}, {"cross_attend": True}, {"skips": True, "causal": False, "qk_norm": True}])
@torch.no_grad()
def test_a_packed_transformer_is_the_same(more: dict[str, bool], low: bool, tolerance: float) -> None:
    torch.manual_seed(0)
    transformer, x = Transformer(32, 2, heads=2, dim_head=16, **more).eval(), torch.randn(2, 9, 32)
    for join in transformer.joins:
        nn.init.normal_(join.weight, std=0.1)
    context = torch.randn(2, 4, 32) if transformer.layers[0].cross is not None else None
    with torch.autocast("cpu", torch.bfloat16, enabled=low):
        plain = transformer(x, context=context)
        with packed(transformer):
            found = transformer(x, context=context)
    torch.testing.assert_close(found, plain, rtol=4 * tolerance, atol=4 * tolerance)


def test_what_learns_has_its_own_weights() -> None:
    """A gradient goes through the weights themselves, and what they become is what the next ones are packed from."""
    layer, x = FeedForward(8), torch.randn(2, 3, 8)
    with packed(layer):
        layer(x).sum().backward()
    assert all(weight.grad is not None for weight in layer.parameters())
    with torch.no_grad():
        for weight in layer.parameters():
            weight.mul_(0.5)
        plain = layer(x)
        with packed(layer):
            torch.testing.assert_close(layer(x), plain)


@torch.no_grad()
def test_other_precisions_are_not_packed() -> None:
    linear = Linear(4, 4).double()
    with packed(linear):
        assert not linear.packed
        assert linear(torch.ones(1, 4, dtype=torch.float64)).dtype == torch.float64
