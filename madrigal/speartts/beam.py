"""Beam search: the likeliest whole targets that a few hypotheses of each row lead to.

All hypotheses of all rows are one batch. A hypothesis that has ended keeps its score and its place until better ones
push it out. A row is done when its hypotheses have ended, or when none that goes on can still overtake the best.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from madrigal.errors import UserError
from madrigal.layers.sampling import Sampling, keep_likeliest, shaped
from madrigal.speartts.config import Modality
from madrigal.speartts.decoding import Decoder, Finished, Generated

if TYPE_CHECKING:
    from madrigal.speartts.model import Encoded, TextToSemantic

NEVER = float("-inf")


class Choices(NamedTuple):
    """Ids that may come next and their log-probabilities, with and without a penalty: [rows, beams, choices]."""

    ids: Tensor
    log_probs: Tensor
    plain: Tensor


@dataclass
class Beams:
    """The hypotheses of every row, the best first.

    `ids` [rows, beams, limit], of which `lengths` [rows, beams] count, the end included. `log_probs` [rows, beams] are
    sums in double precision: two hypotheses must not become equal by rounding. `scores` are the same by length, and
    -inf where there is no hypothesis. `plain` [rows, beams] are the sums without a penalty for repetition, as the model
    sees them.
    """

    ids: Tensor
    lengths: Tensor
    log_probs: Tensor
    plain: Tensor
    scores: Tensor
    ended: Tensor

    @classmethod
    def start(cls, rows: int, limit: int) -> "Beams":
        """One hypothesis in each row, of no tokens."""
        zeros = torch.zeros(rows, 1, dtype=torch.float64)
        lengths = torch.zeros(rows, 1, dtype=torch.int64)
        ids = torch.zeros(rows, 1, limit, dtype=torch.int64)
        return cls(ids, lengths, zeros, zeros, zeros, torch.zeros(rows, 1, dtype=torch.bool))

    def grow(self, nexts: Choices, size: int, step: int, end: int, penalty: float) -> Tensor:
        """Take the `size` best of all hypotheses with one of their next choices.

        Returns which hypothesis each of them goes on from, [rows, size].
        """
        beams, choices = nexts.ids.shape[1:]
        sums, plain = self.log_probs[..., None] + nexts.log_probs, self.plain[..., None] + nexts.plain
        scores = sums / step**penalty
        # What has ended goes on in one way only: as it is.
        scores[self.ended] = NEVER
        scores[..., 0] = torch.where(self.ended, self.scores, scores[..., 0])
        self.scores, best = scores.flatten(1).topk(min(size, beams * choices), dim=1)
        parents = best // choices
        tokens, sums, plain = (t.flatten(1).gather(1, best) for t in (nexts.ids, sums, plain))
        had_ended = self.ended.gather(1, parents)
        self.ids = self.ids.gather(1, parents[..., None].expand(-1, -1, self.ids.shape[2]))
        self.ids[..., step - 1] = tokens
        self.lengths = self.lengths.gather(1, parents).where(had_ended, step)
        self.log_probs = self.log_probs.gather(1, parents).where(had_ended, sums)
        self.plain = self.plain.gather(1, parents).where(had_ended, plain)
        self.ended = had_ended | (tokens == end) | (self.scores == NEVER)
        return parents

    def are_decided(self, limits: Tensor, penalty: float) -> Tensor:
        """Bool [rows]: whether all that goes on, were it certain from here to the limit, would stay behind the best."""
        hopes = (self.log_probs / limits[:, None].double() ** penalty).masked_fill(self.ended, NEVER)
        ended = self.scores.masked_fill(~self.ended, NEVER)
        return ended.amax(dim=1) >= hopes.amax(dim=1)

    def select(self, rows: Tensor) -> None:
        for name, value in vars(self).items():
            setattr(self, name, value[rows])


@torch.no_grad()
def beam_search(
    model: "TextToSemantic",
    modality: Modality,
    encoded: "Encoded",
    limits: Tensor,
    *,
    beam_size: int = 4,
    length_penalty: float = 1.0,
    sampling: Sampling | None = None,
) -> Generated:
    """The best of `beam_size` hypotheses for each row, of at most `limits` [batch] tokens (one or more).

    Hypotheses are compared by log-probability / length ** `length_penalty`: 0 = the likeliest whole, which is often too
    short; 1 = the likeliest token by token. Nothing is drawn, so the temperature plays no part; what `sampling` leaves
    out is in no hypothesis.
    """
    if beam_size < 1:
        raise UserError(f"A beam search needs a beam_size of 1 or more, not {beam_size}.")
    if length_penalty < 0:
        raise UserError(f"length_penalty must be 0 (none) or more, not {length_penalty}.")
    sampling = sampling or Sampling()
    limits = limits.cpu()
    decoder = Decoder(model, modality, encoded, sampling.cond_scale)
    finished = Finished(len(limits), int(limits.max()) if len(limits) else 0, torch.device("cpu"))
    beams, tokens, step = Beams.start(*finished.ids.shape), None, 0
    while len(limits):
        before = beams.ids.shape[1]
        logits = decoder.next_logits(tokens)
        nexts = _choices(logits, beam_size, sampling, beams.ids[..., :step])
        step += 1
        parents = beams.grow(nexts, beam_size, step, decoder.end, length_penalty)
        done = (limits == step) | beams.are_decided(limits, length_penalty)
        if bool(done.any()):
            _finish(beams, done, beams.ended | (limits == step)[:, None], finished, decoder.end)
        on = (~done).nonzero().flatten()
        _follow(decoder, parents[on], on, before)
        beams.select(on)
        limits = limits[on]
        tokens = beams.ids[..., step - 1].masked_fill(beams.ended, 0).flatten().to(model.device)
    found = finished.result()
    for name in ("ids", "lengths", "confidence", "ended"):
        setattr(found, name, getattr(found, name).to(model.device))
    return found


def _choices(logits: Tensor, beam_size: int, sampling: Sampling, written: Tensor) -> Choices:
    """The next ids of each hypothesis that can matter.

    No more than `beam_size` of one hypothesis can be among the best `beam_size` of all.
    """
    likelier = sampling.model_copy(update={"temperature": 0.0})
    penalised = shaped(logits, likelier, written.flatten(0, 1))
    values, ids = keep_likeliest(penalised, sampling).topk(min(beam_size, logits.shape[1]), dim=1)
    log_probs, plain = (
        values.cpu().double() - whole.logsumexp(dim=1, keepdim=True).cpu().double()
        for values, whole in ((values, penalised), (logits.gather(1, ids), logits))
    )
    return Choices(*(each.unflatten(0, written.shape[:2]) for each in (ids.cpu(), log_probs, plain)))


def _finish(beams: Beams, done: Tensor, whole: Tensor, finished: Finished, end: int) -> None:
    """Of rows that are done, the best hypothesis that is `whole` [rows, beams]: it has ended, or may not go on."""
    best = beams.scores.masked_fill(~whole, NEVER).argmax(dim=1)
    rows = torch.arange(len(best))
    ids, lengths = beams.ids[rows, best], beams.lengths[rows, best]
    ended = ids.gather(1, lengths[:, None] - 1)[:, 0] == end
    finished.take(done, ids, lengths - ended.long(), beams.plain[rows, best], ended)


def _follow(decoder: Decoder, parents: Tensor, rows: Tensor, before: int) -> None:
    """Give each hypothesis [rows, beams] the past of the one that it goes on from; a row had `before` of them."""
    wanted = (rows[:, None] * before + parents).flatten().to(decoder.model.device)
    if len(rows) * before == decoder.rows and parents.shape[1] == before:
        decoder.reorder(wanted)  # the same rows, and as many hypotheses in each
    else:
        decoder.select(wanted)
