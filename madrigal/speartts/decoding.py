"""Writing targets token by token with a cache: what all ways of decoding share, and drawing, the plainest of them.

    Decoder     the model's decoder with its cache; under guidance every row runs twice, with its source and without
    Finished    the rows that are done, each at its own time
    decode      draw a token in every row until all rows are done

A row draws what it would draw alone. A row that is done leaves the batch and costs nothing any more.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from madrigal.data.collate import mask_from_lengths
from madrigal.data.tokens import PAD
from madrigal.layers.sampling import RowNoise, Sampling, draw, guided
from madrigal.speartts.config import Modality

if TYPE_CHECKING:
    from madrigal.speartts.model import Encoded, TextToSemantic


@dataclass
class Generated:
    """Ids [batch, time] of `lengths` [batch], PAD behind them; the end is no part of them.

    `confidence` [batch] is the mean log-probability, in nats, of a row's tokens and its end, as the model (under
    guidance, the guided model) sees them: whatever the temperature was. `ended` [batch]: False where the limit cut a
    row off. `source` are the ids [batch, n] that were read, and `source_lengths` [batch] their number.
    """

    ids: Tensor
    lengths: Tensor
    confidence: Tensor
    ended: Tensor
    source: Tensor | None = None
    source_lengths: Tensor | None = None

    def rows(self) -> list[Tensor]:
        """Each row's own ids [time]."""
        return [ids[:length] for ids, length in zip(self.ids, self.lengths.tolist(), strict=True)]

    def copy(self) -> "Generated":
        """The targets in tensors of their own, without the source."""
        return Generated(self.ids.clone(), self.lengths.clone(), self.confidence.clone(), self.ended.clone())

    @property
    def mask(self) -> Tensor:
        """Bool [batch, time], True = a token."""
        return mask_from_lengths(self.lengths, self.ids.shape[1])


class Decoder:
    """Targets of one modality that are being written, in `rows` rows: tokens go in, logits [rows, t, ids + 1] come out.

    Hidden states have twice the rows under guidance; the second half does not see its source.
    """

    def __init__(
        self, model: "TextToSemantic", modality: Modality, encoded: "Encoded", cond_scale: float = 1.0
    ) -> None:
        self.model, self.modality, self.cond_scale = model, modality, cond_scale
        self.end, self.rows = model.end(modality), len(encoded.hidden)
        self.copies = 1 if cond_scale == 1.0 else 2
        if self.copies == 2:
            everyone = torch.ones(self.rows, dtype=torch.bool, device=encoded.mask.device)
            encoded = encoded.join((encoded, encoded.without(everyone)))
        self.encoded = encoded
        self.cache = model.new_cache(self.rows * self.copies)

    def next_logits(self, tokens: Tensor | None) -> Tensor:
        """Logits [rows, ids + 1] of what follows `tokens` [rows]; None = the start."""
        return self.logits(self.upper(self.lower(tokens)))[:, 0]

    def lower(self, tokens: Tensor | None) -> Tensor:
        """One more token in each row through the layers below the early exit."""
        ids = None if tokens is None else tokens[:, None]
        if ids is not None and self.copies == 2:
            ids = torch.cat((ids, ids))
        return self.model.decode_lower(self.modality, ids, self.encoded, self.cache)

    def upper(self, hidden: Tensor) -> Tensor:
        """Hidden states of `lower` [rows, t, dim] through the layers above."""
        return self.model.decode_upper(hidden, self.encoded, self.cache)

    def logits(self, hidden: Tensor) -> Tensor:
        return self._guided(self.model.logits(self.modality, hidden, self.cache))

    def early_logits(self, hidden: Tensor) -> Tensor:
        return self._guided(self.model.early_logits(self.modality, hidden))

    def _guided(self, logits: Tensor) -> Tensor:
        logits = logits.float()
        if self.copies == 1:
            return logits
        with_it, without = logits.chunk(2)
        return guided(with_it, without, self.cond_scale)

    def keep(self, kept: Tensor) -> None:
        """Forget the newest positions that are False in `kept` [rows, newest], as if they had never been written."""
        if self.copies == 2:
            kept = torch.cat((kept, kept))
        for cache in (self.cache.lower, self.cache.upper):
            cache.keep(kept)

    def select(self, rows: Tensor) -> None:
        """Go on with these rows (numbers or a bool mask), in this order; a row may be taken twice.

        What they see of their sources is in the cache since the first token.
        """
        if rows.dtype == torch.bool:
            rows = rows.nonzero().flatten()
        self.cache.select(self._both(rows))
        self.rows = len(rows)

    def reorder(self, rows: Tensor) -> None:
        """Row i goes on from the past of row `rows[i]`, which has the same source."""
        for cache in (self.cache.lower, self.cache.upper):
            cache.reorder(self._both(rows))

    def _both(self, rows: Tensor) -> Tensor:
        """The rows [numbers], and under guidance their second halves too."""
        return torch.cat((rows, rows + self.rows)) if self.copies == 2 else rows


