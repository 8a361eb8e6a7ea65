"""The recipes of the three stages, and the trainers that follow them."""

from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from madrigal.audiolm.coarse import CoarseTransformer
from madrigal.audiolm.config import StageConfig
from madrigal.audiolm.fine import FineTransformer
from madrigal.audiolm.learned import TokenRecipe
from madrigal.audiolm.semantic import SemanticTransformer
from madrigal.audiolm.source import TokenSource
from madrigal.audiolm.stage import StageTransformer
from madrigal.audiolm.training import (
    CoarseTransformerTrainer,
    FineTransformerTrainer,
    SemanticTransformerTrainer,
    StagePlan,
    StageTrainer,
)
from madrigal.audiolm.vectors import start_from_vectors
from madrigal.engine.randomness import seed_everything
from madrigal.engine.recipe import build_config
from madrigal.tokenizers.loading import load_codec, load_conditioner, load_tokenizer


class StageRecipe(TokenRecipe):
    """What a stage is trained on, its options, and the plan.

    Options that follow from the tokenizer and the codec (sizes of vocabularies, groups, rates) need not be given.
    """

    transformer: ClassVar[type[StageTransformer]]
    trainer_kind: ClassVar[type[StageTrainer]]

    plan: StagePlan
    conditioner: str | None = Field(None, description="a finished mulan-quantizer: what is heard conditions the stage")

    @model_validator(mode="after")
    def _options_are_known(self) -> Self:
        """Before anything is loaded: what the tokenizers would say is stood in for."""
        kind = self.transformer.Config
        needed = {name for name, field in kind.model_fields.items() if field.is_required()}
        if "frames_per_semantic" in kind.model_fields and self._keeps_durations:
            needed.add("frames_per_semantic")
        build_config(kind, {**dict.fromkeys(needed, 1), **self.model}, "The recipe's model")
        return self

    @property
    def _keeps_durations(self) -> bool:
        return self.model.get("unique_consecutive") is False

    def tools(self) -> dict[str, Any]:
        """The tokenizer and the codec by the names that a trainer has for them."""
        raise NotImplementedError

    def trainer(self, run: Path, *, resume: bool = False, overwrite: bool = False) -> StageTrainer:
        """Build the stage from the plan's seed, and its trainer in the folder `run`."""
        tools, conditioner = self.tools(), self._conditioner()
        config = self.config(**tools, conditioner=conditioner)
        seed_everything(self.plan.seed, "weights")
        transformer = self.transformer(config)
        start_from_vectors(transformer, **tools)
        return self.trainer_kind(
            transformer=transformer,
            plan=self.plan,
            source=self._source(config),
            results_folder=run,
            resume=resume,
            overwrite=overwrite,
            recipe=self.resolved(model=config.model_dump(mode="json", exclude_unset=True)),
            audio_conditioner=conditioner,
            **tools,
        )

    def _conditioner(self) -> Any:
        """With the stage's own table of embeddings to be learned."""
        return None if self.conditioner is None else load_conditioner(self.conditioner).for_stage(self.stage)

    @property
    def stage(self) -> str:
        return self.trainer_kind.system

    def config(self, **tools: Any) -> StageConfig:
        """The stage's options, with those that follow from its tokenizer and its codec."""
        return build_config(self.transformer.Config, {**self._following(**tools), **self.model}, "The recipe's model")

    def _source(self, config: StageConfig) -> TokenSource:
        """A stage that is conditioned on text is given the text."""
        if not config.has_condition or "text" in self.data.fields:
            return self.data
        return self.data.model_copy(update={"fields": ("text", *self.data.fields)})

    def _following(self, wav2vec: Any = None, codec: Any = None, conditioner: Any = None) -> dict[str, Any]:
        """The options that follow from tokenizer, codec, conditioner and data."""
        known: dict[str, Any] = {"window_seconds": self.data.max_length_seconds}
        if wav2vec is not None:
            known["num_semantic_tokens"] = wav2vec.codebook_size
        if codec is not None:
            known |= {"codebook_size": codec.codebook_size, "rq_groups": codec.rq_groups}
        if conditioner is not None:
            known |= {"audio_text_condition": True, "cond_dim": conditioner.width_of(self.stage)}
        if wav2vec is not None and codec is not None and self._keeps_durations:
            known["frames_per_semantic"] = codec.frame_rate / wav2vec.frame_rate
        return known


TOKENIZER = Field(description="a semantic tokenizer: a run, an exported folder or a hub name")
CODEC = Field("speech-16k", description="a codec: a shipped name, a run, an exported folder or a hub name")


class SemanticRecipe(StageRecipe):
    """`system: semantic`."""

    transformer = SemanticTransformer
    trainer_kind = SemanticTransformerTrainer

    system: Literal["semantic"]
    tokenizer: str = TOKENIZER

    def tools(self) -> dict[str, Any]:
        return {"wav2vec": load_tokenizer(self.tokenizer)}


class CoarseRecipe(StageRecipe):
    """`system: coarse`."""

    transformer = CoarseTransformer
    trainer_kind = CoarseTransformerTrainer

    system: Literal["coarse"]
    tokenizer: str = TOKENIZER
    codec: str = CODEC

    def tools(self) -> dict[str, Any]:
        return {"wav2vec": load_tokenizer(self.tokenizer), "codec": load_codec(self.codec)}


class FineRecipe(StageRecipe):
    """`system: fine`."""

    transformer = FineTransformer
    trainer_kind = FineTransformerTrainer

    system: Literal["fine"]
    codec: str = CODEC

    def tools(self) -> dict[str, Any]:
        return {"codec": load_codec(self.codec)}
