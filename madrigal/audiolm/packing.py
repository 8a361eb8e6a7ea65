"""Several streams of tokens in one row: [start, semantic …, start, coarse …], packed, so that padding is at the end.

Every code of every codebook, every end and every start has a row of its own in one embedding table, and every codebook
has a head of its own. Padding is on the right alone, so a causal transformer needs no mask to train on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from madrigal.audiolm.patterns import Pattern
from madrigal.data.tokens import PAD


@dataclass(frozen=True)
class Section:
    """One stream: codes of `pattern.quantizers` codebooks of `codebook_size`, perhaps with an end.

    `ticks` is how far a column moves the clock that all sections share: codes of the same instant then stand at the
    same position, whatever section they are in. Without a clock (0) positions are simply counted.
    """

    name: str
    pattern: Pattern
    codebook_size: int
    has_end: bool
    ticks: int = 0

    def classes(self, codebook: int) -> int:
        """The first codebook may also say that here is the end."""
        return self.codebook_size + (1 if self.has_end and codebook == 0 else 0)


@dataclass(frozen=True)
class Stream:
    """The tokens of one section: codes [batch, frames, quantizers], PAD after `lengths` [batch] frames.

    `ends` [batch] says in which rows the last frame is the true end of the utterance.
    """

    codes: Tensor
    lengths: Tensor
    ends: Tensor | None = None


@dataclass(frozen=True)
class Packed:
    """Rows ready for a transformer, [batch, columns, width]; in `targets` PAD is what nothing is learned from.

    Slot (row, column, slot) has the embedding `ids`, and the column's hidden state predicts `targets` by head `heads`.
    """

    ids: Tensor
    targets: Tensor
    heads: Tensor
    lengths: Tensor
    positions: Tensor | None

    @property
    def mask(self) -> Tensor:
        """[batch, columns], True where a row has something."""
        return torch.arange(self.ids.shape[1], device=self.ids.device) < self.lengths[:, None]


class Layout:
    """The numbers of embedding rows and heads for a stage's sections, and the way from streams to packed rows.

    With `along` every column of the last section has one slot more, for the code of the first section that belongs to
    what the column predicts: nobody has to look for it. Both need a place on the clock.
    """

    def __init__(self, sections: Sequence[Section], *, has_clock: bool = True, along: bool = False) -> None:
        self.sections = tuple(sections)
        self.along = along
        self.width = max(section.pattern.width for section in sections) + along
        self.has_clock = has_clock and all(section.ticks for section in sections)

    @cached_property
    def head_classes(self) -> list[int]:
        """The number of classes of each head: the codebooks of the first section, then of the second."""
        return [section.classes(k) for section in self.sections for k in range(section.pattern.quantizers)]

    @cached_property
    def _first_rows(self) -> list[int]:
        rows, row = [], len(self.sections)  # the starts come first
        for classes in self.head_classes:
            rows.append(row)
            row += classes
        return rows

    @cached_property
    def nothing(self) -> int:
        """The embedding row of a slot that holds nothing."""
        return self._first_along + (self.sections[0].codebook_size if self.along else 0)

    @property
    def _first_along(self) -> int:
        """The embedding row of code 0 of the first section, where it stands beside what is predicted."""
        return self._first_rows[-1] + self.head_classes[-1]

    @property
    def num_rows(self) -> int:
        return self.nothing + 1

    def first_head(self, section: int) -> int:
        """The number of a section's first head."""
        return sum(earlier.pattern.quantizers for earlier in self.sections[:section])

    def first_row(self, section: int, codebook: int) -> int:
        """The embedding row of a codebook's code 0."""
        return self._first_rows[self.first_head(section) + codebook]

    def rows(self, section: int, codes: Tensor, codebooks: Tensor) -> Tensor:
        """Embedding rows of codes of the given codebooks of a section; PAD is nothing."""
        first = torch.tensor(self._first_rows, device=codes.device)[self.first_head(section) + codebooks]
        return torch.where(codes < 0, self.nothing, codes + first)

    def position(self, section: int, column: Tensor) -> Tensor:
        """Where a column of a section stands on the shared clock; a start stands at 0."""
        return 1 + column * self.sections[section].ticks

    def pack(self, streams: Sequence[Stream], *, open_last: bool = False) -> Packed:
        """Put the streams of the first `len(streams)` sections into rows.

        With `open_last` the last section is a prompt: only columns whose codes are all given are put down, and the
        hidden state of a row's last column predicts what comes next.
        """
        batch, device = streams[0].codes.shape[0], streams[0].codes.device
        counts = [self._columns(s, stream, open_last) for s, stream in enumerate(streams)]
        lengths = torch.stack(counts).sum(0) + len(streams)
        size = (batch, int(lengths.max()), self.width)
        ids = torch.full(size, self.nothing, device=device)
        targets, heads = torch.full(size, PAD, device=device), torch.zeros(size, dtype=torch.long, device=device)
        positions = torch.zeros(size[:2], dtype=torch.long, device=device) if self.has_clock else None
        at = torch.zeros(batch, dtype=torch.long, device=device)
        for s, (stream, count) in enumerate(zip(streams, counts, strict=True)):
            rows = torch.arange(batch, device=device)
            ids[rows, at, 0] = s
            self._put(s, stream, count, at, ids, targets, heads, positions)
            if self.along and s == len(self.sections) - 1:
                column = torch.arange(-1, int(count.max()), device=device).expand(batch, -1)
                b, c = (column < count[:, None]).nonzero(as_tuple=True)
                ids[b, at[b] + c, -1] = self.beside(streams[0], column)[b, c]
            at = at + 1 + count
        return Packed(ids, targets, heads, lengths, positions)

    def beside(self, first: Stream, column: Tensor) -> Tensor:
        """Embedding rows of the codes of the first section that belong to what columns [batch, n] of the last predict.

        The start, which predicts column 0, is column -1.
        """
        at = (column + 1) * self.sections[-1].ticks // self.sections[0].ticks
        codes = torch.nn.functional.pad(first.codes[..., 0], (0, 1)).gather(1, at.clamp(max=first.codes.shape[1]))
        return torch.where(at < first.lengths[:, None], codes + self._first_along, self.nothing)

    def _columns(self, s: int, stream: Stream, is_open: bool) -> Tensor:
        pattern = self.sections[s].pattern
        is_prompt = is_open and s == len(self.sections) - 1
        return pattern.begun(stream.lengths) if is_prompt else pattern.columns(stream.lengths)

    def _put(
        self,
        s: int,
        stream: Stream,
        count: Tensor,
        at: Tensor,
        ids: Tensor,
        targets: Tensor,
        heads: Tensor,
        positions: Tensor | None,
    ) -> None:
        """Write one section: its codes from column `at + 1` on, and as targets one column before."""
        section = self.sections[s]
        width = section.pattern.width
        ends = torch.zeros_like(stream.lengths, dtype=torch.bool) if stream.ends is None else stream.ends
        # One column more than there are codes: the end of the first codebook is only a target.
        column = torch.arange(int(count.max()) + 1, device=ids.device).expand(len(count), -1)
        frames, codebooks = section.pattern.place(column)
        codes = with_end(stream, section, ends)
        inside = (frames >= 0) & (frames < codes.shape[1])
        row = torch.arange(len(count), device=ids.device)[:, None, None]
        values = codes[row, frames.clamp(0, codes.shape[1] - 1), codebooks].masked_fill(~inside, PAD)
        there = column < count[:, None]
        is_end = values == section.codebook_size
        written = self.rows(s, values.masked_fill(is_end, PAD), codebooks)
        b, c = there.nonzero(as_tuple=True)
        ids[b, at[b] + 1 + c, :width] = written[b, c]
        if positions is not None:
            positions[b, at[b] + 1 + c] = self.position(s, c)
        # The column before predicts these; the one after the last code predicts an end or nothing.
        b, c = (column <= count[:, None]).nonzero(as_tuple=True)
        goal = values[b, c]
        targets[b, at[b] + c, :width] = goal
        heads[b, at[b] + c, :width] = self.first_head(s) + codebooks[b, c]


def with_end(stream: Stream, section: Section, ends: Tensor) -> Tensor:
    """Codes [batch, frames + 1, quantizers] with PAD after each row's length, and there an end where it is true."""
    codes = torch.nn.functional.pad(stream.codes, (0, 0, 0, 1), value=PAD)
    frame = torch.arange(codes.shape[1], device=codes.device)
    codes = codes.masked_fill((frame >= stream.lengths[:, None])[..., None], PAD)
    if section.has_end:
        at_end = (frame == stream.lengths[:, None]) & ends[:, None]
        codes[..., 0] = torch.where(at_end, section.codebook_size, codes[..., 0])
    return codes
