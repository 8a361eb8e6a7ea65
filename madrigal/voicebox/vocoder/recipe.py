"""The recipe of a vocoder, and the trainer that follows it."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from madrigal.data.source import AudioSource
from madrigal.engine.randomness import seed_everything
from madrigal.voicebox.vocoder.config import VocoderConfig
from madrigal.voicebox.vocoder.model import Vocoder
from madrigal.voicebox.vocoder.trainer import VocoderPlan, VocoderTrainer


class VocoderRecipe(BaseModel):
    """`system: vocoder`, the vocoder's options, the data and the plan."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    system: Literal["vocoder"]
    model: VocoderConfig = Field(default_factory=VocoderConfig)
    data: AudioSource
    plan: VocoderPlan

    def trainer(self, run: Path, *, resume: bool = False, overwrite: bool = False) -> VocoderTrainer:
        """Build the vocoder from the plan's seed, and its trainer in the folder `run`."""
        seed_everything(self.plan.seed, "weights")
        return VocoderTrainer(
            Vocoder(self.model),
            plan=self.plan,
            source=self.data,
            results_folder=run,
            resume=resume,
            overwrite=overwrite,
        )
