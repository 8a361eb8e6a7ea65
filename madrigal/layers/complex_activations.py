"""ModReLU, the rectifier of complex numbers, fused with the residual sum that follows it.

It is a dozen small steps for every number. Taken over whole tensors each would go through memory once more; taken over
pieces that stay in the cache they cost what reading the inputs and writing the outputs costs.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Function

from madrigal.layers.complex_convolutions import Complex

PIECE = 1 << 15
"""Numbers of each tensor that are worked on at a time: with all their intermediates they fit a core's cache."""

QUIET = 1e-8
"""Added to the squared modulus, which has no direction at zero."""


class ModReLU(nn.Module):
    """Shifts the modulus by a learned amount, cuts it at zero, keeps the phase, and adds the result to `x`."""

    def __init__(self) -> None:
        super().__init__()
        self.shift = nn.Parameter(torch.zeros(()))

    def forward(self, x: Complex, z: Complex) -> Complex:
        """x + ModReLU(z), of pairs of tensors of one shape and layout."""
        real, imag = _AddRectified.apply(*x, *z, self.shift)
        return real, imag


class _AddRectified(Function):
    @staticmethod
    def forward(ctx: Any, x_real: Tensor, x_imag: Tensor, z_real: Tensor, z_imag: Tensor, shift: Tensor) -> Complex:
        ctx.save_for_backward(z_real, z_imag, shift)
        out = Flat(x_real), Flat(x_real)
        for x_r, x_i, z_r, z_i, out_r, out_i in _pieces(out, x_real, x_imag, z_real, z_imag):
            scale = _inverse_modulus(z_r, z_i).mul_(shift).add_(1).relu_()
            torch.addcmul(x_r, z_r, scale, out=out_r)
            torch.addcmul(x_i, z_i, scale, out=out_i)
        return out[0].shaped(), out[1].shaped()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        (z_real, z_imag, shift), (g_real, g_imag) = ctx.saved_tensors, grads
        if torch.is_grad_enabled():  # This gradient will be differentiated again.
            return *grads, *_gradient(z_real, z_imag, g_real, g_imag, shift)
        out, to_shift = (Flat(z_real), Flat(z_real)), torch.zeros_like(shift)
        for z_r, z_i, g_r, g_i, out_r, out_i in _pieces(out, z_real, z_imag, g_real, g_imag):
            real, imag, along = _gradient(z_r, z_i, g_r, g_i, shift)
            out_r.copy_(real)
            out_i.copy_(imag)
            to_shift += along
        return *grads, out[0].shaped(), out[1].shaped(), to_shift


class Flat:
    """A tensor to be filled in the order in which another one, [batch, channels, height, width], lies in memory."""

    def __init__(self, like: Tensor) -> None:
        self.is_last = like.is_contiguous(memory_format=torch.channels_last)
        self.shape = like.movedim(1, -1).shape if self.is_last else like.shape
        self.values = like.new_empty(like.numel())

    def order(self, tensor: Tensor) -> Tensor:
        """The numbers of `tensor` in that order: a view, unless it lies otherwise."""
        return (tensor.movedim(1, -1) if self.is_last else tensor).reshape(-1)

    def shaped(self) -> Tensor:
        tensor = self.values.view(self.shape)
        return tensor.movedim(-1, 1) if self.is_last else tensor


def _pieces(out: tuple[Flat, Flat], *inputs: Tensor) -> Any:
    """The same pieces of all inputs and of what is to be filled."""
    flat = [*(out[0].order(tensor) for tensor in inputs), out[0].values, out[1].values]
    return zip(*(values.split(PIECE) for values in flat), strict=True)


def _inverse_modulus(z_real: Tensor, z_imag: Tensor) -> Tensor:
    return (z_real * z_real).addcmul_(z_imag, z_imag).add_(QUIET).rsqrt_()


def _gradient(z_r: Tensor, z_i: Tensor, g_r: Tensor, g_i: Tensor, shift: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Of z * relu(1 + shift / |z|) towards z and the shift, for the gradient g of the product."""
    inverse = _inverse_modulus(z_r, z_i)
    scale = (inverse * shift + 1).relu()
    along = torch.addcmul(g_r * z_r, g_i, z_i) * inverse * (scale > 0)
    turn = along * inverse * inverse * -shift
    return torch.addcmul(g_r * scale, turn, z_r), torch.addcmul(g_i * scale, turn, z_i), along.sum()
