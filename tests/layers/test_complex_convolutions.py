"""Complex convolution: equal to torch's, to its second derivative, and lazy where nobody asks."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from madrigal.layers import complex_convolutions
from madrigal.layers.complex_convolutions import Complex, ComplexConv2d

CASES = [(1, 2, (1, 1)), (2, 3, (2, 1)), (9, 2, (1, 2))]


def complex_signal(channels: int) -> Complex:
    real, imag = torch.randn(2, 1, channels, 6, 5, dtype=torch.float64)
    return real.requires_grad_(), imag.requires_grad_()


def layer(channels: int, out: int, stride: tuple[int, int]) -> ComplexConv2d:
    torch.manual_seed(0)
    return ComplexConv2d(channels, out, (3, 4), stride=stride, padding=(1, 1)).double()


@pytest.mark.parametrize(("channels", "out", "stride"), CASES)
def test_equals_the_convolution_of_complex_numbers(channels: int, out: int, stride: tuple[int, int]) -> None:
    conv, x = layer(channels, out, stride), complex_signal(channels)
    bias = torch.complex(conv.bias[0], conv.bias[1]).flatten()
    wanted = F.conv2d(torch.complex(*x), torch.complex(*conv.kernel), bias, stride, (1, 1))
    torch.testing.assert_close(torch.complex(*conv(x)), wanted)


@pytest.mark.parametrize(("channels", "out", "stride"), CASES)
def test_first_and_second_derivative(channels: int, out: int, stride: tuple[int, int]) -> None:
    conv, x = layer(channels, out, stride), complex_signal(channels)

    def call(real: Tensor, imag: Tensor, weight: Tensor, bias: Tensor) -> Any:
        return torch.func.functional_call(conv, {"weight": weight, "bias": bias}, ((real, imag),))

    arguments = (*x, conv.weight, conv.bias)
    assert torch.autograd.gradcheck(call, arguments, fast_mode=True)
    assert torch.autograd.gradgradcheck(call, arguments, fast_mode=True)


def test_backward_computes_only_the_side_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    conv, x = layer(2, 3, (1, 1)), complex_signal(2)
    real, imag = conv(x)
    called = []
    for name in ("_to_signal", "_to_kernel"):
        original = getattr(complex_convolutions, name)
        spy = lambda *args, name=name, original=original: called.append(name) or original(*args)
        monkeypatch.setattr(complex_convolutions, name, spy)
    (real + imag).sum().backward(inputs=list(x), retain_graph=True)
    assert set(called) == {"_to_signal"}
    called.clear()
    (real + imag).sum().backward(inputs=[conv.weight, conv.bias])
    assert set(called) == {"_to_kernel"}


def test_two_convolutions_in_one() -> None:
    torch.manual_seed(0)
    first = ComplexConv2d(1, 4, (5, 5), padding=(2, 2)).double()
    second = ComplexConv2d(4, 3, (3, 3), padding=(1, 1)).double()
    x = complex_signal(1)
    for one, two in zip(second.after(first, x), second(first(x)), strict=True):
        assert one.shape == two.shape
        inside = (..., slice(1, -1), slice(1, -1))
        torch.testing.assert_close(one[inside], two[inside])


def test_follows_autocast() -> None:
    conv, x = ComplexConv2d(2, 3, (3, 3)), complex_signal(2)
    x = x[0].detach().float().requires_grad_(), x[1].detach().float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        real, imag = conv(x)
    (real + imag).float().sum().backward()
    assert x[0].grad is not None
    assert x[0].grad.dtype == torch.float32
    assert conv.weight.grad is not None
