"""Going on for longer than a stage was trained on: window after window, each beginning with the end of the last."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from madrigal.audiolm.decoding import Drawn
from madrigal.audiolm.packing import Stream
from madrigal.audiolm.recall import PromptMemory
from madrigal.data.tokens import PAD


@dataclass(frozen=True)
class Window:
    """What each row does in this round: its frames from `starts` on are the prompt, and it may go on to `stops`.

    From the second round on that prompt was drawn, and the `memory` is of the true one.
    """

    prompt: Stream
    starts: list[int]
    stops: list[int]
    number: int
    memory: PromptMemory | None = None

    @property
    def limits(self) -> Tensor:
        """[batch] the length of each row's window."""
        return torch.tensor([stop - start for start, stop in zip(self.starts, self.stops, strict=True)])


def extend(
    rows: list[Tensor],
    totals: list[int],
    window: int | None,
    draw: Callable[[Window], Drawn],
    *,
    unit: int = 1,
    memory: PromptMemory | None = None,
) -> tuple[list[Tensor], PromptMemory | None]:
    """Codes [frames, quantizers] of every row, drawn on to `totals` frames or to where a row ends.

    A row's windows depend on its own length alone. Each begins half a window before the row's end, at a multiple of
    `unit` frames. Where the prompt is recalled its memory is returned too; a `memory` that is given stays.
    """
    rows, totals = list(rows), list(totals)
    number = 0
    while any(len(row) < total for row, total in zip(rows, totals, strict=True)):
        starts = [first_of(len(row), total, window, unit) for row, total in zip(rows, totals, strict=True)]
        stops = [total if window is None else min(total, s + window) for s, total in zip(starts, totals, strict=True)]
        stops = [max(stop, len(row)) for stop, row in zip(stops, rows, strict=True)]
        prompt = streamed([row[start:] for row, start in zip(rows, starts, strict=True)])
        drawn = draw(Window(prompt, starts, stops, number, memory))
        memory = drawn.memory
        for i, (new, start, stop) in enumerate(zip(drawn.rows(), starts, stops, strict=True)):
            rows[i] = torch.cat((rows[i][:start], new.to(rows[i].device)))
            if len(rows[i]) < stop:
                totals[i] = len(rows[i])  # it said that here is its end
        number += 1
    return rows, memory


def first_of(length: int, total: int, window: int | None, unit: int = 1) -> int:
    """Where the window begins of a row that has `length` of `total` frames: a multiple of `unit`."""
    if window is None or total <= window or length < window // 2:
        return 0
    start = min(length - window // 2, total - window // 2)
    return start - start % unit


def streamed(rows: list[Tensor]) -> Stream:
    """Rows [frames, quantizers] of any lengths as one stream."""
    lengths = torch.tensor([len(row) for row in rows])
    return Stream(pad_sequence(rows, batch_first=True, padding_value=PAD), lengths)
