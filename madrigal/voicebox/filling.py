"""The frames that are not given are made, and those that are given stay as they are."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from madrigal.data.collate import mask_from_lengths
from madrigal.data.tokens import PAD
from madrigal.engine.evaluating import eval_mode
from madrigal.engine.randomness import seeds_of
from madrigal.errors import UserError
from madrigal.layers.norm import Adapted
from madrigal.layers.products import is_compiled, packed
from madrigal.voicebox.config import VoiceBoxConfig
from madrigal.voicebox.model import VoiceBox, check_context
from madrigal.voicebox.solvers import Flow, Method, solve, times_asked

MOST_PREPARED = 256
"""Moments that are made beforehand at most: each is some kilobytes a layer."""
NOTHING_TO_MAKE = "There is nothing to make: give every row a length of one frame or more."


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
        raise UserError(NOTHING_TO_MAKE)
    shape = (len(lengths), int(lengths.max()), voicebox.config.dim_in)
    mask = mask_from_lengths(lengths, shape[1])
    start = _noise(voicebox, lengths, seed) if noise is None else noise.to(voicebox.device)
    for name, value in {"noise": start, "context": context}.items():
        if value is not None and value.shape != shape:
            raise UserError(f"The {name} has the shape {list(value.shape)}, and {list(shape)} is to be made.")
    given = _given(context, context_mask, mask)
    _check_led(voicebox.config, cond_scale, given, ids)
    told = {**given, "ids": None if ids is None else ids.to(voicebox.device), "mask": mask}
    made = mask & ~given["context_mask"] if given else mask
    with eval_mode(voicebox), packed(voicebox):
        flow = flow_under(voicebox, told, start, cond_scale, times_asked(way.method, way.steps, way.sway))
        solved = solve(flow, start, **way._asdict(), rtol=rtol, atol=atol, mask=made[..., None])
    x = torch.where(given["context_mask"][..., None], given["context"], solved.x) if given else solved.x
    return Filled(x.masked_fill(~mask[..., None], 0.0), lengths, solved.evaluations)


def _given(context: Tensor | None, context_mask: Tensor | None, mask: Tensor) -> dict[str, Tensor]:
    """Context and context_mask as the model is told them, or nothing where nothing is given."""
    check_context(context, context_mask)
    if context is None or context_mask is None:
        return {}
    given = context_mask.to(mask.device) & mask
    context = context.to(mask.device, torch.float32).masked_fill(~given[..., None], 0.0)
    return {"context": context, "context_mask": given} if bool(given.any()) else {}


def flow_under(
    voicebox: VoiceBox, told: dict[str, Any], noise: Tensor, cond_scale: float = 1.0, times: Tensor | None = None
) -> Flow:
    """The flow from `noise` [batch, frames, dim_in] under what the model is `told`, the keywords of its `condition`.

    `times` at which all rows will be asked together, if they are known, are prepared for at once.
    Where speech is given its flow is known; in training, too, such frames are on the straight way to it.
    """
    shape, context, given = tuple(noise.shape[:2]), told.get("context"), told.get("context_mask")
    condition = voicebox.guiding(shape, cond_scale, **told)
    moments: dict[float, Adapted] = {}
    if times is not None and _can_prepare(voicebox, len(times) * len(condition.frames)):
        moments = dict(zip(times.tolist(), voicebox.moments(times, condition), strict=True))
    known = None if context is None else context - noise

    def flow(x: Tensor, times: Tensor) -> Tensor:
        moment = moments.get(float(times[0])) if moments else None
        found = voicebox.guided_flow(x, times if moment is None else moment, condition, cond_scale)
        return found if known is None or given is None else torch.where(given[..., None], known, found)

    return flow


def _can_prepare(voicebox: VoiceBox, moments: int) -> bool:
    """Whether to prepare for so many moments, of all rows: on a CPU, for elsewhere it costs more to look at the time.

    A layer that is compiled would be compiled anew for each of its norms.
    """
    return voicebox.device.type == "cpu" and moments <= MOST_PREPARED and not is_compiled(voicebox)


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
    asked = Way(
        own.steps if steps is None else steps,
        own.method if method is None else method,
        own.sway if sway is None else sway,
    )
    if config.distilled_steps is not None and asked != own:
        raise UserError(
            f"This model was distilled to steps={own.steps}, method={own.method} and sway={own.sway:g}, and knows no "
            "other way: leave these out."
        )
    return asked


def check_guidance(config: VoiceBoxConfig, cond_scale: float) -> None:
    """Guidance needs a model that knows how it is without a condition."""
    if cond_scale != 1.0 and config.cond_drop_prob == 0:
        raise UserError(
            f"cond_scale is {cond_scale}, and this model never learned to go without a condition: leave it at 1, or "
            "train with cond_drop_prob=0.2."
        )


def _check_led(config: VoiceBoxConfig, cond_scale: float, given: dict[str, Tensor], ids: Tensor | None) -> None:
    """And a condition to be led by."""
    check_guidance(config, cond_scale)
    is_told = ids is not None and bool((ids != PAD).any())
    if cond_scale != 1.0 and not given and not is_told:
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
