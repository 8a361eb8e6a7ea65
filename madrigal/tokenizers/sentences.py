"""Long text in pieces that a model can say at once: sentences, and parts of those that are too long.

Nothing is lost: the pieces, one after the other, are the text. A line is never continued on the next.
"""

import re
import unicodedata

from madrigal.tokenizers.reading.dates import DAYS, SHORT_MONTHS
from madrigal.tokenizers.reading.endings import ends_sentence
from madrigal.tokenizers.reading.words import ANYWHERE, BEFORE, BEFORE_NUMBERS

CLOSING = "\"'”’»)\\]」』）"
END = re.compile(rf"(?<![.!?…])[.!?…]+[{CLOSING}]*(?=\s)|[。！？｡．]+[{CLOSING}]*|\n")
WORD_BEFORE = re.compile(r"((?:[^\W\d_]\.)*[^\W\d_]+)\.$")
NOT_BEFORE_NUMBERS = {*BEFORE_NUMBERS, *(word.capitalize() for word in BEFORE_NUMBERS), *SHORT_MONTHS, *DAYS}
# Where a long sentence is cut, best place first.
CUTS = (re.compile(r"[;:—–]\s*"), re.compile(r"[,、，)]\s*"), re.compile(r"\s+"))


def split_sentences(text: str, longest: int = 250) -> list[str]:
    """Pieces of at most `longest` characters, each with the space behind it; joined they are `text`.

    A piece without a letter or a digit (a row of dots, an empty line) goes with the piece before it, if there is room.
    """
    if longest < 1:
        raise ValueError(f"A piece has at least one character; longest is {longest}.")
    pieces: list[str] = []
    for sentence in _sentences(text):
        joined = bool(pieces) and len(pieces[-1] + sentence) <= longest
        if joined and not any(character.isalnum() for character in sentence):
            pieces[-1] += sentence
        else:
            pieces.extend(_cut(sentence, longest))
    return pieces


def _sentences(text: str) -> list[str]:
    found, start = [], 0
    for match in END.finditer(text):
        if match.end() <= start or not _is_end(text, match):
            continue
        end = match.end()
        while end < len(text) and text[end].isspace():
            end += 1
        found.append(text[start:end])
        start = end
    return [*found, text[start:]] if start < len(text) else found


def _is_end(text: str, match: re.Match[str]) -> bool:
    mark, rest = match[0], text[match.end() :]
    if mark == "\n" or mark[0] in "。！？｡．":
        return True
    following = rest.lstrip()
    if following[:1].islower():  # "Why?" he asked; so … so
        return False
    if mark != ".":
        return True
    before = WORD_BEFORE.search(text, max(0, match.start() - 40), match.end())
    word = before[1] if before else ""
    if word in BEFORE or (word in NOT_BEFORE_NUMBERS and following[:1].isdigit()):
        return False
    if word in ANYWHERE or "." in word or (len(word) == 1 and word != "I"):
        return ends_sentence(rest)
    return True


def _cut(sentence: str, longest: int) -> list[str]:
    """A sentence in pieces of at most `longest`, cut at the last good place of each."""
    pieces = []
    while len(sentence) > longest:
        at = _place(sentence, longest)
        pieces.append(sentence[:at])
        sentence = sentence[at:]
    return [*pieces, sentence] if sentence else pieces


def _place(sentence: str, longest: int) -> int:
    for cut in CUTS:
        places = [match.end() for match in cut.finditer(sentence, 0, longest + 1) if match.end() <= longest]
        # A piece of a word or two is worse than a cut at a weaker place.
        if places and places[-1] >= longest // 3:
            return places[-1]
    at = longest
    while at > 1 and (unicodedata.combining(sentence[at]) or "\u200d" in sentence[at - 1 : at + 1]):
        at -= 1
    return at
