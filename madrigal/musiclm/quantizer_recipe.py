"""The recipe of the quantizer of a joint embedding, and the trainer that follows it."""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from madrigal.engine.learned import LearnedRecipe
from madrigal.engine.plan import Plan
from madrigal.engine.randomness import seed_everything
from madrigal.engine.recipe import build_config
from madrigal.musiclm.clip_latents import LatentSource
from madrigal.musiclm.mulan import load_mulan
from madrigal.musiclm.quantizer import MuLaNEmbedQuantizer, MuLaNEmbedQuantizerConfig
from madrigal.musiclm.quantizer_training import MuLaNEmbedQuantizerTrainer


class MuLaNEmbedQuantizerRecipe(LearnedRecipe):
    """`system: mulan-quantizer`."""

    system: Literal["mulan-quantizer"]
    mulan: str = Field(description="a finished MuLaN: a run or an exported folder")
    model: dict[str, Any] = Field(default_factory=dict)
    data: LatentSource
    plan: Plan

    @model_validator(mode="after")
    def _options_are_known(self) -> Self:
        """Before anything is loaded."""
        build_config(MuLaNEmbedQuantizerConfig, self.model, "The recipe's model")
        return self

    def trainer(self, run: Path, *, resume: bool = False, overwrite: bool = False) -> MuLaNEmbedQuantizerTrainer:
        """Build the quantizer from the plan's seed, and its trainer in the folder `run`."""
        mulan = load_mulan(self.mulan)
        seed_everything(self.plan.seed, "weights")
        given = {**self.model, "dim_latent": mulan.dim_latent}
        quantizer = MuLaNEmbedQuantizer(
            mulan, config=build_config(MuLaNEmbedQuantizerConfig, given, "The recipe's model")
        )
        return MuLaNEmbedQuantizerTrainer(
            quantizer,
            plan=self.plan,
            source=self.data,
            results_folder=run,
            resume=resume,
            overwrite=overwrite,
            recipe=self.resolved(model=quantizer.config.model_dump(mode="json", exclude_unset=True)),
        )
