"""What a picture is conditioned on, and being led by it."""

from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from madrigal.layers.sampling import guided
from madrigal.tokenizers.text_condition import dropped


class Context(NamedTuple):
    """What rows are conditioned on: items [batch, items, dim] and which of them are there, [batch, items]."""

    items: Tensor
    mask: Tensor

    def then(self, other: "Context") -> "Context":
        """The rows of both, one after another."""
        missing = other.items.shape[1] - self.items.shape[1]
        first, second = self._longer(missing), other._longer(-missing)
        return Context(torch.cat((first.items, second.items)), torch.cat((first.mask, second.mask)))

    def nothing(self) -> "Context":
        """The same rows without their condition."""
        return Context(self.items[:, :1], torch.zeros_like(self.mask[:, :1]))

    def dropped(self, probability: float) -> "Context":
        """Each row without its condition, by chance, from torch's generator."""
        return Context(self.items, dropped(self.mask, probability)) if probability > 0 else self

    def _longer(self, by: int) -> "Context":
        if by <= 0:
            return self
        return Context(F.pad(self.items, (0, 0, 0, by)), F.pad(self.mask, (0, by)))


class Net(Protocol):
    """What makes something of tokens: a transformer or a critic."""

    def embed(
        self, ids: Tensor, context: Context | None = None, *, cond_ids: Tensor | None = None, past: Tensor | None = None
    ) -> Tensor: ...

    def to_out(self, x: Tensor) -> Tensor: ...


class Lead(NamedTuple):
    """A condition, what to be led away from (None: no condition), and how much: 1 = not led at all."""

    context: Context | None
    against: Context | None = None
    scale: float = 1.0


def led(
    net: Net,
    ids: Tensor,
    lead: Lead,
    *,
    cond_ids: Tensor | None = None,
    past: Tensor | None = None,
    wanted: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """What comes out for each token of ids [batch, rows, columns], and what `past` is in the next call.

    With `wanted` [batch, tokens] it comes out for the tokens that are True there alone, one after another.
    """
    context = lead.context
    if context is None or lead.scale == 1.0:
        embed = net.embed(ids, context, cond_ids=cond_ids, past=past)
        return net.to_out(embed if wanted is None else embed[wanted]), embed
    both = context.then(context.nothing() if lead.against is None else lead.against)
    low = None if cond_ids is None else cond_ids.repeat(2, 1, 1)
    embed = net.embed(ids.repeat(2, 1, 1), both, cond_ids=low, past=past)
    with_it, without = net.to_out(embed if wanted is None else embed[wanted.repeat(2, 1)]).chunk(2)
    return guided(with_it, without, lead.scale), embed
