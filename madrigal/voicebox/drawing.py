"""How a flow is followed when speech is made: the solver, its steps, guidance, precision."""

from collections.abc import Sequence
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from madrigal.engine.machine import BF16, Bf16, computing_in_bf16
from madrigal.engine.recipe import build_config
from madrigal.voicebox.filling import Filled, fill
from madrigal.voicebox.model import VoiceBox
from madrigal.voicebox.solvers import Method


class Drawing(BaseModel):
    """How the flow is followed; a run's recipe says what is best for its model.

    What is null follows from the model: 8 steps of the midpoint method, or the way that it was distilled to.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    steps: int | None = Field(None, ge=1, description="intervals of the solver")
    method: Method | None = Field(None, description="the solver: euler, midpoint, heun or adaptive")
    cond_scale: float = Field(1.0, ge=0, description="over 1: lean on the text and the voice")
    sway: float | None = Field(None, ge=-1, le=1.75, description="under 0: more of the intervals lie near the noise")
    bf16: Bf16 = Field(False, description=BF16)
    duration_steps: int | None = Field(
        None, ge=1, description="intervals of the midpoint method for durations of kind=flow; null: 8"
    )

    def but(self, **changes: Any) -> Self:
        """This with some options changed; None changes nothing."""
        given = {name: value for name, value in changes.items() if value is not None}
        return build_config(type(self), {**self.model_dump(), **given}, "How to follow the flow")

    def fill(self, voicebox: VoiceBox, lengths: Tensor | Sequence[int], **given: Any) -> Filled:
        """What is not given of rows of `lengths` frames, made in this way; the rest as in `filling.fill`."""
        with computing_in_bf16(voicebox.device.type, self.bf16):
            return fill(voicebox, lengths, **given, **self.model_dump(exclude={"bf16", "duration_steps"}))