class Finished:
    """Takes rows as they are done, and puts them together at the end. `rows` are the numbers of those that go on."""

    def __init__(self, batch: int, limit: int, device: torch.device) -> None:
        self.rows = torch.arange(batch, device=device)
        self.ids = torch.full((batch, limit), PAD, device=device)
        self.lengths = torch.zeros(batch, dtype=torch.int64, device=device)
        self.confidence = torch.zeros(batch, device=device)
        self.ended = torch.zeros(batch, dtype=torch.bool, device=device)

    def take(self, done: Tensor, ids: Tensor, lengths: Tensor, log_probs: Tensor, ended: Tensor) -> None:
        """The rows that are True in `done`; all arguments are of those that went on until now, [rows] or [rows, t].

        `log_probs` are summed over a row's tokens and, where it has `ended`, its end.
        """
        rows, lengths, ended = self.rows[done], lengths[done], ended[done]
        mask = mask_from_lengths(lengths, ids.shape[1])
        self.ids[rows, : ids.shape[1]] = ids[done].masked_fill(~mask, PAD)
        self.lengths[rows], self.ended[rows] = lengths, ended
        self.confidence[rows] = (log_probs[done] / (lengths + ended)).to(self.confidence.dtype)
        self.rows = self.rows[~done]

    def result(self) -> Generated:
        longest = int(self.lengths.max()) if len(self.lengths) else 0
        return Generated(self.ids[:, :longest], self.lengths, self.confidence, self.ended)


@torch.no_grad()
def decode(
    model: "TextToSemantic",
    modality: Modality,
    encoded: "Encoded",
    limits: Tensor,
    *,
    sampling: Sampling,
    noise: RowNoise,
) -> Generated:
    """Draw at most `limits` [batch] tokens (one or more) in each row; a row has its own noise."""
    limits = limits.to(model.device)
    decoder = Decoder(model, modality, encoded, sampling.cond_scale)
    finished = Finished(len(limits), _largest(limits), model.device)
    ids, log_probs = finished.ids.clone(), torch.zeros(len(limits), device=model.device)
    soonest, token, step = _smallest(limits), None, 0
    while decoder.rows:
        logits = decoder.next_logits(token)
        history = ids[:, :step] if sampling.repetition_penalty != 1.0 else None
        token = draw(logits, sampling, noise, history)
        log_probs = log_probs + log_prob(logits, token)
        ids[:, step] = token
        step += 1
        ended = done = token == decoder.end
        if step >= soonest:
            done = done | (limits == step)
        if bool(done.any()):
            finished.take(done, ids[:, :step], step - ended.long(), log_probs, ended)
            on = ~done
            token, ids, limits, log_probs = token[on], ids[on], limits[on], log_probs[on]
            noise = noise.of(on)
            decoder.select(on)
            soonest = _smallest(limits)
    return finished.result()


def log_prob(logits: Tensor, ids: Tensor) -> Tensor:
    """Log-probabilities of ids [...] under logits [..., ids]."""
    return logits.log_softmax(dim=-1).gather(-1, ids[..., None]).squeeze(-1)


def _largest(limits: Tensor) -> int:
    return int(limits.max()) if len(limits) else 0


def _smallest(limits: Tensor) -> int:
    return int(limits.min()) if len(limits) else 0
