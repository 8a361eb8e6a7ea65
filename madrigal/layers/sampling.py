"""From logits to the next token: temperature, what is kept, repetition, guidance, and noise that belongs to a row."""

import math
from collections.abc import Sequence

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor


class Sampling(BaseModel):
    """How tokens are drawn.

    `temperature` 0 takes the likeliest. `top_k` and `top_p` keep the likeliest ids by number and by probability;
    `filter_thres` keeps the top share of `1 - filter_thres` of all ids. Ids among the last `repetition_window` tokens
    become less likely by `repetition_penalty`. `cond_scale` over 1 leans on the condition (classifier-free guidance).
    `recall` is the share of a stage's chances that its prompt has, by what followed there on like states.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    temperature: float = Field(default=1.0, ge=0.0)
    top_k: int | None = Field(default=None, ge=1)
    top_p: float | None = Field(default=None, gt=0.0, le=1.0)
    filter_thres: float | None = Field(default=None, ge=0.0, lt=1.0)
    repetition_penalty: float = Field(default=1.0, ge=1.0)
    repetition_window: int = Field(default=64, ge=1)
    cond_scale: float = Field(default=1.0, ge=0.0)
    recall: float = Field(default=0.0, ge=0.0, lt=1.0)


class RowNoise:
    """One generator for each row, so that what a row draws does not depend on its neighbours."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self.generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def __len__(self) -> int:
        return len(self.generators)

    def gumbel(self, shape: Sequence[int]) -> Tensor:
        """Gumbel noise of `shape`, whose first number is the rows."""
        if shape[0] != len(self.generators):
            raise ValueError(f"There is noise for {len(self.generators)} rows, not for {shape[0]}.")
        uniform = torch.empty(*shape)
        for row, generator in zip(uniform, self.generators, strict=True):
            row.exponential_(generator=generator)
        return -uniform.clamp_(min=torch.finfo(torch.float32).tiny).log()

    def ragged(self, counts: Sequence[int], width: int) -> Tensor:
        """Gumbel noise [sum of counts, width]: each row draws as many as its count, one row after another."""
        uniform = torch.empty(sum(counts), width)
        for part, generator in zip(uniform.split(list(counts)), self.generators, strict=True):
            part.exponential_(generator=generator)
        return -uniform.clamp_(min=torch.finfo(torch.float32).tiny).log()

    def of(self, rows: Tensor) -> "RowNoise":
        """The noise of some rows [bool, batch]; the others' generators stay where they are."""
        some = RowNoise(())
        some.generators = [one for one, is_in in zip(self.generators, rows.tolist(), strict=True) if is_in]
        return some

    def select(self, rows: Sequence[int] | Tensor) -> None:
        """Keep only the generators of these rows (numbers or a bool mask)."""
        rows = torch.as_tensor(rows)
        if rows.dtype == torch.bool:
            rows = rows.nonzero().flatten()
        chosen = rows.tolist()
        if len(set(chosen)) < len(chosen):
            raise ValueError("A row's noise cannot be given to two rows: they would draw the same.")
        self.generators = [self.generators[row] for row in chosen]


def guided(conditional: Tensor, unconditional: Tensor, scale: float) -> Tensor:
    """Classifier-free guidance: 1 = the condition as it is, 0 = without it, more = further away from that."""
    return torch.lerp(unconditional, conditional, scale)


def draw(logits: Tensor, sampling: Sampling, noise: RowNoise, history: Tensor | None = None) -> Tensor:
    """Draw one id for each row of logits [batch, ids] -> int64 [batch].

    Ids with a logit of -inf are never drawn; every other id that is kept can be. `history` [batch, tokens] holds what
    the rows have drawn so far, newest last; negative ids are no tokens.
    """
    logits = shaped(logits, sampling, history)
    return logits.argmax(dim=-1) if sampling.temperature == 0.0 else pick(logits, noise)


def shaped(logits: Tensor, sampling: Sampling, history: Tensor | None = None) -> Tensor:
    """Logits [batch, ids] whose softmax is what `draw` draws from; at temperature 0, whose likeliest id it takes."""
    logits = logits.float()
    if history is not None and sampling.repetition_penalty != 1.0:
        logits = _discourage(logits, history[:, -sampling.repetition_window :], sampling.repetition_penalty)
    return logits if sampling.temperature == 0.0 else keep_likeliest(logits / sampling.temperature, sampling)


def pick(logits: Tensor, noise: RowNoise) -> Tensor:
    """An id for each row, drawn from the softmax of logits [batch, ids]."""
    return (logits + noise.gumbel(logits.shape).to(logits.device)).argmax(dim=-1)


def _discourage(logits: Tensor, history: Tensor, penalty: float) -> Tensor:
    """Divide the odds of the ids in the history; unlike a factor on logits, this does not depend on their offset."""
    seen = torch.zeros(logits.shape[0], logits.shape[1] + 1, dtype=torch.bool, device=logits.device)
    seen.scatter_(1, history.to(logits.device).clamp(min=-1) + 1, True)
    return logits - seen[:, 1:] * math.log(penalty)


def count_of_share(ids: int, filter_thres: float) -> int:
    """How many of so many ids are left when the share `filter_thres` of unlikely ones is not: one at least."""
    return max(1, math.ceil((1 - filter_thres) * ids))


def keep_likeliest(logits: Tensor, sampling: Sampling) -> Tensor:
    """Logits [batch, ids] with -inf for what `top_k`, `filter_thres` and `top_p` leave out."""
    ids = logits.shape[-1]
    count = ids if sampling.top_k is None else min(sampling.top_k, ids)
    if sampling.filter_thres is not None:
        count = min(count, count_of_share(ids, sampling.filter_thres))
    if count < ids:
        least = logits.topk(count, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < least, float("-inf"))
    if sampling.top_p is not None and sampling.top_p < 1.0:
        ordered, order = logits.sort(dim=-1, descending=True)
        chances = ordered.softmax(dim=-1)
        # An id stays if the likelier ones do not reach top_p yet; so the likeliest always stays.
        dropped = chances.cumsum(dim=-1) - chances >= sampling.top_p
        logits = logits.masked_fill(dropped.scatter(1, order, dropped), float("-inf"))
    return logits
