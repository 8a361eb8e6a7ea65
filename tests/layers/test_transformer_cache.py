"""Token by token or all at once: the same, for every attention path and every way of conditioning."""

import itertools
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from small_transformers import DIM, DIM_CONTEXT, KV_HEADS, POSITIONS, conditions, mask_of, small
from torch import Tensor

from madrigal.layers import cache as caches
from madrigal.layers.cache import KeyValueCache
from madrigal.layers.transformer import Transformer

TIME = 8
PIECES = [[1] * TIME, [3, 1, 1, 3]]
MASK = mask_of("11.1..11", "11111111", "...111.1")


def in_pieces(
    model: Transformer,
    x: Tensor,
    sizes: list[int],
    given: dict[str, Any],
    cache: KeyValueCache | None = None,
    **rows: Any,
) -> Tensor:
    """`given` comes with the first piece; `rows` (mask, forget, at) are cut like x."""
    cache = cache or model.new_cache(len(x), capacity=1)
    cut = {name: t.split(sizes, dim=1) for name, t in rows.items() if t is not None}
    out = []
    for number, piece in enumerate(x.split(sizes, dim=1)):
        here = {name: pieces[number] for name, pieces in cut.items()}
        out.append(model(piece, cache=cache, **here, **(given if number == 0 else {})))
    return torch.cat(out, dim=1)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("kv_heads", KV_HEADS)
