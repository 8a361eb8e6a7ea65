"""Counting the multiplications and additions of whatever runs inside a block, backward included."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import conv_flop_count, flop_registry


class CountFlops(TorchDispatchMode):
    """Adds up matrix products, convolutions and attention in `total`; it changes no result.

    torch's own counter also follows modules by hooks on their outputs, which a gradient penalty cannot pass.
    """

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        count: Callable[..., int] | None = _OURS.get(func._overloadpacket) or flop_registry.get(func._overloadpacket)
        if count is not None:
            self.total += count(*args, **kwargs, out_val=result)
        return result


def _convolution_backward(grad: Tensor, x: Tensor, weight: Tensor, *rest: Any, **_: Any) -> int:
    """As many as forward for each of the two gradients that are asked for; torch's formula forgets the groups."""
    transposed, asked_for = rest[4], rest[7]
    once: int = conv_flop_count(list(x.shape), list(weight.shape), list(grad.shape), transposed)
    return once * sum(asked_for[:2])


_OURS: dict[Any, Callable[..., int]] = {torch.ops.aten.convolution_backward: _convolution_backward}


@contextmanager
def counting_flops(counted: dict[str, int], kind: str | None) -> Iterator[None]:
    """Note what the block takes in `counted[kind]`, the first time; None stands for what is not to be counted."""
    if kind is None or kind in counted:
        yield
        return
    with CountFlops() as counter:
        yield
    counted[kind] = counter.total
