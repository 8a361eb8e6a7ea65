"""Ids of any rate to ids of frames: each frame has the id that sounds in its middle, and no id is blurred."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from madrigal.data.audio import resample
from madrigal.data.collate import mask_from_lengths
from madrigal.data.tokens import PAD
from madrigal.errors import UserError
from madrigal.voicebox.expand import at_frame_rate, expand


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


def tokenised(waves: Tensor, lengths: Tensor, frames: Tensor, *, wav2vec: Any, features: Any) -> Tensor:
    """Ids [batch, most frames] of waves [batch, samples], by a semantic tokenizer of sound."""
    rate = wav2vec.target_sample_hz
    heard = resample(waves, features.sample_rate, rate)
    tokens, counts = wav2vec.tokenize(heard, lengths * rate // features.sample_rate)
    ids = at_frame_rate(tokens, counts, wav2vec.frame_rate, features.sample_rate / features.hop)
    # The last token may reach over the last whole frame.
    size = int(frames.max())
    return _of_size(ids, size).masked_fill(~mask_from_lengths(frames.to(ids.device), size), PAD)


def known_frames(ids: Tensor) -> Tensor:
    """How many frames [batch] ids [batch, frames] say something of: up to the last one that is known."""
    places = torch.arange(1, ids.shape[1] + 1, device=ids.device)
    return (places * (ids != PAD)).amax(1) if ids.shape[1] else ids.new_zeros(len(ids))


def fitted(ids: Tensor, frames: Tensor, size: int, counts: Tensor | None = None) -> Tensor:
    """Ids [batch, time] of rows of `frames` [batch] as ids [batch, size].

    `counts` [batch] says how many ids a row has; without it a row may be padded with any id, as far as the longest
    goes. A frame more or less may be: who rounds a recording up and who rounds it down differ by one.
    """
    frames, known = frames.to(ids.device), known_frames(ids)
    most = frames if counts is not None else torch.full_like(frames, size)
    counts = torch.full_like(frames, ids.shape[1]) if counts is None else counts.to(ids.device)
    wrong = (counts + 1 < frames) | (known > most + 1)
    if bool(wrong.any()):
        row = int(wrong.long().argmax())
        has = int(counts[row] if counts[row] < frames[row] else known[row])
        raise UserError(
            f"A row has {has} ids and {int(frames[row])} frames: give each frame an id (-1 where none is known), or "
            "give phoneme_ids and their durations in frames, which an aligner finds (`madrigal align`)."
        )
    return _of_size(ids, size)


def at_frames(
    frames: Tensor,
    size: int,
    *,
    ids: Tensor | None = None,
    symbols: Tensor | None = None,
    durations: Tensor | None = None,
    tokens: Tensor | None = None,
    counts: Tensor | None = None,
) -> Tensor | None:
    """The ids of rows of `frames` [batch], [batch, size], from the one kind that is given; None without any.

    `ids` are there already, `symbols` have `durations` in frames (without any they are ids), `tokens` are spread
    evenly. `counts` [batch] says how many ids or symbols of a row are real.
    """
    if sum(each is not None for each in (ids, symbols, tokens)) > 1:
        raise UserError("Give one of ids, phoneme_ids and semantic_token_ids.")
    if symbols is not None and durations is not None:
        if not torch.equal(durations.clamp(min=0).sum(1), frames.to(durations.device)):
            raise UserError("The durations of a row do not add up to its frames: align the recordings at these frames.")
        ids, counts = expand(symbols, durations), None
    elif symbols is not None:
        ids = symbols
    if tokens is not None:
        ids, counts = spread(tokens, frames.to(tokens.device)), None
    return None if ids is None else fitted(ids, frames, size, counts).to(frames.device)


def _of_size(ids: Tensor, size: int) -> Tensor:
    """Cut, or extended by frames whose id is not known."""
    return F.pad(ids[:, :size], (0, max(0, size - ids.shape[1])), value=PAD)
