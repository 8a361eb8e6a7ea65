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


def test_a_masked_row_is_what_it_is_alone() -> None:
    torch.manual_seed(0)
    blocks = ConvNeXt(8, depth=3, hidden=16, kernel_size=5, causal=False)
    for block in blocks.blocks:
        torch.nn.init.normal_(block.contract.weight)  # type: ignore[union-attr,arg-type]
    x = torch.randn(2, 12, 8)
    mask = torch.arange(12) < torch.tensor([[12], [7]])
    together = blocks(x, mask=mask)
    torch.testing.assert_close(together[1, :7], blocks(x[1:, :7])[0])
    torch.testing.assert_close(together[0], blocks(x)[0])


@pytest.mark.parametrize("causal", [True, False])
def test_it_is_a_plain_convolution_there_and_back(causal: bool) -> None:
    torch.manual_seed(0)
    layer = DepthwiseConv(4, 5, causal=causal)
    x = torch.randn(2, 9, 4, requires_grad=True)

    def plain() -> torch.Tensor:
        padded = torch.nn.functional.pad(x.transpose(1, 2), (4, 0) if causal else (2, 2))
        return torch.nn.functional.conv1d(padded, layer.weight[:, :, 0], layer.bias, groups=4).transpose(1, 2)

    inputs = (x, *layer.parameters())
    found, wanted = layer(x), plain()
    torch.testing.assert_close(found, wanted)
    above = torch.randn_like(found)
    both = (torch.autograd.grad(out, inputs, above) for out in (found, wanted))
    for one, other in zip(*both, strict=True):
        torch.testing.assert_close(one, other)
    with torch.no_grad():
        assert torch.equal(layer(x), found)


@pytest.mark.parametrize("grad", [True, False])
def test_half_precision_returns_and_is_near(grad: bool) -> None:
    """As a picture of one row, 16 channels in 16 bits never came back."""
    torch.manual_seed(0)
    layer, x = DepthwiseConv(16, 31, causal=False), torch.randn(1, 100, 16)
    with torch.set_grad_enabled(grad), torch.autocast("cpu", torch.bfloat16):
        found = layer(x)
    torch.testing.assert_close(found.float(), layer(x), rtol=0.05, atol=0.05)
