"""Speculative decoding: the layers below the early exit draft some tokens, the layers above check them all at once.

A round drafts up to `gamma` tokens in each row, and the upper layers run once over the hidden states that the drafts
left. Each row keeps its drafts up to the first that the whole model disagrees with, and one token of the whole model
after them. At temperature 0 that is greedy decoding, token for token (two tokens that are equally likely but for
rounding may fall either way, as they may in batches of another size); else what is written has the whole model's
distribution (https://arxiv.org/abs/2211.17192). Rows keep different numbers of drafts: what a row does not keep becomes
padding in its cache.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from madrigal.data.tokens import PAD
from madrigal.errors import UserError
from madrigal.layers.sampling import RowNoise, Sampling, pick, shaped
from madrigal.speartts.config import Modality
from madrigal.speartts.decoding import Decoder, Finished, Generated, log_prob

if TYPE_CHECKING:
    from madrigal.speartts.model import Encoded, TextToSemantic


@dataclass
class Draft:
    """What a round proposes: `tokens` [rows, n], PAD where a row has no more to propose.

    `logits` [rows, n, ids + 1] are the early exit's, as they were drawn from. `hidden` [rows, n or n + 1, dim] are the
    lower layers' states of the token before the drafts, and of all drafts that were read.
    """

    tokens: Tensor
    logits: Tensor
    hidden: Tensor


class Speculation:
    """Rows that are being written; `ids` [rows, longest limit] and `lengths` [rows] are what they hold so far."""

    def __init__(
        self, decoder: Decoder, limits: Tensor, sampling: Sampling, noise: RowNoise, gamma: int, lenience: float
    ) -> None:
        self.decoder, self.limits, self.sampling, self.noise = decoder, limits, sampling, noise
        self.gamma, self.lenience = gamma, lenience
        rows, size = len(limits), int(limits.max()) if len(limits) else 0
        # Drafts are noted behind what is written, so there is room for some that will not be kept.
        self.ids = torch.full((rows, size + gamma + 1), PAD, device=limits.device)
        self.lengths = torch.zeros_like(limits)
        self.log_probs = torch.zeros(rows, device=limits.device)
        self.ended = torch.zeros(rows, dtype=torch.bool, device=limits.device)
        self.finished = Finished(rows, size, limits.device)
        self.newest: Tensor | None = None  # the token that no layer has read yet; None = the start

    def advance(self) -> None:
        """One round: at least one token, or the end, in every row."""
        draft = self._draft()
        logits = self.decoder.logits(self.decoder.upper(draft.hidden))
        accepted, newest = self._greedy(draft, logits) if self.sampling.temperature == 0 else self._check(draft, logits)
        self._write(draft, logits, accepted, newest)

    def _draft(self) -> Draft:
        end = self.decoder.end
        # The token after the drafts is the whole model's: a row that may write one more token drafts none.
        allowed = (self.limits - self.lengths - 1).clamp(max=self.gamma)
        hidden = [self.decoder.lower(self.newest)]
        tokens: list[Tensor] = []
        logits: list[Tensor] = []
        live = allowed > 0
        while bool(live.any()):
            early = self._shaped(self.decoder.early_logits(hidden[-1])[:, 0], len(tokens))
            drawn = torch.full_like(self.lengths, PAD)
            # A row that drafts nothing here must not use up its noise: alone it would not either.
            drawn[live] = self._pick(early[live], self.noise.of(live))
            self._note(drawn[:, None], len(tokens))
            tokens.append(drawn)
            logits.append(early)
            is_token = live & (drawn != end)
            if not bool(is_token.any()):
                break
            hidden.append(self.decoder.lower(drawn.where(is_token, PAD)))
            live = is_token & (allowed > len(tokens))
        if not tokens:
            nothing = self.lengths.new_empty(len(self.lengths), 0)
            return Draft(nothing, hidden[0].new_empty(len(self.lengths), 0, end + 1), hidden[0])
        return Draft(torch.stack(tokens, 1), torch.stack(logits, 1), torch.cat(hidden, 1))

    def _greedy(self, draft: Draft, logits: Tensor) -> tuple[Tensor, Tensor]:
        """How many drafts of each row are what the whole model would have taken, and what it takes after them."""
        best = self._all_shaped(logits).argmax(dim=-1)
        accepted = _leading(draft.tokens == best[:, : draft.tokens.shape[1]])
        return accepted, _at(best, accepted)

    def _check(self, draft: Draft, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Accept a draft as often as the whole model makes it likelier, and draw from what is missing otherwise."""
        chances, guesses = self._all_shaped(logits).softmax(dim=-1), draft.logits.softmax(dim=-1)
        drafted = draft.tokens.shape[1]
        there = draft.tokens != PAD
        tokens = draft.tokens.clamp(min=0)[..., None]
        chance = chances[:, :drafted].gather(-1, tokens).squeeze(-1)
        guess = guesses.gather(-1, tokens).squeeze(-1)
        # As many numbers in every round, whatever the neighbours drafted.
        uniform = torch.exp(-torch.exp(-self.noise.gumbel((len(chances), self.gamma)))).to(chance.device)
        accepted = _leading(there & (uniform[:, :drafted] * guess * self.lenience < chance))
        missing = _at(chances, accepted)
        is_rejected = accepted < there.sum(dim=1)
        if bool(is_rejected.any()):
            short = (missing - _at(guesses, accepted)).clamp(min=0)
            is_rejected &= short.sum(dim=1) > 0  # rounding may leave nothing of two equal distributions
            missing = torch.where(is_rejected[:, None], short, missing)
        return accepted, pick(missing.log(), self.noise)

    def _write(self, draft: Draft, logits: Tensor, accepted: Tensor, newest: Tensor) -> None:
        """Take over the accepted drafts and the newest token; what a row does not keep is forgotten."""
        columns = logits.shape[1]
        place = torch.arange(columns, device=accepted.device)
        kept = place <= accepted[:, None]
        tokens = F.pad(draft.tokens, (0, columns - draft.tokens.shape[1]), value=PAD)
        tokens = torch.where(place == accepted[:, None], newest[:, None], tokens)
        # An accepted draft may be the end; then nothing follows it.
        is_end = tokens == self.decoder.end
        counted = kept & (is_end.cumsum(dim=1) - is_end.long() == 0)
        self._note(tokens, 0)
        self.log_probs = self.log_probs + (log_prob(logits, tokens.clamp(min=0)) * counted).sum(dim=1)
        self.ended = (is_end & counted).any(dim=1)
        self.lengths = self.lengths + counted.sum(dim=1) - self.ended.long()
        self._leave(newest, kept)

    def _leave(self, newest: Tensor, kept: Tensor) -> None:
        """Hand over the rows that are done; the others' caches keep only what is written, `kept` [rows, columns]."""
        done = self.ended | (self.lengths >= self.limits)
        if bool(done.any()):
            self.finished.take(
                done, self.ids[:, : self.finished.ids.shape[1]], self.lengths, self.log_probs, self.ended
            )
            on = ~done
            self.ids, self.lengths, self.log_probs = self.ids[on], self.lengths[on], self.log_probs[on]
            self.limits, self.noise = self.limits[on], self.noise.of(on)
            newest, kept = newest[on], kept[on]
            self.decoder.select(on)
        self.newest = newest
        self.decoder.keep(kept)

    def _note(self, tokens: Tensor, ahead: int) -> None:
        """Put tokens [rows, n] behind what is written; they count when `lengths` says so."""
        columns = torch.arange(ahead, ahead + tokens.shape[1], device=tokens.device)
        self.ids.scatter_(1, self.lengths[:, None] + columns, tokens)

    def _pick(self, logits: Tensor, noise: RowNoise) -> Tensor:
        return logits.argmax(dim=-1) if self.sampling.temperature == 0 else pick(logits, noise)

    def _shaped(self, logits: Tensor, ahead: int) -> Tensor:
        """Logits [rows, ids + 1] of the token that comes `ahead` tokens behind what is written, as they are drawn."""
        if self.sampling.repetition_penalty == 1.0:
            return shaped(logits, self.sampling)
        back = torch.arange(self.sampling.repetition_window, 0, -1, device=logits.device)
        at = self.lengths[:, None] + ahead - back
        return shaped(logits, self.sampling, self.ids.gather(1, at.clamp(min=0)).masked_fill(at < 0, PAD))

    def _all_shaped(self, logits: Tensor) -> Tensor:
        """Logits [rows, t, ids + 1] of the tokens that come 0, 1, … ahead."""
        if self.sampling.repetition_penalty == 1.0:
            return shaped(logits.flatten(0, 1), self.sampling).view_as(logits)
        return torch.stack([self._shaped(one, ahead) for ahead, one in enumerate(logits.unbind(1))], dim=1)


