"""Local attention: each frame sees its window and nothing else, in blocks and in a stream alike."""

import pytest
import torch
from torch import Tensor

from madrigal.layers.attention import LocalAttention, LocalTransformer
from madrigal.layers.convolutions import StreamCache
from madrigal.layers.positions import RotaryPositions

WINDOW = 4


def transformer(depth: int = 1, window: int = WINDOW, **options: object) -> LocalTransformer:
    torch.manual_seed(0)
    made = LocalTransformer(8, depth=depth, heads=2, dim_head=4, window=window, **options)  # type: ignore[arg-type]
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return made


@pytest.fixture(params=[{}, {"xpos_scale_base": 2}, {"dynamic_pos_bias": True}], ids=["rotary", "xpos", "bias"])
def model(request: pytest.FixtureRequest) -> LocalTransformer:
    return transformer(depth=2, **request.param)


@pytest.mark.parametrize("time", [3, 4, 17, 24])
def test_a_frame_sees_its_window_and_nothing_else(time: int) -> None:
    x = torch.randn(1, time, 8, requires_grad=True)
    out = transformer()(x)
    for t in range(time):
        (seen,) = torch.autograd.grad(out[:, t].sum(), x, retain_graph=True)
        frames = seen.abs().sum(dim=(0, 2)).nonzero().flatten().tolist()
        assert frames == list(range(max(0, t - WINDOW + 1), t + 1))


@pytest.mark.parametrize("size", [1, 3, 4, 10])
def test_chunks_make_the_whole(model: LocalTransformer, size: int) -> None:
    x = torch.randn(2, 22, 8)
    cache: StreamCache = {}
    chunks = [model(chunk, cache) for chunk in x.split(size, dim=1)]
    torch.testing.assert_close(torch.cat(chunks, dim=1), model(x), rtol=1e-4, atol=1e-5)


def test_blocks_equal_dense_attention(model: LocalTransformer) -> None:
    x = torch.randn(2, 11, 8)
    attention = model.attentions[0]
    assert isinstance(attention, LocalAttention)
    bias = None if model.bias is None else model.bias(torch.arange(WINDOW) / WINDOW)
    heads = torch.randn(3, 2, 2, 11, 4)
    query, key, value = heads
    dense = attention._attend(query, key, value, bias)
    torch.testing.assert_close(attention._attend_blocks(query, key, value, bias), dense, rtol=1e-4, atol=1e-5)
    assert model(x).shape == x.shape


def test_only_distances_count(model: LocalTransformer) -> None:
    """A frame deep inside a sequence comes out as it does right after the frames it sees."""
    x = torch.randn(1, 40, 8)
    reach = 2 * (WINDOW - 1)
    alone = model(x[:, 39 - reach :])
    torch.testing.assert_close(model(x)[:, -1], alone[:, -1], rtol=1e-4, atol=1e-5)


def test_memory_of_a_stream_does_not_grow(model: LocalTransformer) -> None:
    cache: StreamCache = {}
    sizes = []
    for _ in range(6):
        model(torch.randn(1, 10, 8), cache)
        kept = (tensor for pair in cache.values() for tensor in pair)
        sizes.append(sum(tensor.untyped_storage().nbytes() for tensor in kept))
    assert len(set(sizes)) == 1


def test_xpos_makes_far_keys_fainter() -> None:
    query, key = torch.ones(1, 8, 16), torch.ones(1, 8, 16)

    def score(base: int | None) -> Tensor:
        q, k = RotaryPositions(16, base)(query, key)
        return (q[0, -1] * k[0]).sum(-1)

    plain, faint = score(None).abs(), score(4).abs()
    assert faint[-1] == pytest.approx(float(plain[-1]), rel=1e-4)
    assert faint[0] < plain[0]


def test_positions_matter() -> None:
    x = torch.randn(1, 4, 8)
    swapped = x[:, [1, 0, 2, 3]]
    for options in ({}, {"xpos_scale_base": 2}, {"dynamic_pos_bias": True}):
        model = transformer(**options)
        assert not torch.allclose(model(x)[:, -1], model(swapped)[:, -1], atol=1e-4)
