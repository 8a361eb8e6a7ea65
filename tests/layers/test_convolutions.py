"""Causal convolutions: the future is never heard, and chunks make the whole."""

import pytest
import torch
from torch import Tensor, nn

from madrigal.layers.convolutions import CausalConv1d, CausalConvTranspose1d, StreamCache

LAYERS = {
    "plain": lambda: CausalConv1d(2, 3, 7),
    "dilated": lambda: CausalConv1d(2, 3, 7, dilation=3),
    "strided": lambda: CausalConv1d(2, 3, 8, stride=4),
    "strided, dilated": lambda: CausalConv1d(2, 3, 5, stride=4, dilation=2),
    "grouped": lambda: CausalConv1d(2, 4, 3, groups=2, bias=False),
    "one tap": lambda: CausalConv1d(2, 3, 1),
    "replicated": lambda: CausalConv1d(2, 3, 7, stride=4, pad_mode="replicate"),
    "up": lambda: CausalConvTranspose1d(2, 3, 8, stride=4),
    "up, odd": lambda: CausalConvTranspose1d(2, 3, 10, stride=5, bias=False),
    "up, without overlap": lambda: CausalConvTranspose1d(2, 3, 4, stride=4),
}


@pytest.fixture(params=LAYERS, ids=lambda name: name)
def layer(request: pytest.FixtureRequest) -> nn.Module:
    torch.manual_seed(0)
    made: nn.Module = LAYERS[request.param]()
    return made


def in_chunks(layer: nn.Module, x: Tensor, size: int) -> Tensor:
    cache: StreamCache = {}
    return torch.cat([layer(chunk, cache) for chunk in x.split(size, dim=-1)], dim=-1)


def test_AM23_causal_padding_never_sees_the_future(layer: nn.Module) -> None:
    x = torch.randn(1, 2, 40)
    changed = x.clone()
    changed[..., 20:] += 1
    before, after = layer(x), layer(changed)
    cut = 20 * before.shape[-1] // 40
    assert torch.equal(before[..., :cut], after[..., :cut])
    assert not torch.allclose(before[..., cut:], after[..., cut:])


@pytest.mark.parametrize("size", [4, 8, 20])
def test_chunks_make_the_whole(layer: nn.Module, size: int) -> None:
    x = torch.randn(2, 2, 40)
    torch.testing.assert_close(in_chunks(layer, x, size), layer(x))


def test_output_has_the_length_of_the_input_over_the_stride() -> None:
    assert LAYERS["strided"]()(torch.randn(1, 2, 40)).shape == (1, 3, 10)
    assert LAYERS["up, odd"]()(torch.randn(1, 2, 40)).shape == (1, 3, 200)


def test_AM23_strided_layer_pads_as_it_is_told() -> None:
    layer = CausalConv1d(1, 1, 8, stride=4, pad_mode="replicate", bias=False)
    with torch.no_grad():
        layer.weight.fill_(1 / 8)
    torch.testing.assert_close(layer(torch.ones(1, 1, 12)), torch.ones(1, 1, 3))


def test_memory_of_a_stream_does_not_grow(layer: nn.Module) -> None:
    cache: StreamCache = {}
    sizes = set()
    for _ in range(5):
        layer(torch.randn(1, 2, 40), cache)
        sizes.add(sum(kept.untyped_storage().nbytes() for kept in cache.values()))
    assert len(sizes) == 1


def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(ValueError, match="skip samples"):
        CausalConv1d(1, 1, 3, stride=4)
    with pytest.raises(ValueError, match="leave holes"):
        CausalConvTranspose1d(1, 1, 3, stride=4)
    with pytest.raises(ValueError, match="multiple of the stride"):
        CausalConv1d(1, 1, 8, stride=4)(torch.randn(1, 1, 10))
