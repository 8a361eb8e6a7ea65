"""The recipe of a SoundStream, and the trainer that follows it."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from madrigal.data.source import AudioSource
from madrigal.engine.randomness import seed_everything
from madrigal.soundstream.codec import SoundStream
from madrigal.soundstream.config import SoundStreamConfig
from madrigal.soundstream.trainer import SoundStreamPlan, SoundStreamTrainer


class SoundStreamRecipe(BaseModel):
    """`system: soundstream`, the codec's options, the data and the plan."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    system: Literal["soundstream"]
    model: SoundStreamConfig = Field(default_factory=SoundStreamConfig)
    data: AudioSource
    plan: SoundStreamPlan

    def trainer(self, run: Path, *, resume: bool = False, overwrite: bool = False) -> SoundStreamTrainer:
        """Build the codec from the plan's seed, and its trainer in the folder `run`."""
        seed_everything(self.plan.seed, "weights")
        return SoundStreamTrainer(
            SoundStream(self.model),
            plan=self.plan,
            source=self.data,
            results_folder=run,
            resume=resume,
            overwrite=overwrite,
        )
