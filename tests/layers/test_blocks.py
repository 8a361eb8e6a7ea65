"""Attention in blocks equals torch's own, and its gradients do too; so does the norm beside it."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from madrigal.layers import blocks
from madrigal.layers.blocks import attend_in_blocks
from madrigal.layers.multi_head import attend
from madrigal.layers.norm import RMSNorm, unit
from madrigal.layers.transformer import Transformer


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen queries a block, so that there are several."""
    monkeypatch.setattr(blocks, "ROWS", 1)
    monkeypatch.setattr(blocks, "WHOLE", 0)


def heads(batch: int, heads: int, kv_heads: int, time: int, keys: int) -> list[Tensor]:
    torch.manual_seed(0)
    sizes = ((heads, time), (kv_heads, keys), (kv_heads, keys))
    return [torch.randn(batch, number, length, 4, dtype=torch.float64, requires_grad=True) for number, length in sizes]


def with_gradients(out: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    torch.manual_seed(1)
    return [out, *torch.autograd.grad(out, inputs, torch.randn(out.shape, dtype=out.dtype))]


def hidden(seen: Tensor) -> Tensor:
    return torch.zeros(seen.shape, dtype=torch.float64).masked_fill(~seen, float("-inf"))


@pytest.mark.parametrize("kept", [2**25, 0], ids=["kept", "made again"])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("time", [1, 16, 40])
def test_causal_attention(kept: int, kv_heads: int, time: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "KEPT", kept)
    inputs = heads(2, 4, kv_heads, time, time)
    ours = with_gradients(attend_in_blocks(*inputs, None, 0), inputs)
    theirs = with_gradients(F.scaled_dot_product_attention(*inputs, is_causal=True, enable_gqa=True), inputs)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("whole", [2**24, 0], ids=["one block", "several"])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_without_order(kv_heads: int, whole: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "WHOLE", whole)
    inputs = heads(2, 4, kv_heads, 33, 21)
    ours = with_gradients(attend_in_blocks(*inputs, None, None), inputs)
    torch.testing.assert_close(ours, with_gradients(F.scaled_dot_product_attention(*inputs, enable_gqa=True), inputs))


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_without_order_and_without_a_way_back(kv_heads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "WHOLE", 2**24)
    monkeypatch.setattr(blocks, "_BlockAttention", None)  # not even asked
    query, key, value = (t.detach().transpose(1, 2).contiguous().transpose(1, 2) for t in heads(2, 4, kv_heads, 33, 21))
    with torch.no_grad():
        ours = attend_in_blocks(query, key, value, None, None)
    torch.testing.assert_close(ours, F.scaled_dot_product_attention(query, key, value, enable_gqa=True))


def test_sixteen_bits_are_as_near_in_blocks_as_by_torch() -> None:
    inputs = [t.detach() for t in heads(2, 4, 4, 40, 40)]
    exact = F.scaled_dot_product_attention(*inputs)
    bias = hidden(torch.rand(2, 1, 40, 40) > 0.3)
    led = F.scaled_dot_product_attention(*inputs, attn_mask=bias)
    halves = [t.bfloat16() for t in inputs]
    with torch.no_grad():
        torch.testing.assert_close(attend(*halves, None, None, 0.0).double(), exact, atol=0.03, rtol=0.03)
        torch.testing.assert_close(attend(*halves, bias.bfloat16(), None, 0.0).double(), led, atol=0.03, rtol=0.03)


def test_queries_stand_at_the_end_of_the_keys() -> None:
    inputs = heads(1, 2, 1, 20, 50)
    seen = torch.ones(20, 50, dtype=torch.bool).tril(30)
    theirs = F.scaled_dot_product_attention(*inputs, attn_mask=seen, enable_gqa=True)
    torch.testing.assert_close(attend_in_blocks(*inputs, None, 0), theirs)


@pytest.mark.parametrize("shape", [(1, 1), (2, 1), (1, 4), (2, 4)], ids=str)
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_a_bias_is_added_and_learned(shape: tuple[int, int], kv_heads: int) -> None:
    inputs = heads(2, 4, kv_heads, 37, 37)
    order = hidden(torch.ones(37, 37, dtype=torch.bool).tril())
    free = torch.randn(*shape, 37, 37, dtype=torch.float64, requires_grad=True)
    every = [*inputs, free]
    ours = with_gradients(attend_in_blocks(*inputs, free + order, 0), every)
    theirs = with_gradients(F.scaled_dot_product_attention(*inputs, attn_mask=free + order, enable_gqa=True), every)
    torch.testing.assert_close(ours, theirs)


def test_the_first_keys_are_seen_by_all() -> None:
    inputs = heads(1, 2, 2, 40, 40)
    seen = torch.ones(40, 40, dtype=torch.bool).tril()
    seen[:, :25] = True
    theirs = F.scaled_dot_product_attention(*inputs, attn_mask=seen)
    torch.testing.assert_close(attend_in_blocks(*inputs, hidden(seen)[None, None], 25), theirs)


def test_half_precision_is_as_good_as_torch_s() -> None:
    inputs = heads(2, 4, 1, 60, 60)
    exact = F.scaled_dot_product_attention(*inputs, is_causal=True, enable_gqa=True)
    rough = [t.bfloat16() for t in inputs]
    ours = attend_in_blocks(*rough, None, 0)
    theirs = F.scaled_dot_product_attention(*rough, is_causal=True, enable_gqa=True)
    assert (ours - exact).norm() < 2 * (theirs - exact).norm()


def test_autocast_around_the_backward_pass_changes_nothing() -> None:
    grads = []
    for enabled in (False, True):
        inputs = [t.float() for t in heads(1, 2, 1, 20, 20)]
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            grads.append(with_gradients(attend_in_blocks(*inputs, None, 0), inputs))
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_norm_is_torch_s(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    norm, x = RMSNorm(8).to(dtype), torch.randn(3, 5, 8).to(dtype).requires_grad_()
    torch.nn.init.normal_(norm.weight)
    every: Any = [x, norm.weight]
    theirs = with_gradients(F.rms_norm(x, (8,), norm.weight), every)
    tolerance = {"rtol": 2e-2, "atol": 0.1} if dtype == torch.bfloat16 else {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(with_gradients(norm(x), every), theirs, **tolerance)
    torch.testing.assert_close(unit(x) * norm.weight, theirs[0], **tolerance)


def test_the_norm_learns_exactly() -> None:
    norm = RMSNorm(4).double()
    assert torch.autograd.gradcheck(norm, torch.randn(3, 4, dtype=torch.float64, requires_grad=True))


def test_the_norm_of_next_to_nothing_is_finite() -> None:
    x = torch.zeros(1, 4, requires_grad=True)
    RMSNorm(4)(x).sum().backward()
    assert x.grad is not None
    assert torch.isfinite(x.grad).all()
    assert (unit(x) == 0).all()


def test_AM4_cross_attention_trains_beyond_one_block() -> None:
    model = Transformer(32, 2, heads=4, dim_head=8, kv_heads=1, cross_attend=True)
    x, context = torch.randn(2, 300, 32), torch.randn(2, 5, 32, requires_grad=True)
    mask = torch.ones(2, 5, dtype=torch.bool)
    mask[0, 3:] = False
    model(x, context=context, context_mask=mask).sum().backward()
    assert context.grad is not None
    assert context.grad[1].abs().sum() > 0
    assert not context.grad[0, 3:].any()


@pytest.mark.parametrize("with_bias", [True, False])
def test_attention_is_the_same_with_and_without_gradients(with_bias: bool) -> None:
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 4, time, 16) for time in (70, 90, 90))
    bias = torch.zeros(2, 1, 1, 90) if with_bias else None
    if bias is not None:
        bias[1, ..., 50:] = float("-inf")
    learning = attend(query, key, value, bias, None, 0.0)
    with torch.no_grad():
        torch.testing.assert_close(attend(query, key, value, bias, None, 0.0), learning)


@pytest.mark.parametrize("size", [1, 32])  # with scores of a hundred and more, exponentials are beyond numbers
@pytest.mark.parametrize("kv_heads", [1, 4])
@torch.no_grad()
def test_at_once_in_16_bits_it_is_the_same(size: int, kv_heads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "WHOLE", 2**24)
    query, key, value = (t.bfloat16() for t in heads(2, 4, kv_heads, 40, 40))
    query, key = query.round() * size, key.round()  # scores that 16 bits hold exactly
    full = F.scaled_dot_product_attention(query.float(), key.float(), value.float(), enable_gqa=True)
    found = attend_in_blocks(query, key, value, None, None)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.float(), full, rtol=2e-2, atol=2e-2)
