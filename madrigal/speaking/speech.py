"""Texts to speech, whoever speaks: pieces of a sentence are said in batches, or as they come, with pauses between them.

A system says how one batch of pieces is spoken, or how one piece is streamed; all else is here.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from madrigal.engine.randomness import seed_for, seeds_of
from madrigal.errors import UserError
from madrigal.speaking.script import Script
from madrigal.tokenizers.text import shortened

PAUSE_SECONDS = 0.15
"""Silence between two pieces of a text, beside what is silent in them."""

Progress = Callable[[int, int], object]


@dataclass(frozen=True)
class Piece:
    """A piece of a text: how it was read, how sure the model was (0 to 1, or None), and whether it came to an end.

    `seconds` is how long it lasts: 0 where nothing was said of it.
    """

    text: str
    confidence: float | None = None
    ended: bool = True
    seconds: float = 0.0


@dataclass(frozen=True)
class Place:
    """A piece that is to be said: the number of its text, its own number in it, its words and its seed."""

    text: int
    piece: int
    words: str
    seed: int


Said = tuple[Piece, Tensor]
"""A piece and its wave [samples] or [channels, samples]."""


@dataclass(frozen=True)
class Speech:
    """What was said: wave [samples], or [channels, samples] where there are several.

    `unknown` are the characters of the text that could not be said.
    """

    wave: Tensor
    sample_rate: int
    pieces: list[Piece]
    unknown: list[str]

    @property
    def seconds(self) -> float:
        return self.wave.shape[-1] / self.sample_rate

    @property
    def confidence(self) -> float | None:
        """The mean of its pieces; None where the model does not say."""
        known = [piece.confidence for piece in self.pieces if piece.confidence is not None]
        return sum(known) / len(known) if known else None

    @property
    def warnings(self) -> list[str]:
        """A sentence on every piece that is not said, or not to its end."""
        unsaid = [f"Nothing was said of {shortened(piece.text)!r}." for piece in self.pieces if not piece.seconds]
        cut = [piece for piece in self.pieces if piece.seconds and not piece.ended]
        return unsaid + [f"{shortened(piece.text)!r} was cut off: it found no end in time." for piece in cut]


class Speaker(nn.Module):
    """Texts in, `Speech` out: [samples] at `sample_rate`, or [channels, samples]."""

    @property
    def sample_rate(self) -> int:
        raise NotImplementedError

    @property
    def channels(self) -> int:
        return 1

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def script(self, text: str) -> Script:
        """How a text will be read, in pieces that are said one by one."""
        raise NotImplementedError

    def say(self, text: str, **options: Any) -> Speech:
        """One text; the options are those of `forward`."""
        return self([text], **options)[0]

    def silence(self, seconds: float) -> Tensor:
        size = round(seconds * self.sample_rate)
        return torch.zeros(size if self.channels == 1 else (self.channels, size), device=self.device)

    def _together(
        self,
        scripts: Sequence[Script],
        speak: Callable[[list[Place]], list[Said]],
        *,
        seed: Sequence[int] | int,
        batch_size: int,
        progress: Progress | None,
    ) -> list[Speech]:
        """All texts, in batches of their pieces. `progress` is called with (pieces done, pieces in all)."""
        if batch_size < 1:
            raise UserError(f"batch_size is {batch_size}; say at least one piece at a time.")
        seeds = seeds_of(seed, len(scripts))
        places = [
            Place(t, p, words, piece_seed(seeds[t], p))
            for t, script in enumerate(scripts)
            for p, words in enumerate(script.pieces)
        ]
        # Pieces of about one length together: a batch takes as long as its longest.
        places.sort(key=lambda place: len(place.words))
        said: dict[tuple[int, int], Said] = {}
        for first in range(0, len(places), batch_size):
            batch = places[first : first + batch_size]
            said |= {(place.text, place.piece): each for place, each in zip(batch, speak(batch), strict=True)}
            if progress is not None:
                progress(len(said), len(places))
        return [
            self._joined([said[t, p] for p in range(len(script.pieces))], script) for t, script in enumerate(scripts)
        ]

    def _in_turn(self, script: Script, speak: Callable[[Place], Iterator[Tensor]], *, seed: int) -> Iterator[Tensor]:
        """The sound of a text as it comes, piece by piece."""
        is_begun = False
        for number, words in enumerate(script.pieces):
            sound = speak(Place(0, number, words, piece_seed(seed, number)))
            first = next(sound, None)
            if first is None:
                continue
            if is_begun:
                yield self.silence(PAUSE_SECONDS)
            is_begun = True
            yield first
            yield from sound

    def _joined(self, said: Sequence[Said], script: Script) -> Speech:
        heard = [wave for _, wave in said if wave.shape[-1]]
        # Around what was not said there is no pause either.
        waves = [part for wave in heard for part in (self.silence(PAUSE_SECONDS), wave)][1:] or [self.silence(0)]
        pieces = [replace(piece, seconds=wave.shape[-1] / self.sample_rate) for piece, wave in said]
        return Speech(torch.cat(waves, -1), self.sample_rate, pieces, script.unknown)


def piece_seed(seed: int, number: int) -> int:
    """Each piece of a text has noise of its own."""
    return seed_for(seed, "piece", number)
