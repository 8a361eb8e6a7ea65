"""From semantic tokens to sound: coarse codes, then fine codes, then the codec, in the voice of a prompt.

The second half of AudioLM, and of speech from text: whoever makes the semantic tokens, these stages say them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, floor
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from madrigal.audiolm.decoding import Drawn, decode_in_chunks
from madrigal.audiolm.draws import Draws, seeds_for
from madrigal.audiolm.recall import PromptMemory
from madrigal.audiolm.stage import StageTransformer
from madrigal.audiolm.tokens import heard_at
from madrigal.audiolm.windows import Window, extend, first_of, streamed
from madrigal.audiolm.wrappers import CoarseTransformerWrapper, FineTransformerWrapper
from madrigal.data.audio import read
from madrigal.errors import UserError
from madrigal.tokenizers.repeats import unique_consecutive


@dataclass(frozen=True)
class Prompt:
    """The rows' semantic ids [time] and codes [frames, quantizers]; empty where there is no prompt."""

    ids: list[Tensor]
    codes: list[Tensor]


@dataclass(frozen=True)
class AcousticStages:
    """The coarse stage and (where it does not draw all codebooks) the fine one, with the codec and the tokenizer.

    Rows are semantic ids [time, 1] and codes [frames, quantizers], lists of several lengths.
    """

    coarse_stage: CoarseTransformerWrapper
    fine_stage: FineTransformerWrapper | None
    codec: Any
    tokenizer: Any

    @property
    def device(self) -> torch.device:
        return self.coarse_stage.transformer.device

    @property
    def num_coarse(self) -> int:
        return self.coarse_stage.transformer.num_quantizers

    @property
    def quantizers(self) -> int:
        """Codebooks that the stages draw."""
        return self.num_coarse + (0 if self.fine_stage is None else self.fine_stage.transformer.num_quantizers)

    @property
    def frames_per_semantic(self) -> float | None:
        """None where tokens without repeats have no durations: there the coarse stage says where the end is."""
        return self.coarse_stage.transformer.config.frames_per_semantic

    @property
    def semantic_rate(self) -> float:
        """Semantic tokens a second, before repeats are dropped."""
        if self.tokenizer is not None:
            return float(self.tokenizer.frame_rate)
        return float(self.codec.frame_rate / (self.frames_per_semantic or 2.0))

    # The prompt.

    def prompt_of_file(self, path: str | Path, seconds: float | None = None) -> Prompt:
        """One row's prompt from an audio file of any rate and channels, or from its first `seconds`."""
        waves = [read(path, sample_rate=rate, channels=channels) for rate, channels in self._heard_at()]
        return self._prompt(waves, seconds)

    def prompt_of_wave(self, wave: Tensor, rate: int | None, seconds: float | None = None) -> Prompt:
        """One row's prompt from a wave [samples] or [channels, samples]; without a `rate` it has that of the tools."""
        return self._prompt([heard_at(wave, rate, hz, channels) for hz, channels in self._heard_at()], seconds)

    def no_prompt(self, rows: int) -> Prompt:
        nothing = torch.empty(0, self.quantizers, dtype=torch.long, device=self.device)
        return Prompt([torch.empty(0, dtype=torch.long, device=self.device)] * rows, [nothing] * rows)

    def _heard_at(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Rate and channels that the tokenizer hears, and the codec."""
        if self.tokenizer is None:
            raise UserError("A prompt of sound needs the semantic tokenizer: give it as wav2vec.")
        return (self.tokenizer.target_sample_hz, 1), (self.codec.target_sample_hz, self.codec.channels)

    def _prompt(self, waves: list[Tensor], seconds: float | None) -> Prompt:
        """From the wave [channels, samples] at both rates, cut to whole frames of both."""
        for_semantic, for_codec = (wave.to(self.device) for wave in waves)
        rate, codec_rate = self.tokenizer.target_sample_hz, self.codec.target_sample_hz
        step = max(self.tokenizer.downsample_factor / rate, 1 / self.codec.frame_rate)
        length = for_codec.shape[-1] / codec_rate
        count = int((length if seconds is None else min(length, seconds)) / step + 1e-6)
        if count == 0:
            raise UserError(f"The prompt is shorter than {step:g} seconds, one token; give a longer one.")
        ids, lengths = self.tokenizer.tokenize(for_semantic[..., : round(count * step * rate)])
        if self.coarse_stage.transformer.config.unique_consecutive:
            ids, lengths = unique_consecutive(ids, lengths)
        codes = self.codec.tokenize(for_codec[None][..., : round(count * step * codec_rate)])
        return Prompt([ids[0, : lengths[0]]], [codes[0, :, : self.quantizers]])

    # The stages.

    def coarse(
        self, semantic: list[Tensor], prompt: Prompt, draws: Draws, *, seconds: float | None, limits: list[int]
    ) -> list[Tensor]:
        """The coarse codes of every row, its prompt's first.

        `seconds` are made after the prompt; without them as much as the semantic tokens last, or, where these have no
        durations, until the stage ends it, after so many frames as `limits` has for the row at the most.
        """
        prompts = [codes[:, : self.num_coarse] for codes in prompt.codes]
        rows = zip(prompts, semantic, limits, strict=True)
        totals = [self._total(len(known), ids, seconds, limit) for known, ids, limit in rows]

        def draw(window: Window) -> Drawn:
            return self.coarse_stage.decode(
                [streamed(self._semantic_of(semantic, window.starts, window.stops)), window.prompt],
                window.limits,
                **draws.of("coarse", window.number),
                may_end=seconds is None and self.frames_per_semantic is None,
                memory=window.memory,
            )

        return extend(prompts, totals, self._coarse_window(), draw, unit=self._unit)[0]

    def coarse_pieces(
        self, semantic: Tensor, prompt: Prompt, draws: Draws, chunk: int, *, seconds: float | None, limit: int
    ) -> Iterator[Tensor]:
        """What `coarse` draws for one row after its prompt, [up to `chunk` frames, quantizers] at a time."""
        coarse, number, memory = prompt.codes[0][:, : self.num_coarse], 0, None
        total = self._total(len(coarse), semantic, seconds, limit)
        while len(coarse) < total:
            window = self._coarse_window()
            start = first_of(len(coarse), total, window, self._unit)
            stop = total if window is None else min(total, start + window)
            decoding = self.coarse_stage.decoding(
                [streamed(self._semantic_of([semantic], [start], [stop])), streamed([coarse[start:]])],
                torch.tensor([stop - start]),
                **draws.of("coarse", number),
                may_end=seconds is None and self.frames_per_semantic is None,
                memory=memory,
            )
            memory = decoding.memory
            for new in decode_in_chunks(decoding, chunk):
                coarse = torch.cat((coarse, new[0]))
                yield new[0]
            if len(coarse) < stop:
                return  # it said that here is its end
            number += 1

    def fine(self, coarse: list[Tensor], known: list[Tensor], draws: Draws) -> list[Tensor]:
        """The fine codes of every row for all its coarse codes; those of its beginning, the prompt's, are `known`."""
        return self._fine(coarse, known, draws)[0]

    def _fine(
        self, coarse: list[Tensor], known: list[Tensor], draws: Draws, memory: PromptMemory | None = None
    ) -> tuple[list[Tensor], PromptMemory | None]:
        """The same where what is known was drawn in part, with the memory of what was not."""
        stage = self.fine_stage
        assert stage is not None

        def draw(window: Window) -> Drawn:
            spans = zip(coarse, window.starts, window.stops, strict=True)
            given = [streamed([row[a:b] for row, a, b in spans]), window.prompt]
            how = draws.of("fine", window.number)
            return stage.decode(given, window.limits, **how, may_end=False, memory=window.memory)

        window = window_of(stage.transformer, self.codec.frame_rate)
        return extend(known, [len(row) for row in coarse], window, draw, memory=memory)

    def known_fine(self, prompt: Prompt) -> list[Tensor]:
        """The fine codes of the prompt."""
        return [codes[:, self.num_coarse : self.quantizers] for codes in prompt.codes]

    def codes(
        self, semantic: list[Tensor], prompt: Prompt, draws: Draws, *, seconds: float | None = None, limits: list[int]
    ) -> list[Tensor]:
        """All codes of every row [frames, quantizers], its prompt's first; see `coarse`."""
        coarse = self.coarse(semantic, prompt, draws, seconds=seconds, limits=limits)
        if self.fine_stage is None:
            return coarse
        fine = self.fine(coarse, self.known_fine(prompt), draws)
        return [torch.cat(pair, 1) for pair in zip(coarse, fine, strict=True)]

    # The sound.

    def heard(self, codes: Tensor) -> Tensor:
        """[samples], or [channels, samples] of a codec that has several."""
        wave: Tensor = self.codec.decode_from_codebook_indices(codes[None].to(self.device))[0]
        return wave[0] if wave.shape[0] == 1 else wave

    def stream(
        self,
        semantic: Tensor,
        prompt: Prompt,
        draws: Draws,
        *,
        chunk_seconds: float,
        seconds: float | None = None,
        limit: int,
    ) -> Iterator[Tensor]:
        """The sound of one row [samples], its prompt's first, piece by piece as soon as the codes are drawn.

        Fine codes are drawn for each piece when its coarse codes are there, and so hear less of what comes than in one
        call.
        """
        decoder = self.codec.stream_decoder()
        if decoder is None:
            raise UserError("This codec cannot decode piece by piece: generate the whole at once.")
        yield from _pieces(decoder.push(prompt.codes[0][None]))
        coarse, fine, memory = prompt.codes[0][:, : self.num_coarse], self.known_fine(prompt)[0], None
        chunk = max(1, round(chunk_seconds * self.codec.frame_rate))
        for new in self.coarse_pieces(semantic, prompt, draws, chunk, seconds=seconds, limit=limit):
            coarse, codes = torch.cat((coarse, new)), new
            if self.fine_stage is not None:
                known = len(fine)
                apart = Draws(seeds_for("fine, in pieces", draws.seeds, known), draws.sampling, draws.contexts)
                (fine,), memory = self._fine([coarse], [fine], apart, memory)
                codes = torch.cat((new, fine[known:]), 1)
            yield from _pieces(decoder.push(codes[None]))
        yield from _pieces(decoder.flush())

    # Lengths.

    def _total(self, known: int, semantic: Tensor, seconds: float | None, limit: int) -> int:
        """Frames of a row, its prompt's `known` ones included."""
        if seconds is not None:
            if not seconds > 0:
                raise UserError(f"seconds is {seconds}; ask for more than 0 of them.")
            return known + max(1, round(seconds * self.codec.frame_rate))
        if self.frames_per_semantic is not None:
            return max(known, round(len(semantic) * self.frames_per_semantic))
        return known + limit

    def _coarse_window(self) -> int | None:
        """Without durations nobody knows which semantic tokens belong to a window: all goes in one."""
        timed = self.frames_per_semantic is not None
        return window_of(self.coarse_stage.transformer, self.codec.frame_rate) if timed else None

    @property
    def _unit(self) -> int:
        """So many frames are the first that are whole semantic tokens: a window that began between would be late."""
        return Fraction(self.frames_per_semantic or 1).limit_denominator(1000).numerator

    def _semantic_of(self, semantic: Sequence[Tensor], starts: list[int], stops: list[int]) -> list[Tensor]:
        """The semantic tokens of a span of frames of each row."""
        per_token = self.frames_per_semantic
        if per_token is None:
            return list(semantic)
        spans = zip(semantic, starts, stops, strict=True)
        return [row[floor(start / per_token) : ceil(stop / per_token)] for row, start, stop in spans]


def window_of(stage: StageTransformer, rate: float) -> int | None:
    """The frames that a stage was trained on, or None where it had whole recordings."""
    seconds = stage.config.window_seconds
    return None if seconds is None else max(2, round(seconds * rate))


def _pieces(wave: Tensor) -> Iterator[Tensor]:
    if wave.shape[-1]:
        yield wave[0, 0] if wave.shape[1] == 1 else wave[0]
