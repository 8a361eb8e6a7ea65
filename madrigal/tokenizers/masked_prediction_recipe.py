"""The recipe of a masked-prediction tokenizer, and the trainer that follows it."""

from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from madrigal.data.source import AudioSource
from madrigal.engine.randomness import seed_everything
from madrigal.tokenizers.masked_prediction import MaskedPrediction, MaskedPredictionConfig
from madrigal.tokenizers.masked_prediction_trainer import MaskedPredictionPlan, MaskedPredictionTrainer


class MaskedPredictionRecipe(BaseModel):
    """`system: masked-prediction`, the encoder's options, the data and the plan."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    system: Literal["masked-prediction"]
    model: MaskedPredictionConfig = Field(default_factory=MaskedPredictionConfig)
    data: AudioSource
    plan: MaskedPredictionPlan

    def trainer(self, run: Path, *, resume: bool = False, overwrite: bool = False) -> MaskedPredictionTrainer:
        """Build the encoder from the plan's seed, and its trainer in the folder `run`."""
        seed_everything(self.plan.seed, "weights")
        return MaskedPredictionTrainer(
            MaskedPrediction(self.model),
            plan=self.plan,
            source=self.data,
            results_folder=run,
            resume=resume,
            overwrite=overwrite,
        )
