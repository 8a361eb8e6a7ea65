"""From noise at time 0 to speech at time 1, along a flow.

    euler       one evaluation of the flow for each interval
    midpoint    two: the flow in the middle of the interval is followed from its start
    heun        two: the mean of the flows at both ends
    adaptive    intervals as long as the tolerance allows, for every row its own (Bogacki and Shampine, 1989)

A row's way depends on nothing but the row: a batch gives what its rows alone give.
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from madrigal.errors import UserError

FixedMethod = Literal["euler", "midpoint", "heun"]
Method = Literal["euler", "midpoint", "heun", "adaptive"]
Flow = Callable[[Tensor, Tensor], Tensor]
"""x [batch, ...] and times [batch] -> the flow there, of the shape of x."""

EVALUATIONS: dict[FixedMethod, int] = {"euler": 1, "midpoint": 2, "heun": 2}
"""Of the flow in one interval."""
MOST_INTERVALS = 1000


class Solved(NamedTuple):
    """x [batch, ...] at time 1, and how often the flow was evaluated on the batch."""

    x: Tensor
    evaluations: int


def solve(
    flow: Flow,
    noise: Tensor,
    *,
    method: Method = "midpoint",
    steps: int = 8,
    sway: float = 0.0,
    rtol: float = 1e-3,
    atol: float = 1e-3,
    mask: Tensor | None = None,
) -> Solved:
    """Follow `flow` from `noise` [batch, ...] at time 0 to time 1, in `steps` intervals.

    `sway` below 0 puts more of them near the noise, above 0 near the speech. The adaptive method heeds the tolerances
    in place of `steps`; it judges its error by what `mask` (broadcast over noise, True = real) leaves.
    """
    if method == "adaptive":
        return _adaptive(flow, noise, rtol, atol, mask)
    if method not in EVALUATIONS:
        raise UserError(f"There is no solver {method!r}; there is {', '.join(EVALUATIONS)} and adaptive.")
    x = noise
    for start, end in pairwise(time_grid(steps, sway).to(x.device, x.dtype)):
        x = interval(flow, x, start.expand(len(x)), end.expand(len(x)), method)
    return Solved(x, EVALUATIONS[method] * steps)


def between(flow: Flow, x: Tensor, start: Tensor, end: Tensor, *, method: FixedMethod, steps: int) -> Tensor:
    """Follow `flow` from x [batch, ...] at the times `start` to the times `end`, [batch] each, in equal intervals."""
    if method not in EVALUATIONS:
        raise UserError(f"An interval is gone through by {', '.join(EVALUATIONS)}, and not by {method!r}.")
    for step in range(steps):
        first, last = (torch.lerp(start, end, part / steps) for part in (step, step + 1))
        x = interval(flow, x, first, last, method)
    return x


def time_grid(steps: int, sway: float = 0.0) -> Tensor:
    """The ends of `steps` intervals, [steps + 1] from 0 to 1, swayed as in F5-TTS (arXiv:2410.06885)."""
    if steps < 1:
        raise UserError(f"steps is {steps}; give at least one interval.")
    # Beyond these the times would no longer grow.
    if not -1 <= sway <= 2 / (torch.pi - 2):
        raise UserError(f"sway is {sway}; give a number from -1 to 1.75.")
    even = torch.linspace(0, 1, steps + 1, dtype=torch.float64)
    return even + sway * (torch.cos(torch.pi / 2 * even) - 1 + even)


def times_asked(method: Method, steps: int, sway: float = 0.0) -> Tensor | None:
    """When `solve` will ask for the flow, [evaluations]; the adaptive method does not know it beforehand."""
    if method == "adaptive":
        return None
    asked: list[Tensor] = []

    def note(x: Tensor, times: Tensor) -> Tensor:
        asked.append(times)
        return x

    solve(note, torch.zeros(1), method=method, steps=steps, sway=sway)
    return torch.cat(asked)


def interval(flow: Flow, x: Tensor, start: Tensor, end: Tensor, method: FixedMethod) -> Tensor:
    """One interval of each row, from `start` to `end` [batch]."""
    step = (end - start).view(-1, *(1,) * (x.ndim - 1))
    first = flow(x, start)
    if method == "euler":
        return x + step * first
    if method == "midpoint":
        return x + step * flow(x + step / 2 * first, (start + end) / 2)
    return x + step / 2 * (first + flow(x + step * first, end))


def _adaptive(flow: Flow, noise: Tensor, rtol: float, atol: float, mask: Tensor | None) -> Solved:
    """Third order with a second-order estimate of its error; each row has a time and a step of its own."""
    rows, x = len(noise), noise
    shape = (-1, *(1,) * (noise.ndim - 1))
    time = torch.zeros(rows, device=x.device)
    step = torch.full((rows,), 0.1, device=x.device)
    first, evaluations = flow(x, time), 1
    for _ in range(MOST_INTERVALS):
        if bool((time >= 1).all()):
            return Solved(x, evaluations)
        if not bool(_size(first, mask).isfinite().all()):
            raise UserError("The flow is no number: the model's weights, or what it was given, are not finite.")
        step = step.minimum(1 - time)  # rows that have arrived stay where they are
        h = step.view(shape)
        second = flow(x + h / 2 * first, time + step / 2)
        third = flow(x + h * 3 / 4 * second, time + step * 3 / 4)
        there = x + h / 9 * (2 * first + 3 * second + 4 * third)
        fourth = flow(there, time + step)
        evaluations += 3
        error = h / 72 * (-5 * first + 6 * second + 8 * third - 9 * fourth)
        size = _size(error / (atol + rtol * torch.maximum(x.abs(), there.abs())), mask)
        size = size.nan_to_num(nan=torch.inf, posinf=torch.inf)  # a shorter step may not leave what can be computed
        taken = size <= 1
        x, first = (torch.where(taken.view(shape), new, old) for new, old in ((there, x), (fourth, first)))
        time = torch.where(taken, torch.where(step >= 1 - time, 1.0, time + step), time)
        step = step * (0.9 * size.clamp(min=1e-6) ** (-1 / 3)).clamp(0.2, 5.0)
    raise UserError(
        f"The adaptive solver did not arrive in {MOST_INTERVALS} intervals: raise its tolerances or take another one."
    )


def _size(error: Tensor, mask: Tensor | None) -> Tensor:
    """Root mean square of every row, [batch], over what is real."""
    squares = error.square()
    if mask is None:
        return squares.flatten(1).mean(1).sqrt()
    real = mask.expand_as(squares)
    return ((squares * real).flatten(1).sum(1) / real.flatten(1).sum(1).clamp(min=1)).sqrt()
