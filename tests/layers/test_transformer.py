"""The shared transformer: who sees whom, pads that are not there, options that do what they say."""

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from small_transformers import DIM, DIM_CONTEXT, KV_HEADS, POSITIONS, conditions, mask_of, small
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from madrigal.layers.sight import Sight
from madrigal.layers.transformer import Transformer


def seen_by(model: Transformer, time: int, query: int, **given: Any) -> list[int]:
    x = torch.randn(1, time, DIM, requires_grad=True)
    (grad,) = torch.autograd.grad(model(x, **given)[0, query].sum(), x)
    seen: list[int] = grad[0].abs().sum(dim=-1).nonzero().flatten().tolist()
    return seen


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("kv_heads", KV_HEADS)
def test_a_token_sees_itself_and_what_came_before(positions: str, kv_heads: int | None) -> None:
    model = small(positions=positions, kv_heads=kv_heads)
    assert seen_by(model, 7, 4) == [0, 1, 2, 3, 4]
    assert seen_by(small(positions=positions, kv_heads=kv_heads, causal=False), 7, 4) == list(range(7))


def test_a_pad_sees_itself_and_is_seen_by_nobody_else() -> None:
    model = small(depth=1)
    mask = mask_of("11.11")
    assert seen_by(model, 5, 4, mask=mask) == [0, 1, 3, 4]
    assert seen_by(model, 5, 2, mask=mask) == [0, 1, 2]
    both_ways = small(depth=1, causal=False)
    assert seen_by(both_ways, 5, 0, mask=mask) == [0, 1, 3, 4]


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("way", ["none", "prefix", "cross"])
@pytest.mark.parametrize("causal", [True, False])
def test_AM8_a_padded_row_equals_the_same_row_alone(positions: str, way: str, causal: bool) -> None:
    model = small(positions=positions, causal=causal, cross_attend=way == "cross")
    x, mask = torch.randn(3, 6, DIM), mask_of("11..11", ".1111.", "111111")
    given = conditions(way, 3, ragged=True)
    together = model(x, mask=mask, **given)
    for row in range(3):
        alone_given = {}
        for name in {name.removesuffix("_mask") for name in given}:
            kept = given[name][row, given[f"{name}_mask"][row]]
            alone_given[name] = kept[None]
        alone = model(x[row, mask[row]][None], **alone_given)
        torch.testing.assert_close(together[row, mask[row]], alone[0], rtol=1e-4, atol=1e-5)


def test_pads_on_the_right_need_no_mask() -> None:
    model, x = small(kv_heads=1), torch.randn(2, 6, DIM)
    mask = mask_of("1111..", "111111")
    torch.testing.assert_close(model(x)[mask], model(x, mask=mask)[mask], rtol=1e-4, atol=1e-5)


def test_a_forgotten_token_is_hidden_from_all_but_itself() -> None:
    model = small(depth=1)
    forget = ~mask_of("11.11")
    assert seen_by(model, 5, 4, forget=forget) == [0, 1, 3, 4]
    assert seen_by(model, 5, 2, forget=forget) == [0, 1, 2]


def test_a_forgotten_token_still_counts_as_a_position() -> None:
    x, kept = torch.randn(1, 5, DIM), mask_of("11.11")
    for positions in POSITIONS:
        model = small(depth=1, positions=positions)
        same = torch.allclose(model(x, forget=~kept)[kept], model(x, mask=kept)[kept], atol=1e-5)
        assert same is (positions == "none")


@pytest.mark.parametrize("positions", POSITIONS)
def test_everybody_sees_the_prefix_and_the_prefix_sees_itself(positions: str) -> None:
    model = small(positions=positions)
    x, prefix = torch.randn(1, 3, DIM, requires_grad=True), torch.randn(1, 4, DIM, requires_grad=True)
    out = model(x, prefix=prefix)
    assert out.shape == x.shape
    for_x, for_prefix = torch.autograd.grad(out[0, 0].sum(), (x, prefix))
    assert for_x[0].abs().sum(-1).nonzero().flatten().tolist() == [0]
    assert for_prefix[0].abs().sum(-1).all()
    # Were the prefix causal, its last token would not matter to what its first one tells the others.
    moved = prefix.detach().clone()
    moved[:, 3] += 1.0
    hidden = mask_of("111.")
    torch.testing.assert_close(model(x, prefix=prefix, prefix_mask=hidden), model(x, prefix=moved, prefix_mask=hidden))
    assert not torch.allclose(model(x, prefix=prefix), model(x, prefix=moved), atol=1e-4)


def test_prefix_tokens_see_later_prefix_tokens() -> None:
    model = small(depth=2, positions="none")
    x, prefix = torch.randn(1, 2, DIM), torch.randn(1, 4, DIM)
    # Without positions, a set of tokens that all see each other has no order.
    torch.testing.assert_close(model(x, prefix=prefix), model(x, prefix=prefix.flip(1)), rtol=1e-4, atol=1e-5)


