"""The plans of the flow's trainings: what is chosen beside the engine's own plan."""

from collections.abc import Callable
from typing import Any

from pydantic import Field

from madrigal.engine.plan import Plan
from madrigal.engine.schedule import ScheduleName
from madrigal.voicebox.solvers import FixedMethod


class VoiceBoxPlan(Plan):
    """A plan with a warm-up and a cosine as its first choice."""

    initial_lr: float = Field(1e-5, ge=0, description="where the warm-up starts")
    scheduler: ScheduleName | Callable[[int], float] | type = Field(
        "cosine", description="constant, linear or cosine; in Python also a curve or a torch scheduler class"
    )

    def sampling(self) -> dict[str, Any]:
        """How samples are made: options of `filling.fill`."""
        return {"seed": self.seed}


class FlowPlan(VoiceBoxPlan):
    """And how its samples are made."""

    sample_steps: int = Field(8, ge=1, description="intervals of the solver that makes the samples")
    sample_cond_scale: float = Field(1.0, description="guidance of the samples; other than 1 needs cond_drop_prob")

    def sampling(self) -> dict[str, Any]:
        return {**super().sampling(), "steps": self.sample_steps, "cond_scale": self.sample_cond_scale}


class DistillPlan(VoiceBoxPlan):
    """What a teacher's way is learned from, and in how many steps; samples are made in these steps."""

    steps: int = Field(4, ge=1, description="intervals in which the student goes, each of one evaluation")
    teacher_steps: int = Field(4, ge=1, description="intervals in which the teacher goes through one of these")
    teacher_method: FixedMethod = Field("midpoint", description="how the teacher goes: euler, midpoint or heun")
    teacher_cond_scale: float = Field(1.0, description="guidance of the teacher, which the student has built in then")
    sway: float = Field(0.0, description="where the student's intervals lie: below 0 more of them near the noise")
