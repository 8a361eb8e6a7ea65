"""The gated feed-forward, whose way of lying in memory nobody should notice."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from madrigal.layers.feed_forward import GEGLU, FeedForward, _opened


def plain(layer: FeedForward, x: Tensor) -> Tensor:
    norm, inwards, _, outwards = layer
    value, gate = inwards(norm(x)).chunk(2, dim=-1)
    out: Tensor = outwards(value * F.gelu(gate))
    return out


def test_it_and_its_gradients_are_those_of_the_formula() -> None:
    torch.manual_seed(0)
    layer = FeedForward(10).double()
    x = torch.randn(2, 3, 10, dtype=torch.float64, requires_grad=True)
    made, wanted = layer(x), plain(layer, x)
    torch.testing.assert_close(made, wanted)
    inputs, above = [x, *layer.parameters()], torch.randn_like(made)
    pairs = zip(torch.autograd.grad(made, inputs, above), torch.autograd.grad(wanted, inputs, above), strict=True)
    for found, true in pairs:
        torch.testing.assert_close(found, true)
        assert found.is_contiguous()
    with torch.no_grad():
        torch.testing.assert_close(layer(x), wanted)


def test_traced_it_has_the_same_gradients() -> None:
    torch.manual_seed(0)
    layer, x = FeedForward(10).double(), torch.randn(2, 3, 10, dtype=torch.float64, requires_grad=True)
    traced = torch.compile(layer, backend="aot_eager", fullgraph=True)
    inputs = [x, *layer.parameters()]
    ways = [torch.autograd.grad(way(x).square().sum(), inputs) for way in (layer, traced)]
    torch.testing.assert_close(*ways)


def test_the_gate_that_is_traced_in_16_bits_is_the_same() -> None:
    gate = torch.linspace(-9, 9, 10_001, dtype=torch.float64, requires_grad=True)
    wanted = F.gelu(gate)
    opened, slope = _opened(gate)
    torch.testing.assert_close(opened, wanted, rtol=0, atol=1e-6)
    torch.testing.assert_close(slope, torch.autograd.grad(wanted.sum(), gate)[0], rtol=0, atol=1e-6)
    # Both halves of the gradient, and not in each other's place.
    x = torch.randn(8, 5, dtype=torch.bfloat16, requires_grad=True)
    module = GEGLU()
    traced = torch.compile(module, backend="aot_eager", fullgraph=True)
    above = torch.randn(4, 5, dtype=torch.bfloat16)
    ways = [torch.autograd.grad(way(x), x, above)[0] for way in (module, traced)]
    torch.testing.assert_close(*ways, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("learns", [True, False])
def test_dropout_is_of_training_alone(learns: bool) -> None:
    gate, x = GEGLU(0.5), torch.ones(8, 100)
    with torch.set_grad_enabled(learns):
        assert (gate(x) == 0).float().mean() == pytest.approx(0.5, abs=0.2)
        assert (gate.eval()(x) > 0).all()


def test_no_rows_make_no_rows() -> None:
    assert FeedForward(8)(torch.zeros(0, 5, 8)).shape == (0, 5, 8)