def test_a_hidden_context_is_no_context() -> None:
    model = small(cross_attend=True)
    x, context = torch.randn(2, 3, DIM), torch.randn(2, 4, DIM_CONTEXT)
    hidden = model(x, context=context, context_mask=mask_of("....", "...."))
    torch.testing.assert_close(hidden, model(x))
    torch.testing.assert_close(hidden, model(x, context=5 * context, context_mask=mask_of("....", "....")))
    assert not torch.allclose(hidden, model(x, context=context), atol=1e-3)


def test_AM14_keys_and_values_are_of_the_normed_input() -> None:
    attention = small().layers[0].attention
    x = torch.randn(2, 5, DIM)
    ones, tens = (attention(scale * x, Sight(reach=0), None, None)[0] for scale in (1.0, 10.0))  # type: ignore[operator]
    torch.testing.assert_close(ones, tens, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("positions", ["rotary", "relative"])
def test_only_distances_count(positions: str) -> None:
    model = small(positions=positions)
    x = torch.randn(1, 4, DIM)
    pads = torch.zeros(1, 3, DIM)
    shifted = model(torch.cat((pads, x), 1), forget=mask_of("111...."))  # positions 3 to 6, and nothing before
    torch.testing.assert_close(shifted[:, 3:], model(x), rtol=1e-4, atol=1e-5)


def test_positions_matter() -> None:
    x = torch.randn(1, 4, DIM)
    swapped = x[:, [1, 0, 2, 3]]
    for positions in POSITIONS:
        model = small(depth=1, positions=positions)
        same = torch.allclose(model(x)[:, 3], model(swapped)[:, 3], atol=1e-5)
        assert same is (positions == "none")


def test_positions_from_outside_replace_the_counted_ones() -> None:
    model, x = small(), torch.randn(2, 5, DIM)
    counted = torch.arange(5).expand(2, -1)
    torch.testing.assert_close(model(x, at=counted), model(x), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(model(x, at=counted + 700), model(x), rtol=1e-3, atol=1e-4)
    assert not torch.allclose(model(x, at=2 * counted), model(x), atol=1e-3)
    with pytest.raises(ValueError, match="rotary"):
        small(positions="relative")(x, at=counted)


OPTIONS: list[dict[str, Any]] = [
    {"kv_heads": 1},
    {"kv_heads": 2},
    {"causal": False},
    {"positions": "relative"},
    {"positions": "none"},
    {"ff_mult": 2},
    {"qk_norm": True},
    {"value_residual": True},
    {"residual_streams": 2},
    {"cross_attend": True},
]


@pytest.mark.parametrize("option", OPTIONS, ids=str)
def test_every_option_does_something_and_every_parameter_learns(option: dict[str, Any]) -> None:
    x = torch.randn(2, 5, DIM)
    model = small(**option)
    assert not torch.allclose(model(x), small()(x), atol=1e-4)
    given = {"context": torch.randn(2, 3, DIM_CONTEXT)} if "cross_attend" in option else {}
    model(x, **given).square().mul(torch.randn(DIM)).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())


def test_null_keys_are_as_many_as_asked_for() -> None:
    assert small(cross_attend=True, num_null_kv=3).layers[0].cross.null_kv.shape[2] == 3  # type: ignore[union-attr]


@pytest.mark.parametrize("option", ["attn_dropout", "ff_dropout"])
def test_dropout_is_of_training_alone(option: str) -> None:
    model, x = small(**{option: 0.5}), torch.randn(2, 5, DIM)
    torch.testing.assert_close(model(x), small()(x), rtol=1e-4, atol=1e-5)
    assert not torch.allclose(model.train()(x), model(x), atol=1e-3)


def test_the_input_receives_a_share_of_the_gradient() -> None:
    x = torch.randn(1, 4, DIM, requires_grad=True)
    whole, shrunk = small(), small(grad_shrink_alpha=0.1)
    torch.testing.assert_close(whole(x), shrunk(x))
    ours, theirs = (torch.autograd.grad(model(x).square().mul(x.detach()).sum(), x)[0] for model in (whole, shrunk))
    torch.testing.assert_close(0.1 * ours, theirs, rtol=1e-3, atol=1e-5)


def test_it_starts_at_chance() -> None:
    torch.manual_seed(0)
    model, head = Transformer(64, 12, heads=4, dim_head=16), nn.Linear(64, 500)
    x = nn.init.normal_(torch.empty(4, 50, 64), std=0.02)
    loss = F.cross_entropy(head(model(x)).flatten(0, 1), torch.randint(0, 500, (200,)))
    assert abs(loss.item() - math.log(500)) < 0.5


def test_the_residual_does_not_grow_with_the_depth() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 20, 64)
    for depth in (2, 24):
        model = Transformer(64, depth, heads=4, dim_head=16)
        model.norm = nn.Identity()  # type: ignore[assignment]
        model.norm.weight = x  # type: ignore[assignment]
        assert 0.9 < model(x).std().item() < 1.6


