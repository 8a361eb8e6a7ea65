"""How many of a picture's tokens are masked at a time from 0 (all of them) to 1 (none)."""

import math
from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from madrigal.errors import UserError

ScheduleName = Literal["cosine", "arccos", "linear"]


def cosine_schedule(times: Tensor) -> Tensor:
    """Most of the tokens are made late, in few steps."""
    return torch.cos(times * math.pi / 2)


def arccos_schedule(times: Tensor) -> Tensor:
    """Later still."""
    return torch.arccos(times) * 2 / math.pi


def linear_schedule(times: Tensor) -> Tensor:
    """As many in every step."""
    return 1 - times


SCHEDULES: dict[str, Callable[[Tensor], Tensor]] = {
    "cosine": cosine_schedule,
    "arccos": arccos_schedule,
    "linear": linear_schedule,
}


def schedule_name(value: Any) -> Any:
    """The name of a schedule that is given as its function."""
    if not callable(value):
        return value
    name = next((name for name, function in SCHEDULES.items() if function is value), None)
    if name is None:
        raise UserError(f"noise_schedule is {value!r}; it has to be {', '.join(get_args(ScheduleName))}.")
    return name
