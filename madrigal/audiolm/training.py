"""Trains a stage of AudioLM. The three trainers differ in what their tokens are, and in nothing else."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from madrigal.audiolm.coarse import CoarseTransformer
from madrigal.audiolm.condition import without_gradients
from madrigal.audiolm.decoding import Drawn
from madrigal.audiolm.fine import FineTransformer
from madrigal.audiolm.keywords import TRAINER, without
from madrigal.audiolm.learned import fingerprints_of
from madrigal.audiolm.packing import Stream
from madrigal.audiolm.semantic import SemanticTransformer
from madrigal.audiolm.source import TokenSource
from madrigal.audiolm.stage import StageTransformer
from madrigal.audiolm.tokens import WAVES
from madrigal.audiolm.wrappers import (
    CoarseTransformerWrapper,
    FineTransformerWrapper,
    SemanticTransformerWrapper,
    StageWrapper,
)
from madrigal.data.collate import collate
from madrigal.engine.artifacts import ORIGINAL, Audio, Sample, Text
from madrigal.engine.feed import Batch
from madrigal.engine.keywords import plan_and_keywords
from madrigal.engine.learned import FINGERPRINTS, check_resumed
from madrigal.engine.plan import Plan
from madrigal.engine.progress import tell
from madrigal.engine.recipe import recorded
from madrigal.engine.task import Counted
from madrigal.engine.trainer import Figures, Terms, Trainer
from madrigal.errors import UserError


class StagePlan(Plan):
    """A plan, and how much the stream that is only given counts beside the one that is drawn."""

    semantic_cross_entropy_loss_weight: float = Field(1.0, ge=0, description="coarse stage: of the semantic tokens")
    coarse_cross_entropy_loss_weight: float = Field(1.0, ge=0, description="fine stage: of the coarse tokens")


class StageTrainer(Trainer):
    """Trains `transformer` on a folder of audio, on tokens on disk, or on a dataset of one's own.

    A batch holds tokens ("semantic", "acoustic", each with its lengths) or "audio", and may hold "text" or
    "text_embeds". A dataset may give tuples: strings are text, waves are for the semantic tokenizer and then for the
    codec; `ds_fields` names the parts where they are something else.
    """

    unit: ClassVar[str] = "tokens"
    kind: ClassVar[type[StageWrapper[Any]]]
    model: StageTransformer
    plan: StagePlan

    def __init__(
        self,
        *,
        transformer: StageTransformer,
        wav2vec: Any = None,
        codec: Any = None,
        audio_conditioner: Any = None,
        folder: str | Path | None = None,
        data_max_length: int | None = None,
        data_max_length_seconds: float | None = None,
        ds_fields: Sequence[str] | None = None,
        plan: StagePlan | None = None,
        source: TokenSource | None = None,
        results_folder: str | Path | None = None,
        recipe: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        options = without(options, TRAINER, type(self).__name__)
        plan, given = plan_and_keywords(StagePlan, plan, options, type(self).__name__)
        self.wav2vec, self.codec, self.ds_fields = wav2vec, codec, ds_fields
        if isinstance(audio_conditioner, nn.Module):
            # What a conditioner learns is learned with the stage and saved with it.
            transformer.audio_conditioner = audio_conditioner
        self._frozen = [] if transformer.audio_conditioner is None else without_gradients(transformer.audio_conditioner)
        self.wrapper = self.kind(
            transformer=transformer, wav2vec=wav2vec, codec=codec, audio_conditioner=audio_conditioner
        )
        self._check_tools(transformer)
        learned = fingerprints_of(wav2vec, codec, audio_conditioner)
        if folder is not None:
            rate = (wav2vec if wav2vec is not None else codec).target_sample_hz
            seconds = data_max_length / rate if data_max_length else data_max_length_seconds
            fields = ("text",) if transformer.config.has_condition else ()
            source = TokenSource(path=Path(folder), max_length_seconds=seconds, fields=fields)
        # Each stage by itself, so that one script may train all three and `load_audiolm` finds them.
        results_folder = Path("results", self.system) if results_folder is None else Path(results_folder)
        if given.get("resume"):
            check_resumed(results_folder, learned)
        recipe = recipe or recorded(self.system, transformer.config, plan, source)
        super().__init__(
            transformer,
            plan=plan,
            results_folder=results_folder,
            open_data=None if source is None else lambda run: self._open(source, run, anew=not given.get("resume")),
            recipe={**recipe, **({FINGERPRINTS: learned} if learned else {})},
            **given,
        )
        for frozen in (wav2vec, codec):
            if isinstance(frozen, nn.Module):
                frozen.requires_grad_(False).eval().to(self.device)

    def _open(self, source: TokenSource, run: Path, *, anew: bool) -> tuple[Any, Any]:
        return source.datasets(
            tokenizer=self.wav2vec,
            codec=self.codec,
            conditioner=self.wrapper.audio_conditioner,
            prepared_in=run / "data",
            anew=anew and self.is_main,
            say=tell if self.is_main else None,
        )

    def _check_tools(self, transformer: StageTransformer) -> None:
        """Codebooks that are not those of the stage would train it on noise."""
        said = (
            ("codec", self.codec, "rq_groups", "rq_groups"),
            ("codec", self.codec, "codebook_size", "codebook_size"),
            ("tokenizer", self.wav2vec, "codebook_size", "num_semantic_tokens"),
        )
        for who, tool, name, own in said:
            there, wanted = getattr(tool, name, None), getattr(transformer.config, own, None)
            if there is not None and wanted is not None and there != wanted:
                raise UserError(
                    f"The {who}'s {name} is {there}, and the stage's {own} is {wanted}: build it with {own}={there}."
                )

    def generate(self, **options: Any) -> Tensor:
        """Codes [batch, frames, quantizers], -1 behind a row's end; the options are those of the stage's wrapper."""
        drawn: Drawn = self.wrapper.generate(**options)
        return drawn.codes

    def loss(self, turn: str, batch: Batch) -> Terms:
        return self.wrapper.losses(batch, training=True)

    def weight(self, turn: str, term: str) -> float:
        """The stage's own stream is its last section; what only leads up to it has a weight in the plan."""
        if term == self.model.layout.sections[-1].name:
            return 1.0
        return float(getattr(self.plan, f"{term}_cross_entropy_loss_weight"))

    def validate(self, batch: Batch) -> dict[str, Counted]:
        """Nats a token, and the tokens: the mean over a set must not hang on how it is cut into batches."""
        sums, counts = self.wrapper.nll(batch, training=False)
        return {name: (sums[name] / max(counts[name], 1), counts[name]) for name in sums}

    def conclude(self, means: Figures) -> Figures:
        return {**means, "loss": sum(self.weight("", name) * mean for name, mean in means.items())} if means else {}

    def units(self, batch: Batch) -> float:
        """Tokens that the batch holds, or that its audio will become."""
        sections = {section.name: section.pattern.quantizers for section in self.model.layout.sections}
        per_frame = {"semantic": sections.pop("semantic", 0), "acoustic": sum(sections.values())}
        tools = {"semantic": self.wav2vec, "acoustic": self.codec}
        count = 0.0
        for name, many in per_frame.items():
            if f"{name}_lengths" in batch:
                count += many * float(batch[f"{name}_lengths"].sum())
            elif many and "lengths" in batch and tools[name] is not None:
                heard_at = (self.wav2vec or self.codec).target_sample_hz
                count += many * float(batch["lengths"].sum()) / heard_at * tools[name].frame_rate
        return count

    def blocks(self) -> list[nn.Module]:
        return self.model.blocks()

    def frozen(self) -> list[nn.Module]:
        """What of an audio conditioner came without gradients is not learned, and not saved."""
        return self._frozen

    def collate(self, items: list[Any]) -> Batch:
        if self.ds_fields is not None:
            names = [WAVES.get(name, name) for name in self.ds_fields]
            items = [dict(zip(names, item if isinstance(item, tuple) else (item,), strict=True)) for item in items]
        # Copies: the dicts are the dataset's own, which may give them again.
        items = [dict(item) if isinstance(item, dict) else item for item in items]
        embeds = [
            torch.as_tensor(item.pop("text_embeds"))
            for item in items
            if isinstance(item, dict) and "text_embeds" in item
        ]
        batch = collate(items)
        if embeds:
            embeds = [embed[None] if embed.ndim == 1 else embed for embed in embeds]
            batch["text_embeds"] = pad_sequence(embeds, batch_first=True)
            batch["text_mask"] = pad_sequence([torch.ones(len(e), dtype=torch.bool) for e in embeds], batch_first=True)
        return batch


