"""The recipe of an aligner, and the trainer that follows it."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from madrigal.data.source import Source
from madrigal.engine.randomness import seed_everything
from madrigal.voicebox.aligner import Aligner, AlignerConfig
from madrigal.voicebox.aligner_training import AlignerPlan, AlignerTrainer


class AlignerRecipe(BaseModel):
    """`system: aligner`, the aligner's options, recordings with texts, and the plan."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    system: Literal["aligner"]
    model: AlignerConfig = Field(default_factory=AlignerConfig)
    data: Source
    plan: AlignerPlan

    def trainer(self, run: Path, *, resume: bool = False, overwrite: bool = False) -> AlignerTrainer:
        """Build the aligner from the plan's seed, and its trainer in the folder `run`."""
        seed_everything(self.plan.seed, "weights")
        return AlignerTrainer(
            Aligner(self.model),
            plan=self.plan,
            source=self.data,
            results_folder=run,
            resume=resume,
            overwrite=overwrite,
        )
