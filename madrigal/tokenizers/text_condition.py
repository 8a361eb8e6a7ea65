"""From text or given embeddings to what a model attends to, and the same without the condition."""

from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from madrigal.errors import UserError

REMEMBERED_BYTES = 512 * 2**20
"""So much of what a frozen encoder made is kept."""


class TextCondition(nn.Module):
    """Texts or embeddings [batch, items, cond_dim] to ([batch, items, dim], mask [batch, items]).

    A row without a condition has a mask that is False everywhere; that is what dropping a condition means, in training
    and in guidance alike. Without an `encoder` embeddings are given, and `cond_dim` says how wide they are. With
    `remembers` a frozen encoder reads every text once, and alone: a row does not depend on its neighbours.
    """

    def __init__(self, encoder: Any, dim: int, *, cond_dim: int | None = None, remembers: bool = False) -> None:
        super().__init__()
        if remembers and encoder is not None and not encoder.is_trainable:
            encoder = RememberedTexts(encoder)
        # One that is not trained is no part of the model: neither in its checkpoints nor in its optimizer.
        self.trained_encoder = encoder if getattr(encoder, "is_trainable", False) else None
        self._other = [encoder]
        self.cond_dim = cond_dim or encoder.dim
        self.to_context = nn.Linear(self.cond_dim, dim, bias=False)

    def forward(
        self,
        *,
        text: list[str] | None = None,
        text_embeds: Tensor | None = None,
        text_mask: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        if text_embeds is None:
            if text is None:
                raise UserError("This stage is conditioned: give it text or text_embeds.")
            text_embeds, text_mask = self._encoder()(text)
        if text_embeds.ndim == 2:
            text_embeds = text_embeds[:, None]
        if text_embeds.shape[-1] != self.cond_dim:
            raise UserError(f"The condition has width {text_embeds.shape[-1]}, but this stage takes {self.cond_dim}.")
        weight = self.to_context.weight
        mask = text_embeds.abs().sum(-1) > 0 if text_mask is None else text_mask
        return self.to_context(text_embeds.to(weight.device)), mask.to(weight.device)

    def _encoder(self) -> Any:
        encoder = self._other[0]
        if encoder is None:
            raise UserError("This model is conditioned on given embeddings and reads no text: give it text_embeds.")
        if not encoder.is_trainable:
            encoder.to(self.to_context.weight.device)
        return encoder.encode


class RememberedTexts:
    """A frozen encoder whose embeddings are kept, the longest unused given up first when `most` bytes are full."""

    is_trainable = False

    def __init__(self, encoder: Any, most: int = REMEMBERED_BYTES) -> None:
        self.encoder, self.most, self.dim = encoder, most, encoder.dim
        self._kept: OrderedDict[str, Tensor] = OrderedDict()
        self._bytes = 0

    def to(self, device: torch.device) -> "RememberedTexts":
        self.encoder.to(device)
        return self

    def encode(self, texts: list[str]) -> tuple[Tensor, Tensor]:
        """Padding is zero, and False in the mask."""
        rows = [self._row(text) for text in texts]
        lengths = torch.tensor([len(row) for row in rows])
        mask = torch.arange(int(lengths.max())) < lengths[:, None]
        return pad_sequence(rows, batch_first=True), mask

    def _row(self, text: str) -> Tensor:
        """[items, dim] on the CPU, where there is room for many."""
        if text not in self._kept:
            embeddings, mask = self.encoder.encode([text])
            self._kept[text] = embeddings[0, mask[0]].cpu()
            self._bytes += self._kept[text].nbytes
        self._kept.move_to_end(text)
        row = self._kept[text]
        while self._bytes > self.most and len(self._kept) > 1:
            self._bytes -= self._kept.popitem(last=False)[1].nbytes
        return row


def dropped(mask: Tensor, probability: float) -> Tensor:
    """The mask with each row's condition dropped by chance, from the global generator."""
    keep = torch.rand(mask.shape[0], device=mask.device) >= probability
    return mask & keep[:, None]
