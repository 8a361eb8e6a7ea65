"""Trains the model for its three tasks. The trainers differ in their task, and in what of the model learns."""

import os
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from madrigal.audiolm.source import TokenSource
from madrigal.engine.artifacts import ORIGINAL, Sample, Text
from madrigal.engine.feed import Batch
from madrigal.engine.progress import tell
from madrigal.engine.task import Counted
from madrigal.errors import UserError
from madrigal.speartts.edit_distance import character_errors
from madrigal.speartts.generated import fingerprint_of_pairs
from madrigal.speartts.model import TextToSemantic
from madrigal.speartts.plans import PretrainPlan, ReadPlan, SpeakPlan
from madrigal.speartts.source import PairSource, with_generated
from madrigal.speartts.trainer import GENERATED, SpearTrainer
from madrigal.speartts.wrappers import (
    SemanticToTextWrapper,
    SpeechSpeechPretrainWrapper,
    TaskWrapper,
    TextToSemanticWrapper,
)


class SpeechSpeechPretrainer(SpearTrainer):
    """Learns speech from speech alone: most of it is deleted, and the model says what was there."""

    system: ClassVar[str] = "speech-speech"
    Plan = PretrainPlan
    Source = TokenSource
    plan: PretrainPlan

    def _task(self, model: TextToSemantic, plan: PretrainPlan) -> TaskWrapper:
        return SpeechSpeechPretrainWrapper(
            model,
            self.wav2vec,
            plan.deletion_prob,
            plan.reconstruct_seq,
            plan.mask_id,
            early_exit=plan.should_train_early_exit_layer_if_available,
        )


class SemanticToTextTrainer(SpearTrainer):
    """Learns to read speech into text. The encoder knows speech already, so the decoder alone learns."""

    system: ClassVar[str] = "semantic-to-text"
    Plan = ReadPlan
    plan: ReadPlan

    def _task(self, model: TextToSemantic, plan: ReadPlan) -> TaskWrapper:
        return SemanticToTextWrapper(model, self.wav2vec, plan.mask_prob)

    def _choose_what_learns(self, model: TextToSemantic, plan: ReadPlan) -> None:
        model.unfreeze_all()
        if plan.freeze_encoder:
            model.freeze_encoder()
            model.freeze_speech_emb()

    def validate(self, batch: Batch) -> dict[str, Counted]:
        """Also the character error rate of the first rows, read out greedily."""
        figures = super().validate(batch)
        references, found = self._read(batch, self.plan.reads_per_batch)
        characters = sum(map(len, references))
        if characters:
            errors = sum(character_errors(*pair) for pair in zip(references, found, strict=True))
            figures["cer"] = (torch.tensor(errors / characters), characters)
        return figures

    def sample(self, batch: Batch) -> list[Sample]:
        """What was said, and what was read."""
        return [
            {ORIGINAL: Text(said), "read": Text(read)}
            for said, read in zip(*self._read(batch, len(batch["text_ids"])), strict=True)
        ]

    def _read(self, batch: Batch, rows: int) -> tuple[list[str], list[str]]:
        """The texts of the first rows, and what the model reads there; ids as words without a text tokenizer."""
        source, target = self.wrapper.pair(batch)
        rows = min(rows, len(target.ids))
        if rows == 0:
            return [], []
        if self.model.ctc is not None:
            read = self.model.read(source.ids[:rows])
        else:
            read = self.model.generate(
                source.ids[:rows],
                source_type="speech",
                target_type="text",
                temperature=0.0,
                # A model that has learned little does not find an end.
                max_length=2 * target.lengths[:rows].cpu() + 10,
            )
        return [self._said(row) for row in target.rows()[:rows]], [self._said(row) for row in read.rows()]

    def _said(self, ids: Tensor) -> str:
        tokenizer = self.model.text_tokenizer
        return " ".join(map(str, ids.tolist())) if tokenizer is None else tokenizer.decode(ids.tolist())


class TextToSemanticTrainer(SpearTrainer):
    """Learns to speak, from real pairs and from generated ones.

    As in the paper, the text embedding and the lower layers of the encoder learn; the layers above them, which know
    speech from pretraining, and the decoder stay as they are.
    """

    system: ClassVar[str] = "text-to-semantic"
    Plan = SpeakPlan
    Source = PairSource
    plan: SpeakPlan

    def __init__(
        self,
        model: TextToSemantic,
        wav2vec: Any = None,
        *,
        generated_audio_text_dataset_folder: str | Path | None = None,
        generated_ratio: float | None = None,
        source: TokenSource | None = None,
        **options: Any,
    ) -> None:
        self._generated, self._ratio = generated_audio_text_dataset_folder, generated_ratio
        if self._generated is not None or self._ratio is not None:
            self._check_generated({**options, "source": source})
        if isinstance(source, PairSource):
            self._generated, self._ratio = source.generated, source.generated_ratio
        super().__init__(model, wav2vec, source=source, **options)

    def _check_generated(self, options: dict[str, Any]) -> None:
        if self._generated is None:
            raise UserError(
                "generated_ratio is a share of pairs that need generated_audio_text_dataset_folder: give it."
            )
        if self._ratio is not None and not 0 < self._ratio < 1:
            raise UserError(f"generated_ratio is {self._ratio}; give a share between 0 and 1, or none.")
        instead = {
            "train_dataloader": "give the loader's dataset as dataset",
            "source": "name the folder as `generated` of a PairSource",
            "folder": "give a PairSource, with path, tokens and generated, as source",
        }
        for name, advice in instead.items():
            if options.get(name) is not None:
                raise UserError(f"generated_audio_text_dataset_folder is not mixed into a {name}: {advice}.")

    def _task(self, model: TextToSemantic, plan: SpeakPlan) -> TaskWrapper:
        return TextToSemanticWrapper(model, self.wav2vec, early_exit=plan.should_train_early_exit_layer_if_available)

    def _choose_what_learns(self, model: TextToSemantic, plan: SpeakPlan) -> None:
        super()._choose_what_learns(model, plan)
        if plan.freeze_encoder_layers_below is not None:
            model.freeze_encoder_below_layer(plan.freeze_encoder_layers_below)
        elif plan.tuned_encoder_layers is not None:
            model.freeze_encoder_above_layer(plan.tuned_encoder_layers)
        else:
            return
        model.freeze_decoder()
        model.freeze_speech_emb()

    def _joined(self, dataset: Any, valid: Any, plan: SpeakPlan) -> tuple[Any, Any]:
        if self._generated is None:
            return dataset, valid
        return with_generated(
            dataset,
            valid,
            folder=Path(self._generated),
            ratio=self._ratio,
            wav2vec=self.wav2vec,
            text=self.wrapper.model.text_tokenizer,
            valid_frac=plan.valid_frac,
            split_seed=plan.random_split_seed,
            say=tell if int(os.environ.get("RANK", "0")) == 0 else None,
        )

    def _learned_from(self) -> dict[str, str]:
        """Also the generated pairs: other labels make another training."""
        known = super()._learned_from()
        return known if self._generated is None else {**known, GENERATED: fingerprint_of_pairs(self._generated)}
