"""Blocks over frames that see both sides, or the past alone."""

import pytest
import torch

from madrigal.layers.convnext import ConvNeXt, DepthwiseConv


def changed_frames(causal: bool) -> list[int]:
    """The frames of the output that depend on frame 5 of the input."""
    torch.manual_seed(0)
    blocks = ConvNeXt(8, depth=2, hidden=16, kernel_size=5, causal=causal)
    for block in blocks.blocks:
        torch.nn.init.normal_(block.contract.weight)  # type: ignore[union-attr,arg-type]
    x = torch.randn(1, 12, 8)
    other = x.clone()
    other[:, 5] += 1.0
    return (blocks(x) != blocks(other)).any(-1)[0].nonzero().flatten().tolist()


def test_a_causal_one_hears_no_future_and_the_other_as_much_as_past() -> None:
    assert changed_frames(causal=True) == list(range(5, 12))
    assert changed_frames(causal=False) == list(range(1, 10))


def test_a_kernel_without_a_middle_is_refused() -> None:
    with pytest.raises(ValueError, match="odd"):
        DepthwiseConv(4, 4, causal=False)
