"""Who sees whom, and from how far: turned once per forward pass into what every layer's attention needs.

A token's position is the number of real tokens before it in its row, so pads may stand anywhere. Nobody sees a pad. Its
own softmax needs something to sum to: it sees itself, or, where there is no order, what the real tokens see.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from madrigal.layers.cache import KeyValueCache
from madrigal.layers.positions import DynamicPositionBias, RotaryPositions

HIDDEN = float("-inf")


@dataclass
class Sight:
    """What attention needs to know beside queries, keys and values.

    `rotation`: cos and sin, broadcast over [batch, heads, time, 2, dim_head / 2]. `bias`: added to the scores,
    broadcast over [batch, heads, time, keys], -inf for what is not seen. `reach`: no query sees a key after itself,
    unless it is one of the first `reach` keys; None = there is no order. Without a bias, the order is all there is to
    obey.
    """

    rotation: tuple[Tensor, Tensor] | None = None
    bias: Tensor | None = None
    reach: int | None = None


def look(
    x: Tensor,
    *,
    causal: bool,
    prefix: int = 0,
    real: Tensor | None = None,
    visible: Tensor | None = None,
    at: Tensor | None = None,
    cache: KeyValueCache | None = None,
    positions: RotaryPositions | DynamicPositionBias | None = None,
) -> Sight:
    """The sight of the tokens x [batch, time, dim]; the first `prefix` of them see each other and are seen by all.

    `real` and `visible` [batch, time] are None if all are; `cache` has made room for x already. `at` [batch, time] are
    positions from outside.
    """
    time = x.shape[1]
    past = 0 if cache is None else cache.length
    keys = past + time
    if cache is not None and cache.real is not None and cache.visible is not None:
        real, visible = cache.real[:, :keys], cache.visible[:, :keys]
    # Where the keys stand, [batch, keys], if it differs from row to row.
    standing = None if real is None or positions is None else real.cumsum(dim=1) - real.long()
    kind = x.device.type
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype

    sight = Sight(reach=prefix if causal else None)
    if isinstance(positions, RotaryPositions):
        sight.rotation = _rotation(positions, at, standing, past, keys, dtype, x.device)
    if not causal and visible is not None and visible is real:
        # Pads alone are hidden, from all alike: one row of numbers in place of a square. A row of nothing sees it all.
        seen: Tensor | None = (real | ~real.any(dim=1, keepdim=True))[:, None, None]
    else:
        seen = _seen(visible, past, time, prefix, causal, x.device)
    if isinstance(positions, DynamicPositionBias):
        sight.bias = _distance_bias(positions, seen, standing, past, time, prefix > 0 or not causal, cache).to(dtype)
    elif seen is not None:
        sight.bias = torch.zeros(seen.shape, dtype=dtype, device=x.device).masked_fill_(~seen, HIDDEN)
    return sight


def _rotation(
    positions: RotaryPositions,
    at: Tensor | None,
    standing: Tensor | None,
    past: int,
    keys: int,
    dtype: torch.dtype,
    device: torch.device,
) -> tuple[Tensor, Tensor]:
    rows = at if at is not None else None if standing is None else standing[:, past:]
    cos, sin = positions.table(keys if at is None else int(at.max()) + 1, dtype, device)
    if rows is None:
        return cos[past:keys], sin[past:keys]
    return cos[rows].unsqueeze(1), sin[rows].unsqueeze(1)


def _seen(
    visible: Tensor | None, past: int, time: int, prefix: int, causal: bool, device: torch.device
) -> Tensor | None:
    """Bool [batch or 1, 1, time, keys]: visible keys in their order, and always oneself; None if the order says it."""
    keys = past + time
    order = None
    if causal and time > 1 and (past or prefix or visible is not None):
        order = torch.ones(time, keys, dtype=torch.bool, device=device).tril(past)
        order[:, :prefix] = True
    if visible is None:
        return None if order is None else order[None, None]
    seen = visible[:, None] if order is None else visible[:, None] & order
    itself = torch.ones(time, keys, dtype=torch.bool, device=device).tril(past).triu(past)
    return (seen | itself)[:, None]


def _distance_bias(
    positions: DynamicPositionBias,
    seen: Tensor | None,
    standing: Tensor | None,
    past: int,
    time: int,
    both_ways: bool,
    cache: KeyValueCache | None,
) -> Tensor:
    """Float [batch or 1, heads, time, keys]: the bias of each distance, and -inf for what is not seen."""
    keys = past + time
    if cache is not None and time == 1 and standing is None:
        if cache.distance_bias is None or cache.distance_bias.shape[1] < cache.capacity:
            cache.distance_bias = positions.between(0, cache.capacity - 1).flip(1).contiguous()
        return cache.distance_bias[None, :, None, cache.distance_bias.shape[1] - keys :]
    lowest = 1 - keys if both_ways else 0
    table = positions.between(lowest, keys - 1)
    if standing is not None:
        distance = (standing[:, past:, None] - standing[:, None]).clamp(min=lowest)
        bias = table[:, distance - lowest].transpose(0, 1)
    else:
        if both_ways:
            table = table[:, past:]
        else:
            table = torch.cat((table.new_full((len(table), time - 1), HIDDEN), table), dim=1)
        bias = _slide(table, keys)[None]
    return bias if seen is None else bias.masked_fill(~seen, HIDDEN)


def _slide(table: Tensor, keys: int) -> Tensor:
    """[heads, time - 1 + keys] by distance from 1 - time to keys - 1 -> [heads, time, keys] by query and key."""
    return table.unfold(1, keys, 1).flip(2)
