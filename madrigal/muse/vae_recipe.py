"""The recipe of a VQGAN, and the trainer that follows it."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from madrigal.data.picture_source import PictureSource
from madrigal.engine.randomness import seed_everything
from madrigal.muse.vae import VQGanVAE
from madrigal.muse.vae_config import VQGanVAEConfig
from madrigal.muse.vae_trainer import VQGanPlan, VQGanVAETrainer


class VQGanRecipe(BaseModel):
    """`system: vqgan`, the tokenizer's options, the pictures and the plan."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    system: Literal["vqgan"]
    model: VQGanVAEConfig = Field(default_factory=VQGanVAEConfig)
    data: PictureSource
    plan: VQGanPlan

    def trainer(self, run: Path, *, resume: bool = False, overwrite: bool = False) -> VQGanVAETrainer:
        """Build the tokenizer from the plan's seed, and its trainer in the folder `run`."""
        seed_everything(self.plan.seed, "weights")
        return VQGanVAETrainer(
            VQGanVAE(self.model),
            plan=self.plan,
            source=self.data,
            results_folder=run,
            resume=resume,
            overwrite=overwrite,
        )
