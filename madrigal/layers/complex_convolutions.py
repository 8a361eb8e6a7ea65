"""Complex two-dimensional convolution at the cost of three real ones, also where it is differentiated twice.

A complex tensor is a pair of real ones. Convolution, and its gradients towards the signal and towards the kernel, are
all products of two complex things; each is written once, by Gauss's rule, and the derivative of each is given by the
other two. So a gradient penalty runs on the same fast kernels as the first derivative, where automatic differentiation
of real convolutions would use the largest tensors as kernels.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function

Complex = tuple[Tensor, Tensor]


class Shape(NamedTuple):
    """What a product's two operands do not say."""

    stride: tuple[int, int]
    padding: tuple[int, int]
    signal: torch.Size
    kernel: torch.Size


def convolve(x: Complex, kernel: Complex, shape: Shape, bias: Complex | None = None) -> Complex:
    """The output hangs on two nodes, so that backward can leave out the side whose gradient nobody asks for."""
    real, imag = _SignalSide.apply(*x, kernel, bias, shape)
    if torch.is_grad_enabled() and kernel[0].requires_grad:
        side = _KernelSide.apply(*kernel, *(bias or (None, None)), x, real.shape, shape)
        real, imag = _Joined.apply(real, imag, *side)
    return real, imag


class _SignalSide(Function):
    """Signal and kernel to output, in backward the gradient of the signal.

    The kernel comes in a tuple, where backward does not see it as something whose gradient is to be had here.
    """

    @staticmethod
    def forward(
        ctx: Any, x_real: Tensor, x_imag: Tensor, kernel: Complex, bias: Complex | None, shape: Shape
    ) -> Complex:
        ctx.kernel, ctx.shape = kernel, shape
        w_real, w_imag = kernel
        half_sum, half_difference = None, None
        if bias is not None:
            half_sum, half_difference = (bias[0] + bias[1]).flatten() / 2, (bias[1] - bias[0]).flatten() / 2
        both = _convolve(x_real + x_imag, w_real, half_sum, shape)
        from_imag = _convolve(x_imag, w_real + w_imag, half_difference, shape)
        from_real = _convolve(x_real, w_imag - w_real, half_difference, shape)
        return torch.sub(both, from_imag, out=from_imag), both.add_(from_real)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return *_ToSignal.apply(*grads, *ctx.kernel, ctx.shape), None, None, None


class _KernelSide(Function):
    """Zeros of the output's size that take no memory, in backward the gradients of kernel and bias."""

    @staticmethod
    def forward(ctx: Any, w_real: Tensor, w_imag: Tensor, *rest: Any) -> Complex:
        _, _, ctx.signal, size, ctx.shape = rest
        zeros = w_real.new_zeros(2)
        return zeros[0].expand(size), zeros[1].expand(size)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        to_kernel = _ToKernel.apply(*ctx.signal, *grads, ctx.shape)
        needed = zip(grads, ctx.needs_input_grad[2:4], strict=True)
        to_bias = [grad.sum(dim=(0, 2, 3), keepdim=True)[0] if need else None for grad, need in needed]
        return *to_kernel, *to_bias, None, None, None


class _Joined(Function):
    """The sum of an output and zeros, which is the output; its gradient goes both ways."""

    @staticmethod
    def forward(ctx: Any, real: Tensor, imag: Tensor, *zeros: Tensor) -> Complex:
        return real.view_as(real), imag.view_as(imag)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return *grads, *grads


class _ToSignal(Function):
    """Gradient of the output and kernel to gradient of the signal: a product with the conjugate kernel."""

    @staticmethod
    def forward(ctx: Any, g_real: Tensor, g_imag: Tensor, w_real: Tensor, w_imag: Tensor, shape: Shape) -> Complex:
        ctx.save_for_backward(g_real, g_imag, w_real, w_imag)
        ctx.shape = shape
        both = _to_signal(g_real + g_imag, w_real, shape)
        from_imag = _to_signal(g_imag, w_real - w_imag, shape)
        from_real = _to_signal(g_real, w_real + w_imag, shape)
        return torch.sub(both, from_imag, out=from_imag), both.sub_(from_real)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        *g, w_real, w_imag = ctx.saved_tensors
        to_g = convolve((grads[0], grads[1]), (w_real, w_imag), ctx.shape) if ctx.needs_input_grad[0] else (None, None)
        to_w = _ToKernel.apply(*grads, *g, ctx.shape) if ctx.needs_input_grad[2] else (None, None)
        return *to_g, *to_w, None


