"""A stage together with what makes its tokens: losses of a batch, and generation from waves, ids or nothing."""

import inspect
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from madrigal.audiolm import keywords
from madrigal.audiolm.coarse import CoarseTransformer
from madrigal.audiolm.decoding import Decoding, Drawn
from madrigal.audiolm.decoding import decode as run
from madrigal.audiolm.fine import FineTransformer
from madrigal.audiolm.keywords import takes_older_words
from madrigal.audiolm.packing import Stream
from madrigal.audiolm.recall import PromptMemory
from madrigal.audiolm.semantic import SemanticTransformer, semantic_stream
from madrigal.audiolm.stage import StageTransformer
from madrigal.audiolm.tokens import Batch, acoustic_of, batch_of, semantic_of
from madrigal.data.audio import resample, resampled_length
from madrigal.data.tokens import PAD
from madrigal.engine.evaluating import eval_mode
from madrigal.engine.randomness import seeds_of
from madrigal.errors import UserError
from madrigal.layers.sampling import RowNoise, Sampling
from madrigal.tokenizers.repeats import unique_consecutive

AnyStage = TypeVar("AnyStage", bound=StageTransformer)
Context = tuple[Tensor, Tensor]


class StageWrapper(Generic[AnyStage]):
    """What is the same for the three: the condition of a batch, its losses, and the settings of a generation."""

    namespace: str
    """The stage's name for an audio conditioner, which keeps one table of embeddings for each stage."""

    def __init__(
        self,
        *,
        transformer: AnyStage,
        wav2vec: Any = None,
        codec: Any = None,
        audio_conditioner: Any = None,
        loss_weights: dict[str, float] | None = None,
        **older: Any,
    ) -> None:
        self.transformer, self.wav2vec, self.codec = transformer, wav2vec, codec
        self.audio_conditioner: Any = transformer.audio_conditioner if audio_conditioner is None else audio_conditioner
        self.loss_weights = loss_weights or keywords.loss_weights(older, transformer.config, type(self).__name__)
        if self.audio_conditioner is not None and not transformer.config.audio_text_condition:
            raise UserError("An audio conditioner needs a stage that was built with audio_text_condition=True.")

    def streams(self, batch: Batch) -> list[Stream]:
        """The batch's tokens, section by section."""
        raise NotImplementedError

    def _semantic(self, batch: Batch) -> Stream:
        config: Any = self.transformer.config
        return semantic_of(
            batch, self.wav2vec, codebook_size=config.num_semantic_tokens, unique=config.unique_consecutive
        )

    def _acoustic(self, batch: Batch, quantizers: int) -> Stream:
        config: Any = self.transformer.config
        heard_at = getattr(self.wav2vec, "target_sample_hz", None)
        return acoustic_of(batch, self.codec, quantizers, codebook_size=config.codebook_size, heard_at=heard_at)

    def prompt_of(self, wave: Tensor, rate: int | None) -> dict[str, Any]:
        """Waves [batch, samples] as what `generate` calls a prompt: codes of the section that is drawn."""
        if self.codec is None:
            raise UserError("A prompt of sound needs the codec: give it to the wrapper.")
        *given, drawn = (section.pattern.quantizers for section in self.transformer.layout.sections)
        first = sum(given) if self.namespace == "fine" else 0
        codes = self.codec.tokenize(keywords.heard_by(self.codec, wave, rate))[..., first : first + drawn]
        return {"prompt": keywords.stream_of(codes, drawn)}

    def generate(self, **options: Any) -> Drawn:
        """More of what the stage draws; each stage has options of its own."""
        raise NotImplementedError

    def losses(self, batch: Batch, *, training: bool) -> dict[str, Tensor]:
        """Mean cross entropy of every section, in nats a token."""
        return self.transformer.losses(self.streams(batch), context=self.context(batch), training=training)

    def nll(self, batch: Batch, *, training: bool) -> tuple[dict[str, Tensor], dict[str, int]]:
        """Summed cross entropy of every section in nats, and the number of its tokens."""
        return self.transformer.nll(self.streams(batch), context=self.context(batch), training=training)

    def context(self, batch: Batch) -> Context | None:
        """What conditions a batch: given embeddings, text, or the audio itself through the conditioner."""
        if not self.transformer.config.is_conditioned:
            return None
        text, embeds, mask = (batch.get(name) for name in ("text", "text_embeds", "text_mask"))
        if embeds is None and self.audio_conditioner is not None and "condition_ids" in batch:
            embeds, mask = self._joint(ids=batch["condition_ids"])
        elif embeds is None and self.audio_conditioner is not None and "audio" in batch:
            embeds, mask = self._joint(**self._heard_by_conditioner(batch))
        if embeds is None and text is None:
            raise UserError(
                f"The {self.namespace} stage is conditioned, and the batches hold neither text nor text_embeds: "
                "give the recordings a text each, or build the stage without has_condition."
            )
        return self.condition(text=None if embeds is not None else text, text_embeds=embeds, text_mask=mask)

    def condition(
        self,
        *,
        text: list[str] | None = None,
        text_embeds: Tensor | None = None,
        text_mask: Tensor | None = None,
        ids: Tensor | None = None,
    ) -> Context | None:
        """The context of a text, which an audio conditioner reads if there is one, of its codes, or of embeddings."""
        if self.audio_conditioner is not None and ids is not None:
            text_embeds, text_mask = self._joint(ids=ids)
        if self.audio_conditioner is not None and text is not None and text_embeds is None:
            (text_embeds, text_mask), text = self._joint(texts=text), None
        return self.transformer.context(text=text, text_embeds=text_embeds, text_mask=text_mask)

    def _heard_by_conditioner(self, batch: Batch) -> dict[str, Tensor]:
        """Waves [batch, samples], which a batch has at the rate of the tokenizer or the codec, at the conditioner's.

        Beside them what of each is no padding, if the conditioner asks for it.
        """
        tool = self.wav2vec if self.wav2vec is not None else self.codec
        here: int | None = getattr(tool, "target_sample_hz", None)
        wanted: int | None = getattr(self.audio_conditioner, "target_sample_hz", None)
        waves, lengths = batch["audio"][:, 0], batch.get("lengths")
        if here is not None and wanted is not None and here != wanted:
            waves = resample(waves, here, wanted)
            if lengths is not None:
                lengths = lengths.new_tensor([resampled_length(length, here, wanted) for length in lengths.tolist()])
        if lengths is None or not _takes_lengths(self.audio_conditioner):
            return {"wavs": waves}
        return {"wavs": waves, "lengths": lengths}

    def _joint(self, **heard_or_read: Any) -> Context:
        embeds = self.audio_conditioner(**heard_or_read, namespace=self.namespace)
        return embeds, torch.ones(embeds.shape[:2], dtype=torch.bool, device=embeds.device)

    def __call__(self, **batch: Any) -> Tensor:
        """The weighted loss of a batch given by name: audio or raw_wave, semantic, acoustic, text, text_embeds."""
        losses = self.losses(
            batch_of(keywords.batch_words(self, batch), type(self).__name__), training=self.transformer.training
        )
        return torch.stack([self.loss_weights.get(name, 1.0) * loss for name, loss in losses.items()]).sum()

    @torch.no_grad()
    def decode(
        self,
        streams: Sequence[Stream],
        frames: Tensor,
        *,
        sampling: Sampling | None,
        seeds: Sequence[int] | int,
        context: Context | None,
        may_end: bool,
        memory: PromptMemory | None = None,
    ) -> Drawn:
        with eval_mode(self.transformer):
            return run(self.decoding(streams, frames, sampling, seeds, context, may_end, memory))

    @torch.no_grad()
    def decoding(
        self,
        streams: Sequence[Stream],
        frames: Tensor,
        sampling: Sampling | None,
        seeds: Sequence[int] | int,
        context: Context | None = None,
        may_end: bool = True,
        memory: PromptMemory | None = None,
    ) -> Decoding:
        """A generation that is about to begin, on a stage in eval mode. One seed is made into one for each row."""
        rows = len(frames)
        noise = RowNoise(seeds_of(seeds, rows))
        device = self.transformer.device
        moved = [Stream(s.codes.to(device), s.lengths.to(device)) for s in streams]
        return Decoding(
            self.transformer,
            moved,
            frames.to(device),
            sampling=sampling or Sampling(),
            noise=noise,
            context=context,
            may_end=may_end,
            memory=memory,
        )


