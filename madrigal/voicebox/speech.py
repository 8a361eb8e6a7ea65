"""Speech from text by flow matching, in the voice of a prompt.

    text -> pieces -> symbols -> durations -> ids at frame rate \\
                                                                 flow -> features -> vocoder -> sound
    voice: features, and what is said in them, stand before     /

The voice is given, the piece is what has to be made after it: all of a sentence comes at once, in a few steps.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from madrigal.data.collate import mask_from_lengths
from madrigal.data.tokens import PAD
from madrigal.engine.evaluating import eval_mode
from madrigal.engine.randomness import seeds_of
from madrigal.errors import UserError
from madrigal.speaking.script import Script, script_of
from madrigal.speaking.speech import PAUSE_SECONDS, Piece, Place, Progress, Said, Speech, piece_seed
from madrigal.voicebox.drawing import Drawing
from madrigal.voicebox.expand import expand
from madrigal.voicebox.lasting import shared_out
from madrigal.voicebox.parts import AnyVoice, VoiceboxParts
from madrigal.voicebox.voice import Voice

LONGEST_PIECE = 150
"""Characters that are said at once, about ten seconds: hardly more than a model learns from."""


class Line(NamedTuple):
    """What is to be said in one row, after the voice: symbols and durations [symbols]."""

    symbols: Tensor
    durations: Tensor

    @property
    def frames(self) -> int:
        return int(self.durations.sum())


class VoiceboxSpeech(VoiceboxParts):
    """Texts in, `Speech` out: [samples] at the rate of the features."""

    def script(self, text: str) -> Script:
        """How a text will be read, in pieces that are said one by one."""
        symbols = self.aligner.symbols
        return script_of(text, symbols.tokenizer, language=symbols.spec.read, longest=LONGEST_PIECE)

    def lines(
        self,
        texts: Sequence[str],
        voice: Voice,
        *,
        rate: float | None = None,
        seeds: Sequence[int] | None = None,
        how: Drawing | None = None,
    ) -> list[Line]:
        """Texts as they are read, with the time that each symbol takes in this voice."""
        rate = 1.0 if rate is None else rate
        if not 0.2 <= rate <= 5:
            raise UserError(f"rate is {rate:g}; give how much faster than usual it is spoken, from 0.2 to 5.")
        rows = [torch.tensor(self.aligner.symbols.encode(text)) for text in texts]
        before = 0 if voice.symbols is None else len(voice.symbols)
        known = [_behind(voice.durations, torch.zeros_like(row)) for row in rows]
        whole = [_behind(voice.symbols, row) for row in rows]
        found = self.timed(whole, known, rate=rate, seeds=seeds, how=how)
        return [Line(row, durations[before:]) for row, durations in zip(rows, found, strict=True)]

    def timed(
        self,
        symbols: Sequence[Tensor],
        known: Sequence[Tensor],
        *,
        rate: float = 1.0,
        seeds: Sequence[int] | None = None,
        how: Drawing | None = None,
    ) -> list[Tensor]:
        """Durations [symbols] of rows of symbols, of which some are `known` (0 where they are not)."""
        steps = (how or self.drawing).duration_steps
        lengths = torch.tensor([len(row) for row in symbols])
        given = pad_sequence(list(known), batch_first=True)
        found = self.durations.predict(
            pad_sequence(list(symbols), batch_first=True, padding_value=PAD).to(self.device),
            lengths.to(self.device),
            context_durations=given.to(self.device) if bool(given.any()) else None,
            rate=rate,
            seed=0 if seeds is None else list(seeds),
            **({} if steps is None else {"steps": steps}),
        ).cpu()
        return [row[:length] for row, length in zip(found, lengths.tolist(), strict=True)]

    def scaled_to(self, lines: Sequence[Line], seconds: float) -> list[Line]:
        """The lines of one text, made to last so long together with the pauses between them, to a frame."""
        pauses = (len(lines) - 1) * round(PAUSE_SECONDS * self.sample_rate)
        frames = round((seconds * self.sample_rate - pauses) / self.features.hop)
        symbols = sum(len(line.symbols) for line in lines)
        if frames < symbols:
            least = (symbols * self.features.hop + pauses) / self.sample_rate
            raise UserError(f"{seconds:g} seconds are too few for this text: it takes {least:.2f} at the least.")
        stretched = shared_out(torch.cat([line.durations for line in lines]).double(), frames)
        parts = stretched.split([len(line.symbols) for line in lines])
        return [Line(line.symbols, part) for line, part in zip(lines, parts, strict=True)]

    # The sound.

    @torch.no_grad()
    def forward(
        self,
        texts: Sequence[str],
        *,
        voice: AnyVoice = None,
        voice_rate: int | None = None,
        voice_text: str | None = None,
        seconds: float | None = None,
        rate: float | None = None,
        seed: Sequence[int] | int = 0,
        batch_size: int = 8,
        progress: Progress | None = None,
        **drawing: Any,
    ) -> list[Speech]:
        """All texts in one voice. The pieces of all of them are said in batches; each is said as it would be alone.

        `seconds` is how long each text takes, or `rate` how much faster than usual it is spoken, `drawing`
        the options of `Drawing`: steps, method, cond_scale, sway, bf16, duration_steps.
        """
        prompt = self.voice(voice, voice_rate, voice_text)
        how = self.drawing.but(**drawing)
        scripts = [self.script(text) for text in texts]
        fixed = {
            t: self._in_time(script, prompt, seconds, rate, how, of_text)
            for t, (script, of_text) in enumerate(zip(scripts, seeds_of(seed, len(scripts)), strict=True))
            if seconds is not None
        }

        def speak(places: list[Place]) -> list[Said]:
            seeds = [place.seed for place in places]
            if fixed:
                lines = [fixed[place.text][place.piece] for place in places]
            else:
                lines = self.lines([place.words for place in places], prompt, rate=rate, seeds=seeds, how=how)
            rows = self.features_of(lines, prompt, how, seeds)
            return [(Piece(place.words), self._wave(row)) for place, row in zip(places, rows, strict=True)]

        with eval_mode(self):
            return self._together(scripts, speak, seed=seed, batch_size=batch_size, progress=progress)

    @torch.no_grad()
    def stream(
        self,
        text: str,
        *,
        voice: AnyVoice = None,
        voice_rate: int | None = None,
        voice_text: str | None = None,
        seconds: float | None = None,
        rate: float | None = None,
        seed: int = 0,
        chunk_seconds: float = 0.5,
        growing: bool = False,
        **drawing: Any,
    ) -> Iterator[Tensor]:
        """The sound of a text as it is made, sentence by sentence and in each `chunk_seconds` at a time.

        With `growing` the first sentence comes in parts, of which the first is soon there (`growing.py`).
        """
        prompt, script = self.voice(voice, voice_rate, voice_text), self.script(text)
        how = self.drawing.but(**drawing)
        fixed = None if seconds is None else self._in_time(script, prompt, seconds, rate, how, seed)

        from madrigal.voicebox.growing import DURATION_STEPS, can_grow, in_parts

        def speak(place: Place) -> Iterator[Tensor]:
            seeds, words = [place.seed], [place.words]
            grows = growing and place.piece == 0 and can_grow(self.features)
            quick = grows and "duration_steps" not in drawing and self.durations.config.kind == "flow"
            timing = how.but(duration_steps=DURATION_STEPS) if quick else how
            lines = [fixed[place.piece]] if fixed else self.lines(words, prompt, rate=rate, seeds=seeds, how=timing)
            if grows:
                yield from in_parts(self, lines[0], prompt, how, place.seed)
                return
            made = self.features_of(lines, prompt, how, seeds)[0]
            chunk = max(1, round(chunk_seconds * self.frame_rate))
            for piece in self.features.decode_in_chunks(made[None], chunk=chunk):
                yield piece[0]

        with eval_mode(self):
            yield from self._in_turn(script, speak, seed=seed)

    def features_of(self, lines: Sequence[Line], voice: Voice, how: Drawing, seeds: Sequence[int]) -> list[Tensor]:
        """Features [frames, dim] of lines, all in the voice, which is not among them itself."""
        before = len(voice.features)
        ids = [torch.cat((voice.ids, expand(line.symbols[None], line.durations[None])[0])) for line in lines]
        lengths = torch.tensor([len(row) for row in ids])
        size, dim = int(lengths.max()), self.features.dim
        context = torch.zeros(len(lines), size, dim)
        context[:, :before] = voice.features
        given = mask_from_lengths(torch.full((len(lines),), before), size)
        filled = how.fill(
            self.voicebox,
            lengths,
            context=context,
            context_mask=given,
            ids=pad_sequence(ids, batch_first=True, padding_value=PAD),
            seed=list(seeds),
        )
        return [row[before:] for row in filled.rows()]

    def _in_time(
        self, script: Script, voice: Voice, seconds: float, rate: float | None, how: Drawing, seed: int
    ) -> list[Line]:
        """The lines of a text that lasts so long, each with the rhythm of its own seed."""
        if rate is not None:
            raise UserError("seconds and rate both say how fast it is spoken: give one of them.")
        seeds = [piece_seed(seed, number) for number in range(len(script.pieces))]
        return self.scaled_to(self.lines(script.pieces, voice, seeds=seeds, how=how), seconds)

    def _wave(self, features: Tensor) -> Tensor:
        return self.features.decode(features[None])[0]


def _behind(first: Tensor | None, second: Tensor) -> Tensor:
    return second if first is None else torch.cat((first, second))
