"""The plan of MaskGit's training: what is chosen beside the engine's own plan."""

from collections.abc import Callable
from typing import Any

from pydantic import Field

from madrigal.engine.plan import Plan
from madrigal.engine.schedule import ScheduleName


class MaskGitPlan(Plan):
    """A plan with a cosine as its first choice, and how its samples are made."""

    scheduler: ScheduleName | Callable[[int], float] | type = Field(
        "cosine", description="constant, linear or cosine; in Python also a curve or a torch scheduler class"
    )
    sample_timesteps: int = Field(12, ge=1, description="steps in which a sample is made")
    sample_cond_scale: float = Field(3.0, ge=0, description="guidance of the samples")

    def sampling(self) -> dict[str, Any]:
        """How samples are made: options of `Painting`."""
        return {"timesteps": self.sample_timesteps, "cond_scale": self.sample_cond_scale}
