"""The three tasks that the model is trained for: source and target of a batch, their losses, and generation.

SpeechSpeechPretrainWrapper   speech with most of it missing -> what is missing (needs no text at all)
SemanticToTextWrapper         speech -> text, to label speech that nobody has transcribed
TextToSemanticWrapper         text -> speech
"""

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from madrigal.data.collate import mask_from_lengths
from madrigal.data.tokens import PAD
from madrigal.errors import UserError
from madrigal.speartts.config import Modality
from madrigal.speartts.losses import ALIGN, CTC, Outcome, learn
from madrigal.speartts.model import MASKED, TextToSemantic
from madrigal.speartts.pairs import Batch, Ids, collate_pairs, heard, ids_of, only, real_text

SPAN = 3
"""Tokens that are hidden together, so that their neighbours do not give them away."""


class TaskWrapper:
    """What the three have in common. It is no part of a model and has no weights of its own."""

    source_type: ClassVar[Modality]
    target_type: ClassVar[Modality]

    def __init__(self, model: TextToSemantic, wav2vec: Any = None, *, early_exit: bool = True) -> None:
        self.model = model
        self.wav2vec = model.wav2vec if wav2vec is None else wav2vec
        self.early_exit = early_exit and model.has_early_exit and self.target_type == "speech"

    def pair(self, batch: Batch) -> tuple[Ids, Ids]:
        """Source and target of a batch."""
        return self._ids(batch, self.source_type), self._ids(batch, self.target_type)

    def seen(self, source: Ids) -> Ids:
        """What training shows of a source."""
        return source

    def run(self, batch: Batch, *, training: bool) -> Outcome:
        """What the model says of a batch; which rows go without their source follows from `training`."""
        source, target = self.pair(batch)
        return learn(
            self.model,
            (self.source_type, self.seen(source) if training else source),
            (self.target_type, target),
            training=training,
            early=self.early_exit,
        )

    def losses(self, batch: Batch, *, training: bool) -> dict[str, Tensor]:
        """Mean cross entropy in nats a token, by the modality that is written, and the other losses."""
        return self.run(batch, training=training).losses(self.target_type)

    def weight(self, term: str) -> float:
        """How much a loss counts."""
        config = self.model.config
        return {ALIGN: config.align_reg_loss_weight, CTC: config.ctc_loss_weight}.get(term, 1.0)

    def generate(self, source: Any, **options: Any) -> Any:
        """Targets for sources: ids, waves where there is a semantic tokenizer, or texts; see `TextToSemantic`.

        The decoder makes them; what a CTC head reads is given by `TextToSemantic.read`.
        """
        options = {"tokenizer": self._tokenizer(), **options}
        return self.model.generate(source, source_type=self.source_type, target_type=self.target_type, **options)

    def _ids(self, batch: Batch, modality: Modality) -> Ids:
        tokenizer = self._tokenizer() if modality == "speech" else None
        return ids_of(batch, modality, self.model.config, tokenizer)

    def _tokenizer(self) -> Any:
        """The semantic tokenizer, frozen and where the model is."""
        if isinstance(self.wav2vec, nn.Module):
            self.wav2vec.requires_grad_(False).eval().to(self.model.device)
        return self.wav2vec

    def _loss(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """The weighted loss, and logits [tokens, ids + 1] of all real tokens, row by row."""
        outcome = self.run(batch, training=self.model.training)
        losses = outcome.losses(self.target_type)
        return torch.stack([self.weight(name) * loss for name, loss in losses.items()]).sum(), outcome.logits


class SpeechSpeechPretrainWrapper(TaskWrapper):
    """Speech of which a share of `deletion_prob` is deleted -> the deleted tokens in order, or all of it.

    `reconstruct_seq` asks for all of it; then a `mask_id` keeps the places of what was deleted. They hold a vector of
    their own, which is no code's: which number the older word gives plays no part.
    """

    source_type = "speech"
    target_type = "speech"

    def __init__(
        self,
        model: TextToSemantic,
        wav2vec: Any = None,
        deletion_prob: float = 0.6,
        reconstruct_seq: bool = False,
        mask_id: int | None = None,
        *,
        early_exit: bool = True,
    ) -> None:
        super().__init__(model, wav2vec, early_exit=early_exit)
        if mask_id is not None and not reconstruct_seq:
            raise UserError("mask_id needs reconstruct_seq=True: what is masked and what is asked for have one length.")
        self.deletion_prob, self.reconstruct_seq, self.mask_id = deletion_prob, reconstruct_seq, mask_id

    def pair(self, batch: Batch) -> tuple[Ids, Ids]:
        whole = self._ids(batch, "speech")
        deleted = random_subset(whole.lengths, whole.ids.shape[1], self.deletion_prob)
        if self.mask_id is not None:
            return Ids(whole.ids.masked_fill(deleted, MASKED), whole.lengths), whole
        real = mask_from_lengths(whole.lengths, whole.ids.shape[1])
        return only(whole.ids, real & ~deleted), whole if self.reconstruct_seq else only(whole.ids, deleted)

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of waves [batch, samples] or of padded ids [batch, time], and its logits."""
        return self._loss(_speech(x))


class SemanticToTextWrapper(TaskWrapper):
    """Speech -> text. While it learns, a share of `mask_prob` of the speech is hidden, in short spans."""

    source_type = "speech"
    target_type = "text"

    def __init__(self, model: TextToSemantic, wav2vec: Any = None, mask_prob: float = 0.0) -> None:
        super().__init__(model, wav2vec)
        self.mask_prob = mask_prob

    def seen(self, source: Ids) -> Ids:
        if not self.mask_prob or not source.ids.shape[1]:
            return source
        rows, size = source.ids.shape
        # That a place is in no span of SPAN which begins at it or before is as likely as that it is shown.
        begins = torch.rand(rows, size + SPAN - 1, device=source.ids.device) < 1 - (1 - self.mask_prob) ** (1 / SPAN)
        hidden = begins.unfold(1, SPAN, 1).any(-1) & (source.ids != PAD)
        # A row that is hidden wholly has nothing to read: one place of it is shown.
        shown = (torch.rand(rows, device=source.ids.device) * source.lengths.to(source.ids.device)).long()
        is_whole = hidden.sum(1) == source.lengths.to(source.ids.device)
        hidden &= ~(is_whole[:, None] & (torch.arange(size, device=source.ids.device) == shown[:, None]))
        return Ids(source.ids.masked_fill(hidden, MASKED), source.lengths)

    def __call__(self, semantic_token_ids: Tensor, grapheme_token_ids: Tensor | list[str]) -> tuple[Tensor, Tensor]:
        """The loss of padded ids (or waves, or strings), and its logits."""
        return self._loss({**_speech(semantic_token_ids), **_text(self.model, grapheme_token_ids)})


class TextToSemanticWrapper(TaskWrapper):
    """Text -> speech."""

    source_type = "text"
    target_type = "speech"

    def __call__(self, grapheme_token_ids: Tensor | list[str], semantic_token_ids: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of padded ids (or strings, or waves), and its logits."""
        return self._loss({**_speech(semantic_token_ids), **_text(self.model, grapheme_token_ids)})


def random_subset(lengths: Tensor, size: int, share: float) -> Tensor:
    """Bool [batch, size]: that share of each row's real places, any of them as likely as any other.

    At least one place is left out, so that there is always something to see.
    """
    real = mask_from_lengths(lengths, size)
    count = (lengths * share).round().long().clamp(max=(lengths - 1).clamp(min=0))
    # Ranks, not indices: the place of the smallest draw is not the order of a place.
    ranks = torch.rand(real.shape, device=lengths.device).masked_fill(~real, 2.0).argsort(1).argsort(1)
    return ranks < count[:, None]


def _speech(given: Tensor) -> Batch:
    if given.is_floating_point():
        return heard(given)
    return {"semantic": given, "semantic_lengths": (given != PAD).sum(1)}


def _text(model: TextToSemantic, given: Tensor | list[str]) -> Batch:
    if isinstance(given, Tensor):
        text = only(given, real_text(given, model.config.text_pad_id))
        return {"text_ids": text.ids, "text_lengths": text.lengths}
    return collate_pairs([{"text": text} for text in given], model.text_tokenizer)
