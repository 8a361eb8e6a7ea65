"""Paths through a text in time: every symbol in its order, each for one frame or more.

`all_paths` adds up the probability of all paths (forward and backward), which is what an aligner learns from;
`best_path` finds the most probable one (Viterbi). Both go through the frames one by one and through rows and symbols at
once.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from madrigal.data.collate import mask_from_lengths
from madrigal.errors import UserError

IMPOSSIBLE = -1e30
"""The logarithm of no probability; two real infinities have no difference."""


def check_lengths(symbols: Tensor, frames: Tensor, names: Sequence[str] | None = None) -> None:
    """A path needs a frame for each symbol, and a symbol."""
    for row, (count, time) in enumerate(zip(symbols.tolist(), frames.tolist(), strict=True)):
        if not 1 <= count <= time:
            name = f"Row {row}" if names is None else names[row]
            raise UserError(
                f"{name} has {time} frames and its text {count} symbols, and each needs a frame: check that the text "
                "is the recording's own."
            )


class Paths(NamedTuple):
    """log of the probability of all paths together, [batch]; and, of each frame, which share of it goes through each
    symbol, [batch, time, symbols]: the gradient of the former by the scores."""

    total: Tensor
    shares: Tensor


@torch.no_grad()
def all_paths(scores: Tensor, symbols: Tensor, frames: Tensor, names: Sequence[str] | None = None) -> Paths:
    """The paths through scores [batch, time, symbols], which say how well a symbol fits a frame (logarithms).

    `symbols` and `frames` [batch] are lengths; `names` are those of the recordings, for the sentence that refuses one.
    """
    check_lengths(symbols, frames, names)
    by_time = _hidden_where_padded(scores, symbols).transpose(0, 1).contiguous()
    forward, backward = _forward(by_time), _backward(by_time, symbols, frames)
    rows = torch.arange(len(symbols), device=symbols.device)
    total = forward[frames - 1, rows, symbols - 1]
    shares = (forward + backward - total[:, None]).clamp(max=0.0).exp()
    return Paths(total, (shares * mask_from_lengths(frames, len(by_time)).T[..., None]).transpose(0, 1))


def _hidden_where_padded(log_probs: Tensor, symbols: Tensor) -> Tensor:
    real = mask_from_lengths(symbols, log_probs.shape[2])
    return log_probs.clamp(min=IMPOSSIBLE).masked_fill(~real[:, None], IMPOSSIBLE)


def _forward(scores: Tensor) -> Tensor:
    """Scores [time, batch, symbols] -> log of all paths from the first symbol up to here, of the same shape."""
    found = torch.full_like(scores, IMPOSSIBLE)
    found[0, :, 0] = scores[0, :, 0]
    stay = found[0]
    for time in range(1, len(scores)):
        here = found[time]
        here[:, 0] = stay[:, 0]
        torch.logaddexp(stay[:, 1:], stay[:, :-1], out=here[:, 1:])
        here += scores[time]
        stay = here
    return found


def _backward(scores: Tensor, symbols: Tensor, frames: Tensor) -> Tensor:
    """Log of all paths from here, without this frame, to the last symbol in a row's last frame."""
    found = torch.full_like(scores, IMPOSSIBLE)
    rows = torch.arange(len(symbols), device=symbols.device)
    after = torch.full_like(scores[0], IMPOSSIBLE)
    ending = {time: rows[frames == time] for time in set(frames.tolist())}
    for time in range(len(scores) - 1, -1, -1):
        here = found[time]
        here[:, -1] = after[:, -1]
        torch.logaddexp(after[:, :-1], after[:, 1:], out=here[:, :-1])
        if (done := ending.get(time + 1)) is not None:
            here[done, symbols[done] - 1] = 0.0
        after = here + scores[time]
    return found


@torch.no_grad()
def best_path(log_probs: Tensor, symbols: Tensor, frames: Tensor, names: Sequence[str] | None = None) -> Tensor:
    """Durations int64 [batch, symbols] of the most probable path, 0 behind a row's symbols; they add up to `frames`.

    `names` are those of the recordings, for the sentence that refuses one. Among equals a symbol begins as late as it
    can.
    """
    check_lengths(symbols, frames, names)
    scores = _hidden_where_padded(log_probs.float(), symbols).transpose(0, 1).cpu().numpy()
    time, batch, size = scores.shape
    moved = np.zeros((time, batch, size), dtype=bool)
    best = np.full((batch, size), IMPOSSIBLE, dtype=np.float64)
    best[:, 0] = scores[0, :, 0]
    for now in range(1, time):
        np.greater(best[:, :-1], best[:, 1:], out=moved[now, :, 1:])
        # The right side is read whole before the left is written.
        best[:, 1:] = np.maximum(best[:, 1:], best[:, :-1])
        best += scores[now]
    durations = np.zeros((batch, size), dtype=np.int64)
    rows, lengths = np.arange(batch), frames.cpu().numpy()
    place = symbols.cpu().numpy() - 1
    for now in range(time - 1, -1, -1):
        real = now < lengths
        durations[rows, place] += real
        # A symbol needs a frame, whatever the scores say: with as many frames left as symbols, every frame moves on.
        place = np.maximum(place - (real & (moved[now, rows, place] | (now <= place))), 0)
    return torch.from_numpy(durations).to(log_probs.device)


def log_prior(symbols: Tensor, frames: Tensor, size: tuple[int, int]) -> Tensor:
    """How probable each symbol is at each frame before anything is heard, log [batch, frames, symbols] of `size`.

    Beta-binomial: near the diagonal, wider in the middle than at the ends. Its parameters are whole numbers, so that a
    table of the logarithms of factorials says it all.
    """
    time, count = size
    table = _log_factorials(2 * (time + count) + 2).to(symbols.device)
    last = symbols[:, None, None] - 1
    place = torch.arange(count, device=symbols.device)[None, None]
    now = torch.arange(1, time + 1, device=symbols.device)[None, :, None]
    left = (frames[:, None, None] - now + 1).clamp(min=1)
    rest = (last - place).clamp(min=0)
    choose = table[last] - table[place] - table[rest]
    joint = table[place + now - 1] + table[rest + left - 1] - table[last + now + left - 1]
    alone = table[now - 1] + table[left - 1] - table[now + left - 1]
    return choose + joint - alone


_TABLES: dict[str, Tensor] = {}


def _log_factorials(size: int) -> Tensor:
    """log n! for n below `size`; it grows and is kept."""
    if "n" not in _TABLES or len(_TABLES["n"]) < size:
        _TABLES["n"] = torch.lgamma(torch.arange(1, 2 * size + 1, dtype=torch.float64)).float()
    return _TABLES["n"]
