"""Learning rates as closed-form functions of the global step.

No scheduler object is stepped, so nothing depends on the number of processes, on accumulation or on a resume:
the rate at step n can be asked for at any time. The ramp takes `warmup_steps` steps, the step after it is the
first at the peak, and the last step of the run is exactly at the end of the curve.
"""

import math
from collections.abc import Callable
from typing import Any, Literal

import torch

from madrigal.errors import UserError

Curve = Callable[[int], float]
"""From the step (0 is the first one after the warm-up's start) to a factor of the peak rate."""

ScheduleName = Literal["constant", "linear", "cosine"]


def learning_rate(
    step: int,
    *,
    peak: float,
    total_steps: int | None,
    warmup_steps: int = 0,
    initial: float = 0.0,
    final: float = 0.0,
    schedule: ScheduleName | Curve = "constant",
) -> float:
    """The rate of `step`, counted from 0.

    `final` is the rate of the last step for `linear` and `cosine`; a custom curve gives factors of `peak`.
    """
    if step < warmup_steps:
        # A run may end within its warm-up: the ramp still leads to the peak.
        top = peak * schedule(warmup_steps) if callable(schedule) else peak
        return initial + (top - initial) * (step + 1) / (warmup_steps + 1)
    return _after_warmup(step, peak, total_steps, warmup_steps, final, schedule)


def _after_warmup(
    step: int,
    peak: float,
    total_steps: int | None,
    warmup_steps: int,
    final: float,
    schedule: ScheduleName | Curve,
) -> float:
    if callable(schedule):
        return peak * schedule(step)
    if schedule == "constant":
        return peak
    if total_steps is None:
        raise UserError(f"The {schedule} schedule needs an end: set num_train_steps or num_train_epochs.")
    last = total_steps - 1
    progress = min(1.0, (step - warmup_steps) / (last - warmup_steps)) if last > warmup_steps else 1.0
    left = 1.0 - progress if schedule == "linear" else 0.5 * (1.0 + math.cos(math.pi * progress))
    return peak * left + final * (1.0 - left)  # exact at both ends, which a sum onto one of them is not


def curve_of(scheduler: type, kwargs: dict[str, Any], peak: float) -> Curve:
    """A torch scheduler class as a curve: its rates are computed once, on a parameter of no meaning."""
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=peak)
    stepped = scheduler(optimizer, **kwargs)
    factors = [optimizer.param_groups[0]["lr"] / peak]

    def factor(step: int) -> float:
        while len(factors) <= step:
            optimizer.step()
            stepped.step()
            factors.append(optimizer.param_groups[0]["lr"] / peak)
        return float(factors[step])

    return factor
