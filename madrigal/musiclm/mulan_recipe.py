"""The recipe of a MuLaN, and the trainer that follows it."""

import tempfile
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from madrigal.engine.checkpoint import newest_whole
from madrigal.engine.learned import LearnedRecipe
from madrigal.engine.randomness import seed_everything
from madrigal.musiclm.captions import CaptionedSource, captions_of
from madrigal.musiclm.mulan import MuLaN, MuLaNConfig, without_effect
from madrigal.musiclm.mulan_trainer import MuLaNPlan, MuLaNTrainer
from madrigal.musiclm.text_transformer import TextConfig
from madrigal.tokenizers.text import fit_text, has_to_learn


class MuLaNRecipe(LearnedRecipe):
    """`system: mulan`, the model's options, recordings with captions, and the plan."""

    system: Literal["mulan"]
    model: MuLaNConfig = Field(default_factory=MuLaNConfig)
    data: CaptionedSource
    plan: MuLaNPlan

    @model_validator(mode="after")
    def _options_act(self) -> Self:
        """Before anything is loaded."""
        if idle := without_effect({name: getattr(self.model, name) for name in self.model.model_fields_set}):
            raise ValueError(f"the model's {idle}")
        return self

    def trainer(self, run: Path, *, resume: bool = False, overwrite: bool = False) -> MuLaNTrainer:
        """Build the model from the plan's seed, and its trainer in the folder `run`."""
        config = self.config(newest_whole(run / "checkpoints") if resume else None)
        seed_everything(self.plan.seed, "weights")
        return MuLaNTrainer(
            MuLaN.of(config),
            plan=self.plan,
            source=self.data,
            results_folder=run,
            resume=resume,
            overwrite=overwrite,
            recipe=self.resolved(model=_recorded(config)),
        )

    def config(self, begun: Path | None = None) -> MuLaNConfig:
        """The model's options; a tokenizer that has to learn learns from the captions, once."""
        text = self.model.text
        if not isinstance(text, TextConfig) or not has_to_learn(text.tokenizer):
            return self.model
        if begun is not None:
            return self.model.model_copy(update={"text": MuLaN.from_pretrained(begun).config.text})
        # The run's folder is not opened yet: what preparing a plain folder writes is written again there.
        with tempfile.TemporaryDirectory() as folder:
            captions = [t for e in self.data.captioned(self.data.path, Path(folder)) for t in captions_of(e)]
        learned = text.model_copy(update={"tokenizer": fit_text(text.tokenizer, captions)})
        return self.model.model_copy(update={"text": learned})


def _recorded(config: MuLaNConfig) -> dict[str, Any]:
    """What differs from the defaults, and which kind of text side it is."""
    found = config.model_dump(mode="json", exclude_defaults=True)
    return {**found, "text": {**found.get("text", {}), "kind": config.text.kind}}
