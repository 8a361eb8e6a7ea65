"""Drawing the codes of a stage's last section, column by column, with a cache.

Rows may have prompts of different lengths and may end at different frames; a row draws what it would draw alone.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from madrigal.audiolm.packing import Stream
from madrigal.audiolm.recall import PromptMemory
from madrigal.audiolm.stage import StageTransformer
from madrigal.data.tokens import PAD
from madrigal.errors import UserError
from madrigal.layers.sampling import RowNoise, Sampling, draw, guided


@dataclass
class Drawn:
    """Codes [batch, frames, quantizers], PAD where nothing was drawn, and the `lengths` [batch], prompt included.

    Where a prompt is recalled, there is the `memory` of it.
    """

    codes: Tensor
    lengths: Tensor
    memory: PromptMemory | None = None

    def rows(self) -> list[Tensor]:
        """Each row's own codes [frames, quantizers]."""
        return [codes[:length] for codes, length in zip(self.codes, self.lengths.tolist(), strict=True)]


class Decoding:
    """One generation: the prompt's columns are read at once, then `advance` draws one column after another.

    `streams` are the given sections; the last of them is the prompt of what is drawn (no frames: from the start).
    `frames` [batch] is how long each row may get, prompt included. Where `may_end` is false the end is never drawn.
    What is recalled is the prompt, unless this is not the beginning and there is a `memory` of what was.
    """

    def __init__(
        self,
        stage: StageTransformer,
        streams: Sequence[Stream],
        frames: Tensor,
        *,
        sampling: Sampling,
        noise: RowNoise,
        context: tuple[Tensor, Tensor] | None = None,
        may_end: bool = True,
        memory: PromptMemory | None = None,
    ) -> None:
        self.stage, self.sampling, self.noise, self.memory = stage, sampling, noise, memory
        self.number = len(stage.layout.sections) - 1
        self.section = stage.layout.sections[self.number]
        self.may_end = may_end and self.section.has_end
        prompt = streams[-1]
        if bool((frames < prompt.lengths).any()):
            raise UserError(
                f"The prompt is {int((prompt.lengths - frames).max())} frames longer than what is asked for; "
                "ask for more seconds, or give a shorter prompt."
            )
        self.given = streams[0]
        self.limit, self.known = frames.to(stage.device), prompt.lengths.to(stage.device)
        size = (len(frames), int(frames.max()), self.section.pattern.quantizers)
        self.codes = torch.full(size, PAD, device=stage.device)
        self._rows = torch.arange(size[0], device=stage.device)
        self.codes[:, : prompt.codes.shape[1]] = prompt.codes.to(stage.device)[:, : size[1]]
        self.first_column, self.steps = self.section.pattern.begun(self.known), 0
        self._count()
        # Under guidance every row is there twice, with its condition and without.
        self.copies = 1 if context is None or sampling.cond_scale == 1.0 else 2
        self._read(streams, context)

    def _read(self, streams: Sequence[Stream], context: tuple[Tensor, Tensor] | None) -> None:
        stage = self.stage
        packed = stage.layout.pack(streams, open_last=True)
        # Rows of equal length need no mask, and the fast kernel takes none.
        mask = None if bool((packed.lengths == packed.lengths[0]).all()) else packed.mask
        ids = torch.cat([packed.ids] * self.copies)
        mask, positions = (None if t is None else torch.cat([t] * self.copies) for t in (mask, packed.positions))
        if context is not None and self.copies == 2:
            tokens, there = context
            context = torch.cat((tokens, tokens)), torch.cat((there, torch.zeros_like(there)))
        self.cache = stage.transformer.new_cache(len(ids))
        hidden = stage.hidden(ids, mask=mask, positions=positions, context=context, cache=self.cache)
        rows, last = torch.arange(len(ids), device=ids.device), (packed.lengths - 1).repeat(self.copies)
        self.hidden = hidden[rows, last]
        if self.sampling.recall and self.memory is None:
            first_head = stage.layout.first_head(self.number)
            self.memory = PromptMemory.of(hidden[: len(packed.ids)], packed, first_head)

    def _count(self) -> None:
        """How many steps all rows draw in, and how many any of them does: numbers here, for a step must not wait."""
        pattern = self.section.pattern
        open_frames = self.limit - self.known
        self.sure = int(open_frames.min())
        self.needed = int((pattern.columns(self.limit) - self.first_column).max())

    @property
    def is_done(self) -> bool:
        return self.steps >= self.needed

    @property
    def complete(self) -> Tensor:
        """[batch] frames that have all their codes."""
        return self.section.pattern.complete(self.first_column + self.steps).minimum(self.limit)

    @torch.inference_mode()
    def advance(self) -> None:
        """Draw one column in every row."""
        # inference_mode: a sixth of a step's time is what autograd notes of tensors that it will never need.
        if self.memory is not None:
            self.likeness = self.memory.likeness(self.hidden[: len(self.codes)])
        # All rows are at the same codebook, since prompts are whole frames: their columns differ, their steps do not.
        slots = [
            self._slot(*self.section.pattern.after(self.steps, slot)) for slot in range(self.section.pattern.width)
        ]
        ids = torch.stack(slots, 1)
        layout = self.stage.layout
        if len(slots) < layout.width:
            ids = torch.nn.functional.pad(ids, (0, layout.width - len(slots)), value=layout.nothing)
        if layout.along:
            ids[:, -1] = layout.beside(self.given, (self.first_column + self.steps)[:, None])[:, 0]
        positions = None
        if layout.has_clock:
            positions = layout.position(self.number, self.first_column + self.steps)[:, None]
        if self.copies == 2:
            ids, positions = ids.repeat(2, 1), None if positions is None else positions.repeat(2, 1)
        self.hidden = self.stage.hidden(ids[:, None], positions=positions, cache=self.cache)[:, 0]
        self.steps += 1

    def _slot(self, ahead: int, codebook: int) -> Tensor:
        """[batch] embedding rows of one slot, which is `ahead` frames after each row's prompt."""
        frame = self.known + ahead
        if 0 <= ahead < self.sure:
            drawn = self._draw(codebook, frame)
            if codebook or not self.may_end or not bool((drawn == self.section.codebook_size).any()):
                self.codes[self._rows, frame, codebook] = drawn
                return drawn + self.stage.layout.first_row(self.number, codebook)
            return self._put(codebook, frame, drawn, frame < self.limit)
        is_open = (frame >= self.known) & (frame < self.limit)
        drawn = torch.full_like(frame, PAD)
        if bool(is_open.any()):
            # A row that draws nothing here must not use up its noise: alone it would not either.
            drawn[is_open] = self._draw(codebook, frame, is_open)
        return self._put(codebook, frame, drawn, is_open)

    def _put(self, codebook: int, frame: Tensor, drawn: Tensor, is_open: Tensor) -> Tensor:
        """Write down what open rows have drawn; the others have what they had, or nothing."""
        is_end = is_open & (drawn == self.section.codebook_size)
        at = frame.clamp(0, self.codes.shape[1] - 1)
        there = self.codes[self._rows, at, codebook]
        self.codes[self._rows, at, codebook] = torch.where(is_open & ~is_end, drawn, there)
        if bool(is_end.any()):
            # The limit moves down to where a row ended; its other codebooks may still be behind.
            self.limit = torch.where(is_end, frame, self.limit)
            self._count()
        is_inside = (frame >= 0) & (frame < self.limit)
        value = self.codes[self._rows, at, codebook].masked_fill(~is_inside, PAD)
        return torch.where(
            value < 0, self.stage.layout.nothing, value + self.stage.layout.first_row(self.number, codebook)
        )

    def _draw(self, codebook: int, frame: Tensor, rows: Tensor | None = None) -> Tensor:
        """A code for each row, or for some of them (bool [batch])."""
        head = self.stage.layout.first_head(self.number) + codebook
        logits: Tensor = self.stage.heads[head](self.hidden).float()
        if self.copies == 2:
            with_it, without = logits.chunk(2)
            logits = guided(with_it, without, self.sampling.cond_scale)
        if self.memory is not None:
            share = self.sampling.recall
            logits = self.memory.mixed(logits, self.likeness, head, self.section.codebook_size, share)
        if not self.may_end:
            logits = logits[:, : self.section.codebook_size]
        history = self._history(codebook, frame)
        if rows is None:
            return draw(logits, self.sampling, self.noise, history)
        history = None if history is None else history[rows]
        return draw(logits[rows], self.sampling, self.noise.of(rows), history)

    def _history(self, codebook: int, frame: Tensor) -> Tensor | None:
        """[batch, window] the codes that this codebook has drawn lately."""
        if self.sampling.repetition_penalty == 1.0:
            return None
        back = torch.arange(self.sampling.repetition_window, 0, -1, device=frame.device)
        at = frame[:, None] - back
        codes = self.codes[..., codebook].gather(1, at.clamp(0, self.codes.shape[1] - 1))
        return codes.masked_fill(at < 0, PAD)

    def result(self) -> Drawn:
        longest = int(self.limit.max()) if len(self.limit) else 0
        codes = self.codes[:, :longest]
        frame = torch.arange(longest, device=codes.device)
        codes = codes.masked_fill((frame >= self.limit[:, None])[..., None], PAD)
        return Drawn(codes, self.limit.clone(), self.memory)


def decode(decoding: Decoding) -> Drawn:
    """Draw until every row has ended or is as long as it may be."""
    while not decoding.is_done:
        decoding.advance()
    return decoding.result()


def decode_in_chunks(decoding: Decoding, frames: int) -> Iterator[Tensor]:
    """Yield codes [batch, up to `frames`, quantizers] as soon as all rows have them; for rows of one length."""
    given = int(decoding.known.max())
    while not decoding.is_done:
        decoding.advance()
        ready = int(decoding.complete.min())
        if ready - given >= frames or (decoding.is_done and ready > given):
            yield decoding.codes[:, given:ready]
            given = ready