class SemanticTransformerWrapper(StageWrapper[SemanticTransformer]):
    """Semantic tokens from audio, and more of them."""

    namespace = "semantic"

    def streams(self, batch: Batch) -> list[Stream]:
        return [self._semantic(batch)]

    def prompt_of(self, wave: Tensor, rate: int | None) -> dict[str, Any]:
        if self.wav2vec is None:
            raise UserError("A prompt of sound needs the semantic tokenizer: give the wrapper its wav2vec.")
        ids, lengths = self.wav2vec.tokenize(keywords.heard_by(self.wav2vec, wave, rate))
        return {"prime_ids": ids, "prime_lengths": lengths}

    @takes_older_words
    def generate(
        self,
        *,
        max_length: int,
        prime_ids: Tensor | None = None,
        prime_lengths: Tensor | None = None,
        batch_size: int = 1,
        context: Context | None = None,
        sampling: Sampling | None = None,
        seed: Sequence[int] | int = 0,
        may_end: bool = True,
    ) -> Drawn:
        """Up to `max_length` tokens, prompt included: codes [batch, time, 1]."""
        if prime_ids is None:
            prime_ids = torch.empty(batch_size, 0, dtype=torch.long)
        if prime_lengths is None:
            prime_lengths = (prime_ids != PAD).sum(1)
        if self.transformer.config.unique_consecutive and prime_ids.shape[1]:
            prime_ids, prime_lengths = unique_consecutive(prime_ids, prime_lengths)
        prompt = semantic_stream(prime_ids, prime_lengths)
        frames = torch.full((len(prime_ids),), max_length)
        return self.decode([prompt], frames, sampling=sampling, seeds=seed, context=context, may_end=may_end)


