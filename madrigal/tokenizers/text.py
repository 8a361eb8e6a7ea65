"""Text to ids and back: bytes, characters, learned pairs (BPE) or phonemes, chosen by a `TextSpec`.

What a tokenizer has learned is part of its spec, and the spec is part of a model's config.json: a model's folder needs
no file more, and whoever has the model has its tokenizer. The end token is the model's, and is none of these ids.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from madrigal.data.tokens import PAD
from madrigal.errors import UserError
from madrigal.tokenizers.fingerprint import fingerprint_of

TextKind = Literal["bytes", "characters", "bpe", "phonemes"]
ENGLISH = " abcdefghijklmnopqrstuvwxyz'\",.;:?!-()"
OPTIONS_OF = {"alphabet": "characters", "vocabulary": "bpe", "merges": "bpe", "language": "phonemes"}
"""The kind that each option belongs to."""


class TextSpec(BaseModel):
    """How text becomes ids. With `fit_text`, a spec of BPE or of characters learns from the texts of a manifest."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: TextKind = Field(
        "bytes",
        description="bytes (UTF-8, says everything), characters (an alphabet), bpe (learned pairs of bytes) or "
        "phonemes (as espeak-ng would say them)",
    )
    alphabet: str | None = Field(
        ENGLISH, description="characters: all that can be said, in order of their ids; null: those of the texts"
    )
    vocabulary: int = Field(512, ge=257, description="bpe: how many ids it may learn, 256 of them the bytes")
    merges: tuple[tuple[int, int], ...] = Field((), description="bpe: what was learned; two ids become the next one")
    language: str = Field("en-us", description="phonemes: espeak's name of the language")
    read: Literal["en"] | None = Field(
        "en",
        description="what is to be said has its numbers, dates and money read out in this language; null: it is said "
        "as it stands, in any script that the kind has",
    )

    @model_validator(mode="after")
    def _options_of_its_kind(self) -> Self:
        for name in sorted(self.model_fields_set):
            kind = OPTIONS_OF.get(name, self.kind)
            if kind != self.kind and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} is an option of kind={kind}, and the kind is {self.kind}")
        if self.alphabet is not None and len(set(self.alphabet)) != len(self.alphabet):
            raise ValueError("alphabet names a character twice")
        return self


class TextTokenizer(ABC):
    """Text to a list of ids in 0 … size-1, and ids to text.

    What `unknown` names cannot be said; `encode` refuses it rather than leave it out.
    """

    size: int
    """Number of ids; a model's end token is not among them."""

    def __init__(self, spec: TextSpec) -> None:
        self.spec = spec

    def unknown(self, text: str) -> list[str]:
        """The characters of `text` that it cannot say, each as often as it stands there."""
        return [character for character in text if "\ud800" <= character <= "\udfff"]  # halves of a pair: no text

    @abstractmethod
    def _ids(self, text: str) -> list[int]: ...

    @abstractmethod
    def _text(self, ids: list[int]) -> str: ...

    @property
    def kind(self) -> TextKind:
        return self.spec.kind

    @property
    def reads(self) -> Literal["en"] | None:
        """The language that numbers are read out in, if any: never that of another one's phonemes."""
        is_foreign = self.kind == "phonemes" and not self.spec.language.startswith("en")
        return None if is_foreign else self.spec.read

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without an end token."""
        if unknown := self.unknown(text):
            raise UserError(
                f"The {self.kind} tokenizer cannot say {listed(unknown)} in {shortened(text)!r}: "
                "read the text out first (`read_out`), or take another kind of text tokenizer."
            )
        return self._ids(text)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of some ids; padding (-1) is passed over."""
        given = [int(index) for index in ids if int(index) != PAD]
        wrong = next((index for index in given if not 0 <= index < self.size), None)
        if wrong is not None:
            raise UserError(f"{wrong} is no id of this {self.kind} tokenizer, which has {self.size}.")
        return self._text(given)

    def fingerprint(self) -> str:
        """16 hex digits that change with anything that could change an id."""
        return fingerprint_of(self._identity(), {})

    def _identity(self) -> dict[str, object]:
        own = [name for name, kind in OPTIONS_OF.items() if kind == self.kind and name != "vocabulary"]
        return {"kind": self.kind, **{name: getattr(self.spec, name) for name in own}}


class Bytes(TextTokenizer):
    """The bytes of UTF-8: 256 ids, and no text that cannot be said."""

    size = 256

    def _ids(self, text: str) -> list[int]:
        return list(text.encode())

    def _text(self, ids: list[int]) -> str:
        # A model may write bytes that are no UTF-8; they are shown as U+FFFD.
        return bytes(ids).decode(errors="replace")


class Characters(TextTokenizer):
    """An alphabet of characters. A capital that is not in it is said as its small letter."""

    def __init__(self, spec: TextSpec) -> None:
        super().__init__(spec)
        if not spec.alphabet:
            raise UserError("This text tokenizer has no alphabet yet: name one, or let it learn one (`fit_text`).")
        self.alphabet, self.size = spec.alphabet, len(spec.alphabet)
        self._places = {character: place for place, character in enumerate(self.alphabet)}

    def unknown(self, text: str) -> list[str]:
        return [character for character in text if self._place(character) is None]

    def _place(self, character: str) -> int | None:
        return self._places.get(character, self._places.get(character.lower()))

    def _ids(self, text: str) -> list[int]:
        return [place for character in text if (place := self._place(character)) is not None]

    def _text(self, ids: list[int]) -> str:
        return "".join(self.alphabet[index] for index in ids)


def make_text_tokenizer(spec: TextSpec) -> TextTokenizer:
    """The tokenizer of a spec that has learned what it needs."""
    if spec.kind == "bytes":
        return Bytes(spec)
    if spec.kind == "characters":
        return Characters(spec)
    if spec.kind == "bpe":
        from madrigal.tokenizers.text_bpe import BytePairs

        return BytePairs(spec)
    from madrigal.tokenizers.text_phonemes import Phonemes

    return Phonemes(spec)


def has_to_learn(spec: TextSpec) -> bool:
    """Whether a spec is of no use before `fit_text` has seen some texts."""
    return (spec.kind == "bpe" and not spec.merges) or (spec.kind == "characters" and not spec.alphabet)


def fit_text(spec: TextSpec, texts: Iterable[str]) -> TextSpec:
    """The spec with what it learns from `texts`; one that has nothing to learn comes back as it is."""
    if not has_to_learn(spec):
        return spec
    if spec.kind == "characters":
        alphabet = "".join(sorted({character for text in texts for character in text}))
        return spec.model_copy(update={"alphabet": alphabet})
    from madrigal.tokenizers.text_bpe import learned_merges

    return spec.model_copy(update={"merges": learned_merges(texts, spec.vocabulary)})


def listed(characters: list[str], most: int = 5) -> str:
    """A few of these, each once, for a sentence: 'é' (U+00E9), '中' (U+4E2D)."""
    each = list(dict.fromkeys(characters))
    named = [f"{character!r} ({' '.join(f'U+{ord(part):04X}' for part in character)})" for character in each]
    more = f" and {len(named) - most} more" if len(named) > most else ""
    return ", ".join(named[:most]) + more


def shortened(text: str, most: int = 60) -> str:
    """The beginning of a text that is too long for a sentence."""
    return text if len(text) <= most else text[: most - 1] + "…"
