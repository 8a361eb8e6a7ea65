"""A second way to read, connectionist temporal classification: each place of the encoder says some letters or nothing.

A decoder that has read a quarter of an hour knows those texts by heart and hardly looks at what is said. This head
knows no texts: what it writes goes forward with the speech, and it learns from minutes (Graves et al. 2006; beside a
decoder, Watanabe et al. 2017).
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madrigal.data.tokens import PAD
from madrigal.speartts.decoding import Generated
from madrigal.speartts.pairs import Ids, only

LETTERS = 2
"""What each place may say: people say some fifteen letters a second, and repeats of a token may be taken once."""


class Texts(NamedTuple):
    """What a batch of texts costs: nats [batch], 0 where a text does not fit; its letters [batch], at least 1 each.

    A text that has more letters than there is room for cannot be read so, and counts nowhere.
    """

    nll: Tensor
    letters: Tensor
    fits: Tensor

    @property
    def counted(self) -> Tensor:
        """The number of letters of all texts that fit."""
        return self.letters[self.fits].sum()

    @property
    def mean(self) -> Tensor:
        """Nats a letter, over all letters that count; 0 where none does."""
        return self.nll.sum() / self.counted.clamp(min=1)


class CtcHead(nn.Module):
    """Hidden states of an encoder -> what is read there; the blank is the id after the last."""

    def __init__(self, dim: int, size: int) -> None:
        super().__init__()
        self.size = size
        self.project = nn.Linear(dim, LETTERS * (size + 1))

    def forward(self, hidden: Tensor) -> Tensor:
        """[batch, n, dim] -> log-probabilities [batch, LETTERS * n, ids + 1]."""
        logits = self.project(hidden).float()
        return logits.unflatten(-1, (LETTERS, self.size + 1)).flatten(1, 2).log_softmax(-1)

    def cost(self, hidden: Tensor, lengths: Tensor, text: Ids) -> Texts:
        """What the texts cost, whatever their letters' places; `lengths` [batch] count places of `hidden`."""
        return self._cost(self(hidden), lengths, text)

    @torch.no_grad()
    def read(self, hidden: Tensor, lengths: Tensor) -> Generated:
        """The likeliest at every place; repeats and blanks go. Its confidence is of the text, however it is placed."""
        log_probs = self(hidden)
        best = log_probs.argmax(-1)
        places = torch.arange(best.shape[1], device=best.device)
        is_new = F.pad(best[:, 1:] != best[:, :-1], (1, 0), value=True)[:, : best.shape[1]]
        is_letter = is_new & (best != self.size) & (places < LETTERS * lengths[:, None])
        text = only(best, is_letter)
        cost = self._cost(log_probs, lengths, text)
        # There is no end to be sure of: each text ends where the speech does.
        return Generated(*text, -cost.nll / cost.letters, torch.ones_like(lengths, dtype=torch.bool))

    def _cost(self, log_probs: Tensor, lengths: Tensor, text: Ids) -> Texts:
        places, letters = LETTERS * lengths, text.lengths
        # Two of the same need a blank between them, or they would be one.
        is_twice = (text.ids[:, 1:] == text.ids[:, :-1]) & (text.ids[:, 1:] != PAD)
        fits = letters + is_twice.sum(1) <= places
        if not log_probs.shape[1]:
            return Texts(log_probs.flatten(1).sum(1), letters.clamp(min=1), fits)
        nll = F.ctc_loss(
            log_probs.transpose(0, 1),
            text.ids.masked_fill(text.ids == PAD, 0),
            places,
            letters,
            blank=self.size,
            reduction="none",
            zero_infinity=True,
        )
        return Texts(nll.where(fits, nll.new_zeros(())), letters.clamp(min=1), fits)