class SemanticTransformerTrainer(StageTrainer):
    """Trains a SemanticTransformer on semantic tokens."""

    system: ClassVar[str] = "semantic"
    kind = SemanticTransformerWrapper
    wrapper: SemanticTransformerWrapper
    model: SemanticTransformer

    def sample(self, batch: Batch) -> list[Sample]:
        """Each validation row's first third, and how the stage goes on."""
        stream = self.wrapper.streams(batch)[0]
        prompt = Stream(stream.codes, torch.div(stream.lengths, 3, rounding_mode="floor"))
        drawn = self.wrapper.generate(
            prime_ids=prompt.codes[..., 0],
            prime_lengths=prompt.lengths,
            max_length=int(stream.lengths.max()),
            context=self.wrapper.context(batch),
            seed=self.plan.seed,
        )
        return [
            {ORIGINAL: Text(_words(row[:length])), "continuation": Text(_words(made[:, 0]))}
            for row, length, made in zip(stream.codes[..., 0], stream.lengths.tolist(), drawn.rows(), strict=True)
        ]

    def generate(self, **options: Any) -> Tensor:
        """Ids [batch, time]."""
        return super().generate(**options)[..., 0]


class CoarseTransformerTrainer(StageTrainer):
    """Trains a CoarseTransformer on semantic tokens and the codec's first codebooks."""

    system: ClassVar[str] = "coarse"
    kind = CoarseTransformerWrapper
    wrapper: CoarseTransformerWrapper
    model: CoarseTransformer

    def sample(self, batch: Batch) -> list[Sample]:
        """The validation rows from their semantic tokens alone, beside what the codec makes of the true codes."""
        if self.codec is None:
            return []
        semantic, coarse = self.wrapper.streams(batch)
        drawn = self.wrapper.generate(
            semantic=semantic,
            frames=coarse.lengths,
            context=self.wrapper.context(batch),
            seed=self.plan.seed,
            may_end=False,
        )
        return [
            {ORIGINAL: _heard(self.codec, true[:length]), "coarse": _heard(self.codec, made)}
            for true, length, made in zip(coarse.codes, coarse.lengths.tolist(), drawn.rows(), strict=True)
        ]


