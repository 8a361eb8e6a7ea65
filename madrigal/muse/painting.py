"""Parallel decoding: all tokens are guessed at once, the surest are kept, and the others are guessed again.

Every random number belongs to a row: a picture in a batch is what it would be alone, and a seed makes it again.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor

from madrigal.engine.machine import BF16, Bf16
from madrigal.layers.sampling import RowNoise, count_of_share
from madrigal.muse.context import Lead, Net, led

NEVER = float("-inf")


class Painting(BaseModel):
    """How a picture is made."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    timesteps: int = Field(18, ge=1, description="steps; in each some tokens are kept")
    cond_scale: float = Field(3.0, ge=0, description="over 1: lean on the condition, away from none or a negative text")
    temperature: float = Field(1.0, ge=0, description="of drawing a token, at first; it falls to 0 with the steps")
    topk_filter_thres: float = Field(0.9, ge=0, lt=1, description="so large a share of unlikely ids is never drawn")
    choice_temperature: float = Field(
        4.5,
        ge=0,
        description="noise on how sure a token is, at first; it falls to 0: with little, the background is kept first",
    )
    can_remask_prev_masked: bool = Field(False, description="a token that was kept may be guessed again")
    force_not_use_token_critic: bool = Field(False, description="do not ask the critic which tokens to guess again")
    critic_noise_scale: float = Field(1.0, ge=0, description="noise on what the critic says, at first; it falls to 0")
    bf16: Bf16 = Field(False, description=BF16)


class Canvas(NamedTuple):
    """Ids [batch, rows, columns], and which of them are to be made, of the same shape; the others stay."""

    ids: Tensor
    made: Tensor
    cond_ids: Tensor | None = None


class Critic(NamedTuple):
    """What says which tokens do not belong, and how it is led."""

    net: Net
    lead: Lead


@torch.no_grad()
def paint(
    net: Net,
    canvas: Canvas,
    lead: Lead,
    noise: RowNoise,
    *,
    mask_id: int,
    painting: Painting,
    schedule: Callable[[Tensor], Tensor],
    critic: Critic | None = None,
) -> Tensor:
    """The canvas with all its tokens made, [batch, rows, columns]."""
    shape, free = canvas.ids.shape, canvas.made.flatten(1)
    ids, masked, past = canvas.ids.flatten(1), free, None
    for step in range(painting.timesteps):
        ids = ids.masked_fill(masked, mask_id)
        # Only what is asked for is computed: how sure it is of a token that stays, nobody asks.
        wanted = free if critic is None and painting.can_remask_prev_masked else masked
        out, past = led(net, ids.view(shape), lead, cond_ids=canvas.cond_ids, past=past, wanted=wanted)
        out = out.float()
        left = 1 - (step + 1) / painting.timesteps  # how much there is still to be noisy about
        ids = torch.where(masked, ids.masked_scatter(wanted, _drawn(out, wanted, noise, painting, left)), ids)
        if left <= 0:
            break
        if critic is not None:
            doubts = led(critic.net, ids.view(shape), critic.lead, cond_ids=canvas.cond_ids)[0][..., 0].float()
            doubts = doubts + painting.critic_noise_scale * left * _gumbel(noise, doubts)
        else:
            sure = out.log_softmax(-1).gather(-1, ids[wanted][:, None])[:, 0]
            doubts = torch.full(ids.shape, NEVER, device=ids.device).masked_scatter(wanted, -sure)
            doubts = doubts - painting.choice_temperature * left * _gumbel(noise, doubts)
        share = schedule(torch.tensor((step + 1) / painting.timesteps, dtype=torch.float64))
        masked = highest(doubts.masked_fill(~free, NEVER), _count(free, share)) & free
    return ids.view(shape)


def _count(free: Tensor, share: Tensor) -> Tensor:
    """How many of the free tokens [batch, tokens] are masked: one at least, and less than all."""
    total = free.sum(1)
    count = (total * share.to(free.device)).long()
    return count.clamp(min=1).minimum(total)


def highest(values: Tensor, count: Tensor) -> Tensor:
    """The `count` [batch] highest of values [batch, tokens], as a mask."""
    order = values.argsort(dim=1, descending=True, stable=True)
    ranks = torch.empty_like(order).scatter_(
        1, order, torch.arange(order.shape[1], device=order.device).expand_as(order)
    )
    return ranks < count[:, None]


def _drawn(logits: Tensor, wanted: Tensor, noise: RowNoise, painting: Painting, left: float) -> Tensor:
    """An id for every wanted token, from logits [tokens, ids]."""
    degree = painting.temperature * left
    if degree == 0:
        return logits.argmax(-1)
    # Noise for those alone that may be drawn: it costs more than finding them.
    kept = logits.topk(count_of_share(logits.shape[-1], painting.topk_filter_thres), dim=-1)
    drawn = noise.ragged(wanted.sum(1).tolist(), kept.values.shape[-1]).to(logits.device)
    best = torch.add(drawn, kept.values, alpha=1 / degree).argmax(-1, keepdim=True)
    return kept.indices.gather(-1, best)[:, 0]


def _gumbel(noise: RowNoise, like: Tensor) -> Tensor:
    return noise.gumbel(like.shape).to(like.device)
