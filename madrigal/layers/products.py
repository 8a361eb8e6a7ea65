"""Products with weights, kept as the processor reads them where a network is asked many times without a way back.

    with packed(model): ...     every `Linear` of a model, and what is made of several, multiplies by packed weights

torch brings a weight into the order of the processor's registers anew in each product in bfloat16. In float32 it leaves
products to MKL, which takes twice the time of oneDNN on some processors, and packed weights are oneDNN's own.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Packed = tuple[Tensor, ...]
_PACKED: ContextVar[dict[nn.Module, Packed] | None] = ContextVar("packed", default=None)
"""What is packed is not the model's: another thread may ask it in another precision, or copy it."""


class Linear(nn.Linear):
    """A linear layer that can be packed, in `parts` of its outputs if these are asked for one by one."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, parts: int = 1) -> None:
        super().__init__(in_features, out_features, bias)
        self.parts = parts

    @property
    def packed(self) -> Packed:
        """The parts of the weight as oneDNN reads them; none where the plain weight is to be used."""
        if torch.compiler.is_compiling() or torch.is_grad_enabled():
            return ()
        copies = _PACKED.get()
        return () if copies is None else copies.get(self, ())

    def forward(self, x: Tensor) -> Tensor:
        packed = self.packed
        if len(packed) != 1:
            return F.linear(x, self.weight, self.bias)
        (weight,) = packed
        bias = None if self.bias is None else self.bias.to(weight.dtype)
        out: Tensor = torch.ops.mkldnn._linear_pointwise(x.to(weight.dtype), weight, bias, "none", [], "")
        return out


@contextmanager
def packed(model: nn.Module) -> Iterator[None]:
    """Inside, a model that does not learn multiplies by packed copies of its weights, where its processor can.

    They are made once, in the precision of autocast, and cost as much as a few calls save. What is compiled stays as it
    is: it would be compiled anew.
    """
    linears = [] if is_compiled(model) else [module for module in model.modules() if isinstance(module, Linear)]
    before = _PACKED.set({**(_PACKED.get() or {}), **{linear: _packed(linear) for linear in linears}})
    try:
        yield
    finally:
        _PACKED.reset(before)


def is_compiled(model: nn.Module) -> bool:
    """Whether a model or any part of it is."""
    return any(module._compiled_call_impl is not None or hasattr(module, "_orig_mod") for module in model.modules())


def opened_and_multiplied(x: Tensor, packed: Packed) -> Tensor:
    """One product of x, times the GELU of another: neither is written down before they are joined."""
    value, gate = packed
    x = x.to(gate.dtype)
    opened = torch.ops.mkldnn._linear_pointwise(x, gate, None, "gelu", [], "none")
    out: Tensor = torch.ops.mkldnn._linear_pointwise.binary(x, opened, value, None, "mul")
    return out


@torch.no_grad()
def _packed(linear: Linear) -> Packed:
    """The parts of a weight as oneDNN reads them, or nothing where it does not compute."""
    weight = linear.weight
    has_products = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    if weight.device.type != "cpu" or not has_products:
        return ()
    dtype = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else weight.dtype
    if dtype not in (torch.float32, torch.bfloat16):
        return ()
    if dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return ()
    return tuple(torch.ops.mkldnn._reorder_linear_weight(part.to(dtype)) for part in weight.chunk(linear.parts))
