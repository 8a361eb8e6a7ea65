"""Text to symbols: what is said, sound by sound, with a silence wherever somebody may pause.

    "Hello, you."  ->  silence h ə l ˈo ʊ , silence j uː . silence

A silence stands between words and at both ends, so that an aligner has something to lay a pause on; a comma or a full
stop may hold one too. Stress and length are no sounds that last: a phoneme and its signs are one symbol.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, Self

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor

from madrigal.data.collate import join_tokens
from madrigal.data.tokens import PAD
from madrigal.errors import UserError
from madrigal.tokenizers.fingerprint import fingerprint_of
from madrigal.tokenizers.reading import Reading, read_out
from madrigal.tokenizers.text import TextSpec, TextTokenizer, listed, make_text_tokenizer, shortened

SHOWN = "∅"
"""A silence in writing."""
STRESS, LONG = ("", "ˈ", "ˌ"), ("", "ː")
SIGNED = len(STRESS) * len(LONG)
"""Ways to write signs around a phoneme."""


class SymbolSpec(BaseModel):
    """How text becomes symbols; it is part of a model's config.json, so a model's folder needs no file more."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: TextSpec = Field(
        default_factory=lambda: TextSpec(kind="phonemes"), description="phonemes, characters or bytes"
    )
    read: Literal["en"] | None = Field("en", description="language that numbers are read out in first; null: none are")

    @model_validator(mode="after")
    def _sounds_alone(self) -> Self:
        if self.text.kind == "bpe":
            raise ValueError("pairs of bytes are no sounds that have a length: take phonemes, characters or bytes")
        if self.text.kind == "characters" and not self.text.alphabet:
            raise ValueError("text.alphabet is empty: name the characters, in order of their ids")
        return self


class Span(NamedTuple):
    """A word: how it is written in symbols, and where these lie, `start` … `stop` - 1."""

    text: str
    start: int
    stop: int


class Symbols:
    """Text to a list of ids in 0 … size-1, of which the last is `silence`.

    The others are the text tokenizer's ids; those of phonemes come once for each way to write signs around them.
    """

    def __init__(self, spec: SymbolSpec | None = None) -> None:
        self.spec = spec or SymbolSpec()
        self.tokenizer: TextTokenizer = make_text_tokenizer(self.spec.text)
        self.silence = self.tokenizer.size * (SIGNED if self.spec.text.kind == "phonemes" else 1)
        self.size = self.silence + 1
        self._written = [self.tokenizer.decode([index]) for index in range(self.tokenizer.size)]

    def read(self, text: str) -> Reading:
        """The text as it is said, and what of it cannot be said."""
        return read_out(text, self.tokenizer, language=self.spec.read)

    def encode(self, text: str) -> list[int]:
        """The symbols of a text, from silence to silence."""
        reading = self.read(text)
        if reading.unknown:
            raise UserError(
                f"The text {shortened(text)!r} holds {listed(reading.unknown)}, which cannot be said: leave it out."
            )
        said = " ".join(reading.text.split())
        if not said:
            raise UserError("The text is empty: give some words.")
        symbols = [self.silence]
        for symbol in self._symbols(self.tokenizer.encode(said)):
            if symbol != self.silence or symbols[-1] != self.silence:
                symbols.append(symbol)
        return symbols if symbols[-1] == self.silence else [*symbols, self.silence]

    def batch(self, texts: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Symbols int64 [batch, symbols] of several texts, padded with -1, and their lengths [batch]."""
        return join_tokens("symbols", [torch.tensor(self.encode(text)) for text in texts])

    def _symbols(self, ids: list[int]) -> Iterator[int]:
        """Ids of the tokenizer as symbols, a space as silence."""
        joins, stress, place = self.spec.text.kind == "phonemes", 0, 0
        while place < len(ids):
            index, written = ids[place], self._written[ids[place]]
            place += 1
            if written == " ":
                yield self.silence
            elif not joins:
                yield index
            elif written in STRESS:
                stress = STRESS.index(written)
            elif written not in LONG:  # a sign of length without a phoneme says nothing
                long = int(place < len(ids) and self._written[ids[place]] in LONG)
                yield index + self.tokenizer.size * (stress * len(LONG) + long)
                stress, place = 0, place + long

    def shown(self, symbol: int) -> str:
        """One symbol in writing; padding is nothing."""
        if symbol == PAD:
            return ""
        if symbol == self.silence:
            return SHOWN
        signs, index = divmod(symbol, self.tokenizer.size)
        return STRESS[signs // len(LONG)] + self._written[index] + LONG[signs % len(LONG)]

    def decode(self, symbols: Iterable[int]) -> str:
        """Symbols in writing, with a space in the place of every silence."""
        spoken = [" " if symbol == self.silence else self.shown(symbol) for symbol in map(int, symbols)]
        return "".join(spoken).strip()

    def words(self, symbols: Sequence[int]) -> list[Span]:
        """What stands between silences. espeak may join words that are said in one ("of the")."""
        spans, start = [], 0
        for place, symbol in enumerate([*symbols, self.silence]):
            if symbol in (self.silence, PAD):
                if place > start:
                    spans.append(Span(self.decode(symbols[start:place]), start, place))
                start = place + 1
        return spans

    def fingerprint(self) -> str:
        """16 hex digits that change with anything that could change a symbol."""
        return fingerprint_of({"text": self.tokenizer.fingerprint(), "read": self.spec.read}, {})
