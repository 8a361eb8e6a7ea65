"""The text front end: what is written becomes what is said, and what cannot be said is reported.

A text goes through readers, each of which puts words in the place of one kind of thing. Their order matters: a date
is read before a fraction, money before a number, and a plain number last.
"""

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from madrigal.tokenizers.reading.addresses import read_addresses
from madrigal.tokenizers.reading.amounts import read_measures, read_money
from madrigal.tokenizers.reading.dates import read_dates, read_times
from madrigal.tokenizers.reading.folding import can_say_latin, fold
from madrigal.tokenizers.reading.numbers import read_fractions, read_numbers, read_ranges, read_telephones
from madrigal.tokenizers.reading.symbols import plain_marks, read_emoji, read_symbols
from madrigal.tokenizers.reading.words import read_abbreviations, read_initials, read_roman
from madrigal.tokenizers.text import TextTokenizer

__all__ = ["Reading", "read_out"]

READERS = (
    plain_marks,
    read_addresses,
    read_emoji,
    read_abbreviations,
    read_dates,
    read_times,
    read_telephones,
    read_money,
    read_ranges,
    read_fractions,
    read_measures,
    read_numbers,
    read_roman,
    read_initials,
    read_symbols,
)
GROUPS = re.compile(
    "(?<=\\d)[\u00a0\u2009\u202f](?=\\d{3}(?!\\d))|(?<=\\d) (?=(?:\\d{3} )*000(?!\\d))|"
    "(?<=\\d)\\.(?=000\\.000)|(?<=\\.000)\\.(?=000)"
)
"""What divides the groups of 1 000 000 and 1.000.000: a thin space, or something else where 000 leaves no doubt."""


@dataclass(frozen=True)
class Reading:
    """What is said of a text, and the characters that cannot be said, each as often as it stood there."""

    text: str
    unknown: list[str] = field(default_factory=list)

    @property
    def warning(self) -> str | None:
        """One sentence on what is not said, or None."""
        if not self.unknown:
            return None
        counts = Counter(self.unknown)
        named = [_named(character, count) for character, count in counts.most_common(8)]
        more = f" and {len(counts) - 8} more" if len(counts) > 8 else ""
        return f"Left out, because they cannot be said here: {', '.join(named)}{more}."


def read_out(text: str, tokenizer: TextTokenizer | None = None, *, language: Literal["en"] | None = "en") -> Reading:
    """The text as it is said in a language, in characters that the tokenizer has.

    Accents stay where the tokenizer has them, and are folded where not. In English, letters of other scripts are
    reported; `language=None` reads nothing out and leaves all letters to the tokenizer. Lines stay lines.
    """
    text = unicodedata.normalize("NFC", GROUPS.sub(",", text))
    text = _lines(text)
    if language == "en":
        for reader in READERS:
            text = reader(text)

    def can_say(character: str) -> bool:
        return (language is None or can_say_latin(character)) and (
            tokenizer is None or not tokenizer.unknown(character)
        )

    said, unknown = fold(text, can_say)
    return Reading(_tidy(said), unknown)


def _lines(text: str) -> str:
    """One kind of line end; a line that goes on in small letters is no new one."""
    text = re.sub(r"\r\n?|[\u2028\u2029\u0085\v\f]", "\n", text)
    text = re.sub(r"[^\S\n]+", " ", text)
    return re.sub(r"(?<=\S) ?\n ?(?=[a-z])", " ", text)


def _tidy(text: str) -> str:
    """Single spaces, none before a mark, and no pause after a pause."""
    text = re.sub(r"[^\S\n]+", " ", text)
    text = re.sub(r" ?\n[\n ]*", "\n", text)
    text = re.sub(r" (?=[,.;:?!)\]])", "", text)
    text = re.sub(r"([(\[]) ", r"\1", text)
    text = re.sub(r"[(\[][,.;: ]*[)\]]", "", text)
    text = re.sub(r",(?: ?,)+", ",", text)
    text = re.sub(r",(?=[^\W\d_])", ", ", text)
    text = re.sub(r",(?=[.?!;:])", "", text)
    text = re.sub(r"(?m)^[ ,;:]+", "", text)
    return re.sub(" +", " ", text).strip()


def _named(character: str, count: int) -> str:
    shown = repr(character) if character.isprintable() else f"U+{ord(character):04X}"
    return shown if count == 1 else f"{shown} {count} times"