class CoarseTransformerWrapper(StageWrapper[CoarseTransformer]):
    """Coarse codes for semantic tokens."""

    namespace = "coarse"

    def streams(self, batch: Batch) -> list[Stream]:
        return [self._semantic(batch), self._acoustic(batch, self.transformer.num_quantizers)]

    @takes_older_words
    def generate(
        self,
        *,
        semantic: Stream,
        frames: Tensor | int = 512,
        prompt: Stream | None = None,
        context: Context | None = None,
        sampling: Sampling | None = None,
        seed: Sequence[int] | int = 0,
        may_end: bool = True,
    ) -> Drawn:
        """Up to `frames` frames, prompt included: codes [batch, frames, coarse quantizers]."""
        rows = len(semantic.codes)
        prompt = prompt or no_codes(rows, self.transformer.num_quantizers)
        limit = torch.full((rows,), frames) if isinstance(frames, int) else frames
        streams = [semantic, prompt]
        return self.decode(streams, limit, sampling=sampling, seeds=seed, context=context, may_end=may_end)


class FineTransformerWrapper(StageWrapper[FineTransformer]):
    """Fine codes for coarse ones, frame for frame."""

    namespace = "fine"

    def streams(self, batch: Batch) -> list[Stream]:
        coarse, fine = self.transformer.num_coarse, self.transformer.num_quantizers
        both = self._acoustic(batch, coarse + fine)
        return [Stream(both.codes[..., :coarse], both.lengths), Stream(both.codes[..., coarse:], both.lengths)]

    @takes_older_words
    def generate(
        self,
        *,
        coarse: Stream,
        prompt: Stream | None = None,
        context: Context | None = None,
        sampling: Sampling | None = None,
        seed: Sequence[int] | int = 0,
    ) -> Drawn:
        """Fine codes [batch, frames, fine quantizers] for every coarse frame, the prompt's as they were given."""
        prompt = prompt or no_codes(len(coarse.codes), self.transformer.num_quantizers)
        return self.decode(
            [coarse, prompt], coarse.lengths, sampling=sampling, seeds=seed, context=context, may_end=False
        )


def _takes_lengths(conditioner: Any) -> bool:
    """Whether a conditioner asks what is no padding: somebody's own may know of waves alone."""
    called = getattr(conditioner, "forward", conditioner)
    words = inspect.signature(called).parameters.values()
    return any(word.name == "lengths" or word.kind is word.VAR_KEYWORD for word in words)


def no_codes(rows: int, quantizers: int) -> Stream:
    """A prompt of no frames."""
    return Stream(torch.empty(rows, 0, quantizers, dtype=torch.long), torch.zeros(rows, dtype=torch.long))