class _ToKernel(Function):
    """Signal and gradient of the output to gradient of the kernel: a product with the conjugate signal."""

    @staticmethod
    def forward(ctx: Any, x_real: Tensor, x_imag: Tensor, g_real: Tensor, g_imag: Tensor, shape: Shape) -> Complex:
        ctx.save_for_backward(x_real, x_imag, g_real, g_imag)
        ctx.shape = shape
        both = _to_kernel(x_real - x_imag, g_real, shape)
        from_imag = _to_kernel(x_imag, g_real + g_imag, shape)
        from_real = _to_kernel(x_real, g_imag - g_real, shape)
        return both + from_imag, both + from_real

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        x_real, x_imag, *g = ctx.saved_tensors
        to_x = _ToSignal.apply(*g, *grads, ctx.shape) if ctx.needs_input_grad[0] else (None, None)
        to_g = convolve((x_real, x_imag), (grads[0], grads[1]), ctx.shape) if ctx.needs_input_grad[2] else (None, None)
        return *to_x, *to_g, None


def _convolve(x: Tensor, kernel: Tensor, bias: Tensor | None, shape: Shape) -> Tensor:
    return F.conv2d(x, kernel, bias, shape.stride, shape.padding)


def _to_signal(grad: Tensor, kernel: Tensor, shape: Shape) -> Tensor:
    if kernel.shape[1] < 8 and shape.stride == (1, 1):
        # The convolution kernels would pad so few channels to a full vector: a matrix product wastes nothing.
        columns = torch.bmm(kernel.flatten(1).T.expand(len(grad), -1, -1), grad.flatten(2))
        return F.fold(columns, shape.signal[2:], kernel.shape[2:], padding=shape.padding)
    signal = grad.new_empty(1).expand(shape.signal)
    return _convolution_backward(grad, signal, kernel, shape, (True, False, False))[0]


def _to_kernel(x: Tensor, grad: Tensor, shape: Shape) -> Tensor:
    kernel = x.new_empty(1).expand(shape.kernel)
    return _convolution_backward(grad, x, kernel, shape, (False, True, False))[1]


def _convolution_backward(
    grad: Tensor, x: Tensor, kernel: Tensor, shape: Shape, mask: tuple[bool, bool, bool]
) -> list[Tensor]:
    grads: list[Tensor] = torch.ops.aten.convolution_backward(
        grad, x, kernel, None, shape.stride, shape.padding, (1, 1), False, (0, 0), 1, mask
    )
    return grads


class ComplexConv2d(nn.Module):
    """Convolution of a complex signal, a pair of [batch, in_channels, height, width], with a complex kernel."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: tuple[int, int],
        *,
        stride: tuple[int, int] = (1, 1),
        padding: tuple[int, int] = (0, 0),
    ) -> None:
        super().__init__()
        self.stride, self.padding = stride, padding
        bound = (2 * in_channels * kernel_size[0] * kernel_size[1]) ** -0.5
        # Channels last in memory, as the signals are where it is fast.
        shape = (2, out_channels, *kernel_size, in_channels)
        self.weight = nn.Parameter(torch.empty(shape).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(2, out_channels, 1, 1).uniform_(-bound, bound))

    def forward(self, x: Complex) -> Complex:
        return self.apply_kernel(x, self.kernel, (self.bias[0], self.bias[1]), self.padding)

    @property
    def kernel(self) -> Complex:
        """Real and imaginary part, [out_channels, in_channels, height, width]."""
        real, imag = self.weight.movedim(-1, 2)
        return real, imag

    def apply_kernel(self, x: Complex, kernel: Complex, bias: Complex, padding: tuple[int, int]) -> Complex:
        device = kernel[0].device.type
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
            x, kernel, bias = ((t[0].to(dtype), t[1].to(dtype)) for t in (x, kernel, bias))
        return convolve(x, kernel, Shape(self.stride, padding, x[0].shape, kernel[0].shape), bias)

    def after(self, first: "ComplexConv2d", x: Complex) -> Complex:
        """What this would make of `first(x)`, in one convolution: for few input channels a fraction of the work.

        The kernel is that of both. `x` is padded once for both, so `first` is not cut off at the border in between.
        """
        # The kernels are multiplied in full precision: rounding them twice would show in every output.
        with torch.autocast(x[0].device.type, enabled=False):
            kernel, bias = self._merged(first)
        padding = (self.padding[0] + first.padding[0], self.padding[1] + first.padding[1])
        return self.apply_kernel(x, kernel, bias, padding)

    def _merged(self, first: "ComplexConv2d") -> tuple[Complex, Complex]:
        """Kernel and bias of both."""
        (height, width), (real, imag), (b_real, b_imag) = self.kernel[0].shape[2:], self.kernel, first.bias
        signal = first.kernel[0].transpose(0, 1), first.kernel[1].transpose(0, 1)
        flipped = real.flip(2, 3), imag.flip(2, 3)
        shape = Shape((1, 1), (height - 1, width - 1), signal[0].shape, real.shape)
        both_real, both_imag = convolve(signal, flipped, shape)
        kernel = both_real.transpose(0, 1), both_imag.transpose(0, 1)
        r, i, b_r, b_i = real.sum((2, 3)), imag.sum((2, 3)), b_real.flatten(1), b_imag.flatten(1)
        bias = self.bias[0] + (r @ b_r - i @ b_i)[..., None], self.bias[1] + (r @ b_i + i @ b_r)[..., None]
        return kernel, bias