class FineTransformerTrainer(StageTrainer):
    """Trains a FineTransformer on the codec's codebooks."""

    system: ClassVar[str] = "fine"
    kind = FineTransformerWrapper
    wrapper: FineTransformerWrapper
    model: FineTransformer

    def sample(self, batch: Batch) -> list[Sample]:
        """The validation rows from their coarse codes, beside what the codec makes of the true codes."""
        if self.codec is None:
            return []
        coarse, fine = self.wrapper.streams(batch)
        drawn = self.wrapper.generate(coarse=coarse, context=self.wrapper.context(batch), seed=self.plan.seed)
        both = zip(coarse.codes, fine.codes, drawn.rows(), coarse.lengths.tolist(), strict=True)
        return [
            {
                ORIGINAL: _heard(self.codec, torch.cat((c[:length], f[:length]), 1)),
                "fine": _heard(self.codec, torch.cat((c[:length], made), 1)),
            }
            for c, f, made, length in both
        ]


def _heard(codec: Any, codes: Tensor) -> Audio:
    """Codes [frames, quantizers] as sound."""
    return Audio(codec.decode_from_codebook_indices(codes[None])[0].cpu(), codec.target_sample_hz)


def _words(ids: Tensor) -> str:
    return " ".join(map(str, ids.tolist()))
