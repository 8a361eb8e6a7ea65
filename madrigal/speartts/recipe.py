"""The recipes of the three trainings, and the trainers that follow them."""

import tempfile
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from madrigal.audiolm.learned import TokenRecipe
from madrigal.data.source import manifest_of
from madrigal.engine.checkpoint import newest_whole
from madrigal.engine.randomness import seed_everything
from madrigal.engine.recipe import build_config
from madrigal.errors import UserError
from madrigal.speartts.config import TextToSemanticConfig
from madrigal.speartts.model import TextToSemantic
from madrigal.speartts.plans import PretrainPlan, ReadPlan, SpeakPlan, SpearPlan
from madrigal.speartts.source import PairSource, TranscribedSource
from madrigal.speartts.starting import check_tokens, sizes_of, start_from
from madrigal.speartts.trainer import SpearTrainer
from madrigal.speartts.training import SemanticToTextTrainer, SpeechSpeechPretrainer, TextToSemanticTrainer
from madrigal.tokenizers.loading import load_tokenizer
from madrigal.tokenizers.text import TextSpec, fit_text, has_to_learn, make_text_tokenizer


class SpearRecipe(TokenRecipe):
    """What the model is trained on, its options, and the plan.

    Options that follow from the tokenizer, from the text and from what the training starts from need not be given.
    """

    trainer_kind: ClassVar[type[SpearTrainer]]
    all_learns: ClassVar[dict[str, Any]] = {}
    """What the plan says when nothing is frozen."""
    reads: ClassVar[bool] = False
    """Whether it learns text for speech."""

    tokenizer: str = Field(description="a semantic tokenizer: a run, an exported folder or a hub name")
    start: str | None = Field(None, description="weights to begin with: a run of speech-speech, or an exported folder")
    plan: SpearPlan

    @model_validator(mode="before")
    @classmethod
    def _without_a_start_all_learns(cls, values: Any) -> Any:
        """Whatever the plan says of freezing, which is about a start: there is nothing learned to keep."""
        if not isinstance(values, dict) or values.get("start") is not None or not isinstance(values.get("plan"), dict):
            return values
        return {**values, "plan": {**values["plan"], **cls.all_learns}}

    @model_validator(mode="after")
    def _options_are_known(self) -> Self:
        """Before anything is loaded: what the tokenizers would say is stood in for."""
        needed = {"num_semantic_token_ids": 1, "num_text_token_ids": 1}
        config = build_config(TextToSemanticConfig, {**needed, **self.model}, "The recipe's model")
        if config.ctc_loss_weight and not self.reads:
            raise ValueError("model.ctc_loss_weight is of semantic-to-text alone, where speech is read: leave it out")
        return self

    def trainer(self, run: Path, *, resume: bool = False, overwrite: bool = False) -> SpearTrainer:
        """Build the model from the plan's seed or from its start, and its trainer in the folder `run`."""
        wav2vec = load_tokenizer(self.tokenizer)
        # A run that has a checkpoint knows all that it had from its start, which may be gone by now.
        begun = newest_whole(run / "checkpoints") if resume else None
        if self.start is not None and begun is None:
            check_tokens(self.start, wav2vec)
        config = self.config(wav2vec, begun)
        seed_everything(self.plan.seed, "weights")
        model = TextToSemantic(config)
        if self.start is not None and begun is None:
            start_from(model, self.start)
        return self.trainer_kind(
            model,
            wav2vec,
            plan=self.plan,
            source=self.data,
            results_folder=run,
            resume=resume,
            overwrite=overwrite,
            recipe=self.resolved(model=config.model_dump(mode="json", exclude_defaults=True)),
        )

    def config(self, wav2vec: Any, begun: Path | None = None) -> TextToSemanticConfig:
        """The model's options, with those that follow from its tokenizers and its start, or its checkpoint `begun`."""
        known: dict[str, Any] = {"num_semantic_token_ids": wav2vec.codebook_size}
        text: Any = self.model.get("text")
        if self.start is not None:
            there = TextToSemantic.from_pretrained(begun or self.start).config
            known, text = {**sizes_of(there), **known}, text or there.text
        if text is None and "num_text_token_ids" not in self.model:
            text = TextSpec()
        if text is not None:
            spec = text if isinstance(text, TextSpec) else build_config(TextSpec, text, "The recipe's model.text")
            if has_to_learn(spec):
                spec = fit_text(spec, texts_to_learn(spec, self._texts(), self.data.path))
            known |= {"text": spec, "num_text_token_ids": make_text_tokenizer(spec).size}
        given = {name: value for name, value in self.model.items() if name != "text"}
        return build_config(TextToSemanticConfig, {**known, **given}, "The recipe's model")

    def _texts(self) -> list[str]:
        # The run's folder is not opened yet: what preparing a plain folder writes is written again there.
        with tempfile.TemporaryDirectory() as folder:
            return [entry.text for entry in manifest_of(self.data.path, Path(folder)) if entry.text]


def texts_to_learn(spec: TextSpec, texts: list[str], where: Path) -> list[str]:
    """The texts, where there are any for a spec to learn from."""
    if not texts:
        raise UserError(
            f"Text of kind {spec.kind} is learned from texts, and no recording of {where} has one: take kind=bytes or "
            "kind=phonemes, or give it what another run has learned (the model.text of its config.json)."
        )
    return texts


class SpeechSpeechRecipe(SpearRecipe):
    """`system: speech-speech`."""

    trainer_kind = SpeechSpeechPretrainer

    system: Literal["speech-speech"]
    plan: PretrainPlan


class SemanticToTextRecipe(SpearRecipe):
    """`system: semantic-to-text`. Without a start nothing is frozen: there is nothing learned to keep."""

    trainer_kind = SemanticToTextTrainer
    all_learns: ClassVar[dict[str, Any]] = {"freeze_encoder": False}
    reads = True

    system: Literal["semantic-to-text"]
    data: TranscribedSource
    plan: ReadPlan


class TextToSemanticRecipe(SpearRecipe):
    """`system: text-to-semantic`. Without a start nothing is frozen: there is nothing learned to keep."""

    trainer_kind = TextToSemanticTrainer
    all_learns: ClassVar[dict[str, Any]] = {"tuned_encoder_layers": None, "freeze_encoder_layers_below": None}

    system: Literal["text-to-semantic"]
    data: PairSource
    plan: SpeakPlan