@torch.no_grad()
def speculate(
    model: "TextToSemantic",
    modality: Modality,
    encoded: "Encoded",
    limits: Tensor,
    *,
    sampling: Sampling,
    noise: RowNoise,
    gamma: int = 5,
    lenience: float = 1.0,
) -> Generated:
    """What `decode` writes, in fewer passes of the upper layers; `gamma` tokens are drafted at a time.

    `lenience` under 1 accepts drafts that the whole model finds less likely, so more of them, at the price of its
    distribution; at temperature 0 it plays no part.
    """
    if not model.has_early_exit:
        raise UserError(
            "Speculative decoding drafts through an early exit, and this model has none: "
            "build it with target_early_exit_layer, or decode without spec_decode."
        )
    if gamma < 1:
        raise UserError(f"spec_decode_gamma must be 1 or more, not {gamma}.")
    if not 0 < lenience <= 1:
        raise UserError(f"spec_decode_lenience must be over 0 and at most 1 (exact), not {lenience}.")
    decoder = Decoder(model, modality, encoded, sampling.cond_scale)
    speculation = Speculation(decoder, limits.to(model.device), sampling, noise, gamma, lenience)
    while decoder.rows:
        speculation.advance()
    return speculation.finished.result()


def _leading(right: Tensor) -> Tensor:
    """How many of the first of [rows, n] are True in a row, [rows]."""
    return right.long().cumprod(dim=1).sum(dim=1)


def _at(values: Tensor, column: Tensor) -> Tensor:
    """values [rows, n, ...] at one column of each row; beyond the last, the last."""
    return values[torch.arange(len(values), device=values.device), column.clamp(max=values.shape[1] - 1)]
