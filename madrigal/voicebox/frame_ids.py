"""Ids of any rate to ids of frames: each frame has the id that sounds in its middle, and no id is blurred."""

import torch
from torch import Tensor

from madrigal.data.collate import mask_from_lengths
from madrigal.data.tokens import PAD
from madrigal.errors import UserError
from madrigal.voicebox.expand import expand


def spread(tokens: Tensor, frames: Tensor) -> Tensor:
    """Tokens [batch, time], padded with -1, evenly over rows of `frames` [batch] -> ids [batch, most frames]."""
    counts = (tokens != PAD).sum(1)
    if bool(((counts == 0) & (frames > 0)).any()):
        raise UserError("A row has frames and no ids at all: give it some.")
    places = torch.arange(int(frames.max()), device=tokens.device)
    # Whole numbers all through, so that a row is spread the same in any batch.
    which = (2 * places + 1) * counts[:, None] // (2 * frames[:, None]).clamp(min=1)
    ids = tokens.gather(1, which.clamp(max=tokens.shape[1] - 1))
    return ids.masked_fill(~mask_from_lengths(frames, len(places)), PAD)


def fitted(ids: Tensor, size: int) -> Tensor:
    """Ids [batch, frames] cut, or extended by frames whose id is not known, to `size` frames."""
    return torch.nn.functional.pad(ids, (0, size - ids.shape[1]), value=PAD) if ids.shape[1] < size else ids[:, :size]


def at_frames(
    frames: Tensor,
    size: int,
    *,
    ids: Tensor | None = None,
    symbols: Tensor | None = None,
    durations: Tensor | None = None,
    tokens: Tensor | None = None,
) -> Tensor | None:
    """The ids of rows of `frames` [batch], [batch, size], from the one kind that is given; None without any.

    `ids` are there already, `symbols` have `durations` in frames, `tokens` are spread evenly.
    """
    if sum(each is not None for each in (ids, symbols, tokens)) > 1:
        raise UserError("Give one of ids, phoneme_ids and semantic_token_ids.")
    if symbols is not None:
        if durations is None and symbols.shape[1] != size:
            raise UserError(
                f"There are {symbols.shape[1]} phoneme_ids for {size} frames: give their durations in frames, which an "
                "aligner finds (`madrigal align`)."
            )
        ids = symbols if durations is None else expand(symbols, durations)
        if durations is not None and not torch.equal(durations.clamp(min=0).sum(1), frames.to(durations.device)):
            raise UserError("The durations of a row do not add up to its frames: align the recordings at these frames.")
    if tokens is not None:
        ids = spread(tokens, frames.to(tokens.device))
    return None if ids is None else fitted(ids, size).to(frames.device)
