"""The losses of a source and a target: each next id, at the early exit and by CTC too, and hidden sources aligned."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from madrigal.data.collate import mask_from_lengths
from madrigal.speartts.alignment import alignment
from madrigal.speartts.config import Modality
from madrigal.speartts.ctc import Texts
from madrigal.speartts.model import Encoded, TextToSemantic
from madrigal.speartts.pairs import Ids

EARLY, ALIGN, CTC = "early", "align", "ctc"


class Outcome(NamedTuple):
    """Logits [tokens, ids + 1] of all real tokens of a batch, row by row, and what they should have said [tokens].

    `early` are the logits of the early exit, `align` is the loss of the rows that went without their source, `ctc` what
    the encoder's own reading costs.
    """

    logits: Tensor
    targets: Tensor
    early: Tensor | None = None
    align: Tensor | None = None
    ctc: Texts | None = None

    def losses(self, name: str) -> dict[str, Tensor]:
        """Mean cross entropy in nats a token, under `name`, and the other losses; that of CTC in nats a letter."""
        terms = {name: self.nll(self.logits)}
        if self.early is not None:
            terms[EARLY] = self.nll(self.early)
        if self.align is not None:
            terms[ALIGN] = self.align
        if self.ctc is not None:
            terms[CTC] = self.ctc.mean
        return terms

    def nll(self, logits: Tensor) -> Tensor:
        return F.cross_entropy(logits.float(), self.targets)

    @property
    def accuracy(self) -> Tensor:
        """The share of tokens whose likeliest guess is right."""
        return (self.logits.argmax(-1) == self.targets).float().mean()


def learn(
    model: TextToSemantic,
    source: tuple[Modality, Ids],
    target: tuple[Modality, Ids],
    *,
    training: bool,
    early: bool = False,
) -> Outcome:
    """Every id of the target given those before it and the source, and then the end.

    While `training`, some rows go without their source.
    """
    config, (modality, rows) = model.config, target
    seen = encoded = model.encode(source[0], *source[1])
    drops = training and config.cond_drop_prob > 0
    if drops:
        dropped = torch.rand(len(encoded.mask), device=model.device) < config.cond_drop_prob
        seen = encoded.without(dropped)
    ids, lengths = rows.ids.to(model.device), rows.lengths.to(model.device)
    lower = model.decode_lower(modality, ids, seen)
    upper = model.decode_upper(lower, seen)
    wanted = F.pad(ids, (0, 1)).scatter(1, lengths[:, None], model.end(modality))
    real = mask_from_lengths(lengths + 1, wanted.shape[1])
    early_logits = None
    if early:
        below = lower.detach() if config.detach_early_exit_embed else lower
        early_logits = model.early_logits(modality, below[real])
    align = None
    # Across modalities alone: a source that is a part of its target is like it already.
    if drops and config.align_reg_loss_weight > 0 and source[0] != modality:
        align = _align(model, encoded, upper, real, dropped)
    ctc = None
    if model.ctc is not None and (source[0], modality) == ("speech", "text"):
        ctc = model.ctc.cost(encoded.hidden, encoded.mask.sum(1), Ids(ids, lengths))
    return Outcome(model.logits(modality, upper[real]), wanted[real], early_logits, align, ctc)


def _align(model: TextToSemantic, encoded: Encoded, upper: Tensor, real: Tensor, rows: Tensor) -> Tensor:
    config = model.config
    temperature = config.align_reg_logsumexp_pool_temp if config.align_reg_use_logsumexp_pool else None
    return alignment(encoded.hidden, encoded.mask, upper, real, rows, temperature=temperature)
