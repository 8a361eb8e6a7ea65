"""The recipe of a codec of log-mels, and the trainer that follows it."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from madrigal.data.source import AudioSource
from madrigal.engine.randomness import seed_everything
from madrigal.tokenizers.mel_codec import MelCodec
from madrigal.tokenizers.mel_codec_config import MelCodecConfig
from madrigal.tokenizers.mel_codec_trainer import MelCodecPlan, MelCodecTrainer


class MelCodecRecipe(BaseModel):
    """`system: mel-codec`, the codec's options, the data and the plan."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    system: Literal["mel-codec"]
    model: MelCodecConfig = Field(default_factory=MelCodecConfig)
    data: AudioSource
    plan: MelCodecPlan

    def trainer(self, run: Path, *, resume: bool = False, overwrite: bool = False) -> MelCodecTrainer:
        """Build the codec from the plan's seed, and its trainer in the folder `run`."""
        seed_everything(self.plan.seed, "weights")
        return MelCodecTrainer(
            MelCodec(self.model),
            plan=self.plan,
            source=self.data,
            results_folder=run,
            resume=resume,
            overwrite=overwrite,
        )
