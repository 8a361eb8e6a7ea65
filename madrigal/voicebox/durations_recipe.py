"""The recipe of a duration predictor, and the trainer that follows it."""

import tempfile
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from madrigal.data.source import manifest_of
from madrigal.engine.learned import LearnedRecipe
from madrigal.engine.randomness import seed_everything
from madrigal.engine.recipe import build_config
from madrigal.voicebox.alignments import AlignmentInfo
from madrigal.voicebox.durations import DurationPredictor, DurationPredictorConfig
from madrigal.voicebox.durations_training import DurationPredictorTrainer
from madrigal.voicebox.finding import find_alignments
from madrigal.voicebox.plans import FlowPlan
from madrigal.voicebox.source import AlignedSource


class DurationsRecipe(LearnedRecipe):
    """`system: durations`. Options that follow from the alignments need not be given."""

    system: Literal["durations"]
    model: dict[str, Any] = Field(default_factory=dict)
    data: AlignedSource
    plan: FlowPlan

    @model_validator(mode="after")
    def _options_are_known(self) -> Self:
        """Before anything is loaded: what the alignments would say is stood in for."""
        build_config(DurationPredictorConfig, {"num_symbols": 1, **self.model}, "The recipe's model")
        return self

    def trainer(self, run: Path, *, resume: bool = False, overwrite: bool = False) -> DurationPredictorTrainer:
        """Build the predictor from the plan's seed, and its trainer in the folder `run`."""
        info = self._alignments()
        config = self.config(info)
        seed_everything(self.plan.seed, "weights")
        return DurationPredictorTrainer(
            DurationPredictor(config),
            plan=self.plan,
            source=self.data,
            results_folder=run,
            resume=resume,
            overwrite=overwrite,
            recipe=self.resolved(model=config.model_dump(mode="json", exclude_defaults=True)),
            learned={"aligner": info.fingerprint},
        )

    def config(self, info: AlignmentInfo) -> DurationPredictorConfig:
        """The predictor's options, with those that follow from the alignments."""
        known = {
            "symbols": info.symbols,
            "num_symbols": info.num_symbols,
            "sample_rate": info.sample_rate,
            "hop": info.hop,
        }
        return build_config(DurationPredictorConfig, {**known, **self.model}, "The recipe's model")

    def _alignments(self) -> AlignmentInfo:
        grid = None
        if {"sample_rate", "hop"} <= self.model.keys():
            grid = (int(self.model["sample_rate"]), int(self.model["hop"]))
        # The run's folder is not opened yet: what preparing a plain folder writes is written again there.
        with tempfile.TemporaryDirectory() as folder:
            manifest = manifest_of(self.data.path, Path(folder))
            return find_alignments(self.data.alignments, manifest, grid).info
