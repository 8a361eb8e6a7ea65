"""The frames that are not given are made, and those that are given stay as they are."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from madrigal.data.collate import mask_from_lengths
from madrigal.engine.evaluating import eval_mode
from madrigal.engine.randomness import seeds_of
from madrigal.errors import UserError
from madrigal.voicebox.config import VoiceBoxConfig
from madrigal.voicebox.model import VoiceBox
from madrigal.voicebox.solvers import Method, solve


class Filled(NamedTuple):
    """features [batch, frames, dim_in], zero behind a row's end; lengths [batch]; calls of the network on the batch."""

    features: Tensor
    lengths: Tensor
    evaluations: int

    def rows(self) -> list[Tensor]:
        """The features of every row, [frames, dim_in]."""
        return [row[:length] for row, length in zip(self.features, self.lengths.tolist(), strict=True)]


@torch.no_grad()
def fill(
    voicebox: VoiceBox,
    lengths: Tensor | Sequence[int],
    *,
    context: Tensor | None = None,
    context_mask: Tensor | None = None,
    ids: Tensor | None = None,
    steps: int | None = None,
    method: Method | None = None,
    sway: float | None = None,
    cond_scale: float = 1.0,
    sigma: float = 0.0,
    seed: int | Sequence[int] | None = 0,
    noise: Tensor | None = None,
    rtol: float = 1e-3,
    atol: float = 1e-3,
) -> Filled:
    """Make what `context_mask` [batch, frames] (True = given) leaves of rows of `lengths` frames.

    `context` [batch, frames, dim_in], `ids` [batch, frames] with -1 where an id is not known. Row r draws its noise by
    `seed` + r (or by its own of a list of seeds; None: another one each time) and by nothing else, or takes it from
    `noise` [batch, frames, dim_in]. With guidance (a `cond_scale` other than 1) every call has twice the rows.
    `steps`, `method` and `sway` are 8, midpoint and 0 unless given, and of a distilled model what it was distilled to.
    """
    way = way_of(voicebox.config, steps, method, sway)
    lengths = torch.as_tensor(lengths, dtype=torch.int64, device=voicebox.device)
    if not len(lengths) or int(lengths.min()) < 1:
        raise UserError("There is nothing to make: give every row a length of one frame or more.")
    size = int(lengths.max())
    mask = mask_from_lengths(lengths, size)
    start = _noise(voicebox, lengths, seed) if noise is None else noise.to(voicebox.device)
    given = torch.zeros_like(mask)
    if context is not None and context_mask is not None:
        given = context_mask.to(voicebox.device) & mask
        context = context.to(voicebox.device, torch.float32).masked_fill(~given[..., None], 0.0)
        if context.shape != start.shape:
            raise UserError(f"The context has the shape {list(context.shape)}, and {list(start.shape)} is to be made.")
    check_guidance(voicebox, cond_scale, given, ids)
    shape, is_given = (len(lengths), size), bool(given.any())
    known = context if is_given else None
    with eval_mode(voicebox):
        condition = voicebox.condition(
            shape,
            context=known,
            context_mask=given if is_given else None,
            ids=None if ids is None else ids.to(voicebox.device),
            mask=mask,
        )
        nothing = voicebox.condition(shape, mask=mask)

        def flow(x: Tensor, times: Tensor) -> Tensor:
            found = voicebox.guided_flow(x, times, condition, nothing, cond_scale)
            # Where speech is given its flow is known; in training, too, such frames are on the way to it.
            return found if known is None else torch.where(given[..., None], known - (1 - sigma) * start, found)

        solved = solve(flow, start, **way._asdict(), rtol=rtol, atol=atol, mask=(mask & ~given)[..., None])
    made = solved.x if known is None else torch.where(given[..., None], known, solved.x)
    return Filled(made.masked_fill(~mask[..., None], 0.0), lengths, solved.evaluations)


class Way(NamedTuple):
    """How a flow is followed; see `solvers.solve`."""

    steps: int
    method: Method
    sway: float


def way_of(
    config: VoiceBoxConfig, steps: int | None = None, method: Method | None = None, sway: float | None = None
) -> Way:
    """What was asked for, completed; a distilled model knows one way only."""
    own = Way(config.distilled_steps or 8, "euler" if config.distilled_steps else "midpoint", config.distilled_sway)
    asked = Way(steps or own.steps, method or own.method, own.sway if sway is None else sway)
    if config.distilled_steps is not None and asked != own:
        raise UserError(
            f"This model was distilled to steps={own.steps}, method={own.method} and sway={own.sway:g}, and knows no "
            "other way: leave these out."
        )
    return asked


def check_guidance(voicebox: VoiceBox, cond_scale: float, given: Tensor, ids: Tensor | None) -> None:
    """Guidance needs a model that knows how it is without a condition, and a condition to be led by."""
    if cond_scale == 1.0:
        return
    if voicebox.config.cond_drop_prob == 0:
        raise UserError(
            f"cond_scale is {cond_scale}, and this model never learned to go without a condition: leave it at 1, or "
            "train with cond_drop_prob=0.2."
        )
    if ids is None and not bool(given.any()):
        raise UserError(f"cond_scale is {cond_scale}, and there are neither ids nor a prompt to be led by: give some.")


def _noise(voicebox: VoiceBox, lengths: Tensor, seed: int | Sequence[int] | None) -> Tensor:
    """[batch, frames, dim_in], each row by a generator of its own, whatever stands beside it."""
    if seed is None:
        seed = int(torch.randint(2**31, ()))
    size, dim = int(lengths.max()), voicebox.config.dim_in
    noise = torch.zeros(len(lengths), size, dim)
    for row, one in enumerate(seeds_of(seed, len(lengths))):
        length = int(lengths[row])
        noise[row, :length] = torch.randn(length, dim, generator=torch.Generator().manual_seed(one))
    return noise.to(voicebox.device)
