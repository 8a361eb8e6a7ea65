"""The recipes of the flow's trainings, and the trainers that follow them."""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from madrigal.data.source import AudioSource
from madrigal.data.tokens import TOKENS, TokenShards
from madrigal.engine.checkpoint import newest_whole
from madrigal.engine.learned import LearnedRecipe
from madrigal.engine.randomness import seed_everything
from madrigal.engine.recipe import build_config
from madrigal.errors import UserError
from madrigal.voicebox.alignments import ALIGNMENTS, Alignments
from madrigal.voicebox.config import OF_IDS, VoiceBoxConfig
from madrigal.voicebox.distill import VoiceBoxDistiller
from madrigal.voicebox.features import load_features
from madrigal.voicebox.flow import ConditionalFlowMatcherWrapper
from madrigal.voicebox.model import VoiceBox
from madrigal.voicebox.plans import DistillPlan, FlowPlan, VoiceBoxPlan
from madrigal.voicebox.source import AlignedSource
from madrigal.voicebox.training import FlowSource, VoiceBoxTrainer


class FlowData(AudioSource):
    """Recordings, and what `madrigal align` has found in them."""

    alignments: Path | None = Field(
        None, description="a folder of `madrigal align`, or of semantic tokens; none: the model has no ids"
    )
    min_confidence: float = Field(0.0, ge=0, le=1, description="recordings aligned with less are left out")

    def source(self) -> FlowSource:
        """Where the trainer's data come from."""
        cut: dict[str, Any] = {"max_length_seconds": self.max_length_seconds}
        if self.alignments is None:
            return AudioSource(path=self.path, valid_path=self.valid_path, gain_db=self.gain_db, **cut)
        if self.gain_db != (0.0, 0.0):
            raise UserError("Aligned recordings are learned as loud as they are: leave out data.gain_db.")
        return AlignedSource(
            path=self.path,
            valid_path=self.valid_path,
            alignments=self.alignments,
            min_confidence=self.min_confidence,
            **cut,
        )


class FlowRecipe(LearnedRecipe):
    """What the recipes of both trainings share."""

    features: str = Field(description="the run or the folder of a vocoder, or the name of a codec")
    data: FlowData
    plan: VoiceBoxPlan


class VoiceBoxRecipe(FlowRecipe):
    """`system: voicebox-flow`. Options that follow from the features and the alignments need not be given."""

    system: Literal["voicebox-flow"]
    model: dict[str, Any] = Field(default_factory=dict)
    start: str | None = Field(None, description="weights to begin with: a run of voicebox-flow, or an exported folder")
    plan: FlowPlan

    @model_validator(mode="after")
    def _options_are_known(self) -> Self:
        """Before anything is loaded: what features and alignments would say is stood in for."""
        stood_in = {"dim_in": 1, "num_cond_tokens": 1, **self.model, "condition_on_text": True}
        build_config(VoiceBoxConfig, stood_in, "The recipe's model")
        return self

    def trainer(self, run: Path, *, resume: bool = False, overwrite: bool = False) -> VoiceBoxTrainer:
        """Build the model from the plan's seed or from its start, and its trainer in the folder `run`."""
        features = load_features(self.features)
        config = self.config(features.dim)
        seed_everything(self.plan.seed, "weights")
        model = VoiceBox(config)
        # A run that has a checkpoint knows all that it had from its start, which may be gone by now.
        if self.start is not None and not (resume and newest_whole(run / "checkpoints")):
            start_from(model, self.start)
        return VoiceBoxTrainer(
            ConditionalFlowMatcherWrapper(model, features),
            plan=self.plan,
            source=self.data.source(),
            results_folder=run,
            resume=resume,
            overwrite=overwrite,
            recipe=self.resolved(model=config.model_dump(mode="json", exclude_defaults=True)),
        )

    def config(self, dim_in: int) -> VoiceBoxConfig:
        """The model's options, with those that follow from its features and its alignments."""
        model = {"condition_on_text": self.data.alignments is not None, **self.model}
        if not model["condition_on_text"]:
            # A recipe that is written for ids serves without them, too.
            model = {name: value for name, value in model.items() if name not in OF_IDS}
        elif self.data.alignments is not None:
            model = {"num_cond_tokens": number_of_symbols(self.data.alignments), **model}
        return build_config(VoiceBoxConfig, {"dim_in": dim_in, **model}, "The recipe's model")


class DistillRecipe(FlowRecipe):
    """`system: voicebox-distill`: a student that needs fewer steps than its teacher."""

    system: Literal["voicebox-distill"]
    teacher: str = Field(description="a run of voicebox-flow, or an exported folder")
    plan: DistillPlan

    def trainer(self, run: Path, *, resume: bool = False, overwrite: bool = False) -> VoiceBoxDistiller:
        """A student that begins as its teacher, and its trainer in the folder `run`."""
        teacher = VoiceBox.from_pretrained(self.teacher)
        return VoiceBoxDistiller(
            teacher,
            load_features(self.features),
            plan=self.plan,
            source=self.data.source(),
            results_folder=run,
            resume=resume,
            overwrite=overwrite,
            recipe=self.resolved(),
        )


def start_from(model: VoiceBox, name: str) -> None:
    """Give `model` the weights of a run, a checkpoint or an exported folder, of the same sizes."""
    weights = VoiceBox.from_pretrained(name).state_dict()
    own = model.state_dict()
    for key in sorted({*own, *weights}):
        here, there = (list(state[key].shape) if key in state else "missing" for state in (own, weights))
        if here != there:
            raise UserError(
                f"{name} cannot be the start of this model: its {key} is {there}, and here it is {here}. Give both the "
                "same model options, features and symbols."
            )
    model.load_state_dict(weights)


def number_of_symbols(folder: Path) -> int:
    """Of the alignments (or semantic tokens) that lie in `folder`, or in folders below it."""
    found = {Alignments.open(file.parent).info.num_symbols for file in sorted(folder.rglob(ALIGNMENTS))}
    if not found:
        found = {TokenShards.open(file.parent).info.codebook_size for file in sorted(folder.rglob(TOKENS))}
    if len(found) != 1:
        what = "no alignments" if not found else f"alignments of {' and '.join(map(str, sorted(found)))} symbols"
        raise UserError(f"{folder} holds {what}: name what one `madrigal align` has written.")
    return found.pop()