@pytest.mark.parametrize("option", [{}, {"residual_streams": 2}, {"positions": "relative"}, {"qk_norm": True}], ids=str)
def test_half_precision_comes_close_and_does_not_round_the_residual(option: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model, x = Transformer(32, 2, heads=2, dim_head=16, **option), torch.randn(2, 20, 32)
    exact = model(x)
    with torch.autocast("cpu", torch.bfloat16):
        rough = model(x.bfloat16())
        rough.sum().backward()
    assert rough.dtype == torch.float32
    assert (rough - exact).norm() / exact.norm() < 0.03


def test_a_model_of_bfloat16_runs() -> None:
    model = small().bfloat16()
    out = model(torch.randn(1, 5, DIM))
    assert out.dtype == torch.bfloat16
    # The turns of far positions are not lost in bfloat16: one table of full precision is rounded at its end.
    cos, _ = model.positions.table(4000, torch.bfloat16, torch.device("cpu"))  # type: ignore[union-attr,operator]
    assert cos[3999, 0, 0] == torch.tensor(math.cos(3999)).bfloat16()


def test_AM4_training_goes_on_after_inference_mode() -> None:
    model, x = small(), torch.randn(1, 5, DIM)
    with torch.inference_mode():
        model(x)
    model(x).sum().backward()


def test_layers_can_be_made_again_instead_of_kept() -> None:
    x = torch.randn(2, 6, DIM)
    grads = []
    for recompute in (False, True):
        model = small(value_residual=True, positions="relative", kv_heads=1)
        if recompute:
            for layer in model.layers:
                layer.forward = _checkpointed(layer.forward)  # type: ignore[method-assign]
        model(x, mask=mask_of("11.111", "111111")).square().mul(x).sum().backward()
        grads.append([parameter.grad for parameter in model.parameters()])
    for kept, made in zip(*grads, strict=True):
        torch.testing.assert_close(kept, made)


def _checkpointed(forward: Any) -> Any:
    return lambda *args: checkpoint(forward, *args, use_reentrant=False)


@pytest.mark.parametrize("positions", POSITIONS)
@pytest.mark.parametrize("kv_heads", KV_HEADS)
def test_other_devices_take_another_way_to_the_same(
    positions: str, kv_heads: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small(positions=positions, kv_heads=kv_heads, cross_attend=True)
    x, context = torch.randn(2, 5, DIM), torch.randn(2, 3, DIM_CONTEXT)
    given: list[dict[str, Tensor]] = [
        {},
        {"mask": mask_of("11.11", ".1111")},
        {"prefix": torch.randn(2, 3, DIM)},
        {"context": context, "context_mask": mask_of("11.", "...")},
    ]
    ours = [model(x, **one) for one in given]
    for room in ("multi_head", "transformer"):
        monkeypatch.setattr(f"madrigal.layers.{room}.on_cpu", lambda _: False)
    for one, expected in zip(given, ours, strict=True):
        torch.testing.assert_close(model(x, **one), expected, rtol=1e-4, atol=1e-5)
        cache = model.new_cache(2)
        first = {name: t for name, t in one.items() if name != "mask"}
        pieces = []
        for t in range(5):
            mask = one["mask"][:, t : t + 1] if "mask" in one else None
            pieces.append(model(x[:, t : t + 1], mask=mask, cache=cache, **(first if t == 0 else {})))
        torch.testing.assert_close(torch.cat(pieces, 1), expected, rtol=1e-4, atol=1e-5)


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="4 heads cannot be shared out among 3"):
        small(kv_heads=3)
    with pytest.raises(ValueError, match="num_null_kv"):
        small(cross_attend=True, num_null_kv=0)
    with pytest.raises(ValueError, match="not 'absolute'"):
        small(positions="absolute")
    with pytest.raises(ValueError, match="even dim_head"):
        Transformer(8, 1, heads=1, dim_head=5)
    model = small(causal=False)
    with pytest.raises(ValueError, match="causal"):
        model(torch.randn(1, 2, DIM), cache=model.new_cache(1))


@pytest.mark.parametrize(
    "options",
    [{"causal": False}, {"residual_streams": 2}, {"causal": False, "cond_dim": 6}, {"depth": 0}],
    ids=["plain", "streams", "adaptive", "no layers"],
)
@pytest.mark.parametrize("prefixed", [True, False])
def test_tokens_that_are_wanted_come_out_as_among_all(options: dict[str, Any], prefixed: bool) -> None:
    model = small(**options).double().train()
    x = torch.randn(2, 6, DIM, dtype=torch.float64, requires_grad=True)
    given: dict[str, Any] = {"prefix": torch.randn(2, 3, DIM, dtype=torch.float64)} if prefixed else {}
    if "cond_dim" in options:
        given["cond"] = torch.randn(2, 6, dtype=torch.float64)
    wanted = mask_of("1..1.1", "......")
    ways = []
    for out in (model(x, wanted=wanted, **given), model(x, **given)[wanted]):
        assert out.shape == (3, DIM)
        ways.append([out, *torch.autograd.grad(out.square().sum(), [x, *model.parameters()], allow_unused=True)])
    torch.testing.assert_close(*ways)
