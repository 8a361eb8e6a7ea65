"""A second way to read, connectionist temporal classification: each place of the encoder says some letters or nothing.

A decoder that has read a quarter of an hour knows those texts by heart and hardly looks at what is said. This head
knows no texts: what it writes goes forward with the speech, and it learns from minutes (Graves et al. 2006; beside a
decoder, Watanabe et al. 2017).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madrigal.data.tokens import PAD
from madrigal.speartts.decoding import Finished, Generated
from madrigal.speartts.pairs import Ids

LETTERS = 2
"""What each place may say: people say some fifteen letters a second, and repeats of a token may be taken once."""


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

    def loss(self, hidden: Tensor, lengths: Tensor, text: Ids) -> Tensor:
        """Nats a letter of the texts, whatever the letters' places; `lengths` [batch] count places of `hidden`."""
        return self._nll(self(hidden), lengths, text, "mean")

    @torch.no_grad()
    def read(self, hidden: Tensor, lengths: Tensor) -> Generated:
        """The likeliest at every place; repeats and blanks go. Its confidence is of the text, however it is placed."""
        log_probs = self(hidden)
        best = log_probs.argmax(-1)
        places = torch.arange(best.shape[1], device=best.device)
        is_new = F.pad(best[:, 1:] != best[:, :-1], (1, 0), value=True)
        is_letter = is_new & (best != self.size) & (places < LETTERS * lengths[:, None])
        made = Finished(len(best), int(is_letter.sum(1).max()) if len(best) else 0, best.device)
        order = (~is_letter).long().argsort(dim=1, stable=True)[:, : made.ids.shape[1]]
        counts, everyone = is_letter.sum(1), torch.ones_like(lengths, dtype=torch.bool)
        ids = best.gather(1, order)
        total = -self._nll(log_probs, lengths, Ids(ids, counts), "none")
        made.take(everyone, ids, counts, total, everyone)
        return made.result()

    def _nll(self, log_probs: Tensor, lengths: Tensor, text: Ids, reduction: str) -> Tensor:
        # A text that has more letters than there is room for is left to the decoder, not to an infinite loss.
        return F.ctc_loss(
            log_probs.transpose(0, 1),
            text.ids.masked_fill(text.ids == PAD, 0),
            LETTERS * lengths,
            text.lengths,
            blank=self.size,
            reduction=reduction,
            zero_infinity=True,
        )
