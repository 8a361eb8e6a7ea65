"""What is done to a model's blocks before training: compiled, or their activations recomputed in backward."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


def recompute_in_backward(block: nn.Module) -> None:
    """From now on `block` keeps only its inputs for backward; its outputs and gradients stay the same."""
    forward = block.forward

    def recomputed(*args: Any, **kwargs: Any) -> Any:
        if not torch.is_grad_enabled():
            return forward(*args, **kwargs)
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)

    block.forward = recomputed


def prepare_blocks(blocks: Sequence[nn.Module], *, recompute: bool, compile: bool) -> None:
    """Make the blocks spare memory, time, or both."""
    for block in blocks:
        if recompute:
            recompute_in_backward(block)
        if compile:
            block.compile()
