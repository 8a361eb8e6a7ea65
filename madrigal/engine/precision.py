"""Autocast, and the loss scale that half precision needs."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch

from madrigal.engine.machine import has_bf16

PrecisionName = Literal["fp32", "bf16", "fp16", "auto"]

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


def chosen_precision(name: PrecisionName, device_type: str) -> PrecisionName:
    """What `auto` means on a kind of device: bf16 where it computes in it, and fp32 where it would only pretend to."""
    return ("bf16" if has_bf16(device_type) else "fp32") if name == "auto" else name


class Precision:
    """In what numbers a loss is computed, and by how much it is scaled before `backward`.

    Only fp16 scales: the scale is halved when a gradient overflows and doubled after `growth_interval` good
    steps. It belongs to one turn, so that an overflow in one discriminator touches nobody else, and it is
    three numbers that a checkpoint can hold.
    """

    growth_interval = 2000
    smallest = 1.0

    def __init__(self, name: PrecisionName, device_type: str) -> None:
        self.name = chosen_precision(name, device_type)
        self.device_type = device_type
        self.scale = 2.0**16 if self.name == "fp16" else 1.0
        self.good_steps = 0

    def autocast(self) -> AbstractContextManager[Any]:
        if self.name == "fp32":
            return nullcontext()
        return torch.autocast(self.device_type, dtype=_DTYPES[self.name])

    def update(self, finite: bool) -> bool:
        """Note how a step went; true when an overflow was only the scale's fault and is no cause for alarm."""
        if self.name != "fp16":
            return False
        if finite:
            self.good_steps += 1
            if self.good_steps % self.growth_interval == 0:
                self.scale *= 2.0
            return False
        self.good_steps = 0
        could_shrink = self.scale > self.smallest
        self.scale = max(self.smallest, self.scale / 2.0)
        return could_shrink

    def state_dict(self) -> dict[str, float]:
        return {"scale": self.scale, "good_steps": self.good_steps}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.scale, self.good_steps = float(state["scale"]), int(state["good_steps"])