@pytest.mark.parametrize("way", ["none", "prefix", "cross"])
def test_AM2_AM3_cached_equals_full_forward(positions: str, kv_heads: int | None, way: str) -> None:
    for value_residual, qk_norm, streams, ragged in itertools.product(
        (False, True), (False, True), (1, 3), (False, True)
    ):
        model = small(
            positions=positions,
            kv_heads=kv_heads,
            cross_attend=way == "cross",
            value_residual=value_residual,
            qk_norm=qk_norm,
            residual_streams=streams,
        )
        x, given, mask = torch.randn(3, TIME, DIM), conditions(way, 3, ragged), MASK if ragged else None
        with torch.no_grad():
            full = model(x, mask=mask, **given)
        real = slice(None) if mask is None else mask
        for sizes in PIECES:
            out = in_pieces(model, x, sizes, given, mask=mask)
            torch.testing.assert_close(out[real], full[real], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("positions", POSITIONS)
def test_AM7_prompts_of_different_lengths_equal_each_alone(positions: str) -> None:
    """The prompts are padded on the right, and what follows is appended after the pads."""
    model = small(positions=positions, kv_heads=1)
    prompt, mask, more = torch.randn(3, 5, DIM), mask_of("11...", "11111", "1111."), torch.randn(3, 4, DIM)
    cache = model.new_cache(3)
    model(prompt, mask=mask, cache=cache)
    together = in_pieces(model, more, [1, 1, 2], {}, cache)
    for row in range(3):
        alone = torch.cat((prompt[row, mask[row]], more[row]))
        torch.testing.assert_close(together[row], model(alone[None])[0, -4:], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("positions", POSITIONS)
def test_forgotten_tokens_stay_forgotten(positions: str) -> None:
    model = small(positions=positions)
    x, forget = torch.randn(3, TIME, DIM), ~MASK
    for sizes in PIECES:
        out = in_pieces(model, x, sizes, {}, forget=forget)
        torch.testing.assert_close(out, model(x, forget=forget), rtol=1e-4, atol=1e-5)


def test_positions_from_outside() -> None:
    model = small(kv_heads=2)
    x, at = torch.randn(2, TIME, DIM), torch.tensor([[0, 3, 3, 9, 9, 12, 15, 15], [0, 1, 2, 0, 1, 2, 600, 4]])
    prefix = torch.randn(2, 3, DIM)
    for sizes in PIECES:
        torch.testing.assert_close(in_pieces(model, x, sizes, {}, at=at), model(x, at=at), rtol=1e-4, atol=1e-5)
        out = in_pieces(model, x, sizes, {"prefix": prefix}, at=at)
        torch.testing.assert_close(out, model(x, at=at, prefix=prefix), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("way", ["none", "prefix", "cross"])
@pytest.mark.parametrize("ragged", [False, True])
def test_rows_are_selected(way: str, ragged: bool) -> None:
    model = small(cross_attend=way == "cross")
    x, given = torch.randn(3, 4, DIM), conditions(way, 3, ragged)
    more = torch.randn(4, 2, DIM)
    rows = [2, 0, 0, 1]
    cache = model.new_cache(3)
    mask = MASK[:, :4] if ragged else None
    model(x, mask=mask, cache=cache, **given)
    cache.select(rows)
    assert cache.batch_size == 4
    out = in_pieces(model, more, [1, 1], {}, cache)
    whole = torch.cat((x[rows], more), dim=1)
    mask = None if mask is None else torch.cat((mask[rows], torch.ones(4, 2, dtype=torch.bool)), dim=1)
    full = model(whole, mask=mask, **{name: t[rows] for name, t in given.items()})
    torch.testing.assert_close(out, full[:, 4:], rtol=1e-4, atol=1e-5)


def test_rows_are_selected_by_a_mask() -> None:
    model, x = small(), torch.randn(3, 4, DIM)
    kept = torch.tensor([True, False, True])
    cache = model.new_cache(3)
    model(x[:, :3], cache=cache)
    cache.select(kept)
    torch.testing.assert_close(model(x[kept, 3:], cache=cache), model(x)[kept, 3:], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("positions", POSITIONS)
def test_truncated_slots_are_forgotten(positions: str, ragged: bool) -> None:
    model = small(positions=positions, kv_heads=1)
    x, mask = torch.randn(3, TIME, DIM), MASK if ragged else None
    cache = model.new_cache(3)
    model(x[:, :4], mask=None if mask is None else mask[:, :4], cache=cache)
    model(torch.randn(3, 3, DIM), mask=mask_of("1.1", "11.", "111") if ragged else None, cache=cache)
    model(torch.randn(3, 1, DIM), cache=cache)
    assert cache.length == 8
    cache.truncate(4)
    assert cache.length == 4
    out = in_pieces(model, x[:, 4:], [1, 3], {}, cache, mask=None if mask is None else mask[:, 4:])
    real = slice(None) if mask is None else mask[:, 4:]
    torch.testing.assert_close(out[real], model(x, mask=mask)[:, 4:][real], rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="cannot be cut to 9"):
        cache.truncate(9)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("ragged", [False, True])
def test_rows_keep_different_numbers_of_their_newest_slots(positions: str, ragged: bool) -> None:
    model = small(positions=positions, kv_heads=1)
    x, mask = torch.randn(3, TIME, DIM), MASK if ragged else None
    cache = model.new_cache(3)
    model(x[:, :5], mask=None if mask is None else mask[:, :5], cache=cache)
    cache.keep(mask_of("1...", "11..", "111."))
    assert cache.length == 4  # of five; nobody keeps the last
    out = in_pieces(model, x[:, 5:], [1, 2], {}, cache)
    for row, kept in enumerate((2, 3, 4)):
        whole = torch.cat((x[row, :kept], x[row, 5:]))[None]
        real = None if mask is None else torch.cat((mask[row, :kept], torch.ones(3, dtype=torch.bool)))[None]
        torch.testing.assert_close(out[row], model(whole, mask=real)[0, -3:], rtol=1e-4, atol=1e-5)


def test_rows_that_keep_the_same_need_no_masks() -> None:
    model, x = small(), torch.randn(2, 6, DIM)
    cache = model.new_cache(2)
    model(x[:, :5], cache=cache)
    cache.keep(mask_of("11..", "11.."))
    assert (cache.length, cache.real) == (3, None)
    torch.testing.assert_close(
        model(x[:, 5:], cache=cache), model(torch.cat((x[:, :3], x[:, 5:]), 1))[:, 3:], rtol=1e-4, atol=1e-5
    )
    cache.keep(mask_of(".", "."))
    assert cache.length == 3


@pytest.mark.parametrize("ragged", [False, True])
def test_rows_go_on_from_the_past_of_others(ragged: bool) -> None:
    model, given = small(cross_attend=True), conditions("cross", 3, ragged)
    given = {name: t[:1].expand(3, *t.shape[1:]) for name, t in given.items()}
    x, more, mask = torch.randn(3, 4, DIM), torch.randn(3, 2, DIM), MASK[:, :4] if ragged else None
    for rows in ([2, 1, 1], [0, 1, 2], [1, 2, 0]):
        cache = model.new_cache(3)
        model(x, mask=mask, cache=cache, **given)
        cache.reorder(torch.tensor(rows))
        out = in_pieces(model, more, [1, 1], {}, cache)
        whole = torch.cat((x[rows], more), dim=1)
        real = None if mask is None else torch.cat((mask[rows], torch.ones(3, 2, dtype=torch.bool)), dim=1)
        torch.testing.assert_close(out, model(whole, mask=real, **given)[:, 4:], rtol=1e-4, atol=1e-5)


def test_a_cache_grows_by_doubling() -> None:
    model, x = small(positions="relative"), torch.randn(1, 70, DIM)
    cache = model.new_cache(1, capacity=3)
    in_pieces(model, x[:, :13], [1] * 13, {}, cache)
    assert (cache.length, cache.capacity) == (13, 24)
    out = in_pieces(model, x[:, 13:], [57], {}, cache)
    assert (cache.length, cache.capacity) == (70, 96)
    torch.testing.assert_close(out, model(x)[:, 13:], rtol=1e-4, atol=1e-5)


def test_a_prefix_counts_as_slots() -> None:
    model, cache = small(), KeyValueCache(2, 1)
    model(torch.randn(1, 2, DIM), prefix=torch.randn(1, 3, DIM), cache=cache)
    assert cache.length == 5
    with pytest.raises(ValueError, match="first call"):
        model(torch.randn(1, 1, DIM), prefix=torch.randn(1, 3, DIM), cache=cache)


def test_whole_rows_need_no_masks() -> None:
    model = small()
    cache = model.new_cache(2)
    model(torch.randn(2, 3, DIM), mask=torch.ones(2, 3, dtype=torch.bool), cache=cache)
    assert cache.real is None
    model(torch.randn(2, 1, DIM), mask=mask_of("1", "."), cache=cache)
    assert cache.real is not None


def test_the_context_is_projected_once() -> None:
    model = small(cross_attend=True)
    cache = model.new_cache(1)
    model(torch.randn(1, 1, DIM), context=torch.randn(1, 3, DIM_CONTEXT), cache=cache)
    x = torch.randn(1, 1, DIM)
    ours = model(x, cache=cache)
    cache.truncate(1)
    torch.testing.assert_close(model(x, context=torch.randn(1, 3, DIM_CONTEXT), cache=cache), ours)
    assert len(cache.context) == 2


def test_a_cache_carries_no_gradients() -> None:
    model = small()
    out = model(torch.randn(1, 3, DIM, requires_grad=True), cache=model.new_cache(1))
    assert torch.isfinite(out).all()
    cache = model.new_cache(1)
    for _ in range(3):
        model(torch.randn(1, 1, DIM, requires_grad=True), cache=cache)


@pytest.mark.parametrize("inference", [False, True])
def test_decoding_under_autocast_comes_close(inference: bool) -> None:
    model, x = small(kv_heads=1), torch.randn(2, TIME, DIM)
    with torch.inference_mode(inference), torch.autocast("cpu", torch.bfloat16):
        out = in_pieces(model, x, [3, 1, 1, 1, 2], {})
    exact = model(x)
    assert (out - exact).norm() / exact.norm() < 0.05


@pytest.fixture
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_large_weights_are_summed_for_a_row_alone(
    monkeypatch: pytest.MonkeyPatch, rows: int, precision: torch.dtype
) -> None:
    monkeypatch.setattr(caches, "LARGE", 0)
    sums = Mock(wraps=torch.embedding_bag)
    monkeypatch.setattr(torch, "embedding_bag", sums)
    model, x = small(cross_attend=True), torch.randn(rows, TIME, DIM)  # inside, 42 wide: no multiple of a cache line
    given = conditions("cross", rows, ragged=False)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=precision == torch.bfloat16):
        out = in_pieces(model, x, [1] * TIME, given)
    assert sums.called == (rows == 1 and precision == torch.float32)
    exact = model(x, **given)
    assert (out - exact).norm() / exact.norm() < (1e-5 if precision == torch.float32 else 0.05)
