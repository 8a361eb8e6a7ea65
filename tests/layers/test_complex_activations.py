"""ModReLU: what it does to modulus and phase, and its derivatives in pieces and twice."""

from typing import Any

import pytest
import torch
from torch import Tensor

from madrigal.layers import complex_activations
from madrigal.layers.complex_activations import ModReLU


def made(x: Tensor, z: Tensor, shift: Tensor) -> Any:
    """x + ModReLU(z) by its definition."""
    return x + torch.polar((z.abs() + shift).clamp(min=0), z.angle())


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("shift", [-0.7, 0.0, 0.4])
def test_shifts_the_modulus_and_keeps_the_phase(
    layout: torch.memory_format, shift: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(complex_activations, "PIECE", 7)
    torch.manual_seed(0)
    parts = torch.randn(4, 2, 3, 4, 5).unbind()
    x_real, x_imag, z_real, z_imag = (part.contiguous(memory_format=layout).requires_grad_() for part in parts)
    activation = ModReLU()
    with torch.no_grad():
        activation.shift.fill_(shift)
    real, imag = activation((x_real, x_imag), (z_real, z_imag))
    wanted = made(torch.complex(x_real, x_imag), torch.complex(z_real, z_imag), activation.shift)
    torch.testing.assert_close(torch.complex(real, imag), wanted, atol=1e-5, rtol=1e-4)
    weights = torch.randn_like(real), torch.randn_like(imag)
    leaves = [x_real, x_imag, z_real, z_imag, activation.shift]
    gradients = torch.autograd.grad((real * weights[0] + imag * weights[1]).sum(), leaves)
    by_definition = torch.autograd.grad((wanted.real * weights[0] + wanted.imag * weights[1]).sum(), leaves)
    torch.testing.assert_close(gradients, by_definition, atol=1e-4, rtol=1e-3)


def test_first_and_second_derivative() -> None:
    torch.manual_seed(0)
    parts = [part.requires_grad_() for part in torch.randn(4, 1, 2, 3, 2, dtype=torch.float64).unbind()]
    activation = ModReLU().double()

    def call(*parts: Tensor) -> Any:
        return torch.func.functional_call(activation, {"shift": parts[4]}, (parts[:2], parts[2:4]))

    arguments = (*parts, torch.tensor(-0.3, dtype=torch.float64, requires_grad=True))
    assert torch.autograd.gradcheck(call, arguments)
    assert torch.autograd.gradgradcheck(call, arguments)


def test_silence_has_a_gradient() -> None:
    zeros = torch.zeros(2, 1, 1, 2, 2, requires_grad=True)
    activation = ModReLU()
    real, imag = activation((zeros[0], zeros[1]), (zeros[0], zeros[1]))
    (real + imag).sum().backward()
    assert zeros.grad is not None
    assert zeros.grad.isfinite().all()
