"""What a tokenizer or a reader cannot say: folded to what it can where that is the same sound, else reported."""

import unicodedata
from collections.abc import Callable

SAME_SOUND = {
    "ß": "ss", "ẞ": "SS", "æ": "ae", "Æ": "Ae", "œ": "oe", "Œ": "Oe", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L", "đ": "d",
    "Đ": "D", "ð": "th", "Ð": "Th", "þ": "th", "Þ": "Th", "ı": "i", "ŋ": "ng", "ſ": "s",
}  # fmt: skip
# Marks that a tokenizer may lack: the nearest pause.
SAME_PAUSE = {
    "—": ", ", "–": ", ", ";": ",", ":": ",", "…": "...", "!": ".", "?": ".", "(": ", ", ")": ", ", "[": "(", "]": ")",
    '"': "", "'": "", "-": " ", "{": "(", "}": ")",
}  # fmt: skip


def can_say_latin(character: str) -> bool:
    """What an English reader can say: Latin letters with any accents, spaces and the marks of sentences."""
    if character.isspace() or character in ".,;:?!'\"()[]-–—":
        return True
    is_variant = unicodedata.decomposition(character).startswith("<")  # ﬁ, ª, Ａ: letters in another dress
    return character.isalpha() and not is_variant and unicodedata.name(character, "").startswith("LATIN ")


def fold(text: str, can_say: Callable[[str], bool]) -> tuple[str, list[str]]:
    """The text in characters that can be said, and those that could not, each as often as it stood there."""
    said, unknown = [], []
    for character in text:
        folded = _folded(character, can_say)
        if folded is None:
            unknown.append(character)
        said.append(" " if folded is None else folded)
    return "".join(said), unknown


def _folded(character: str, can_say: Callable[[str], bool], depth: int = 0) -> str | None:
    if character.isspace() or can_say(character):
        return character
    base = unicodedata.normalize("NFKD", character)
    options = [
        SAME_SOUND.get(character),
        "".join(part for part in base if not unicodedata.combining(part)) if base != character else None,
        SAME_PAUSE.get(character),
    ]
    for option in options:
        if option is None or depth > 2:
            continue
        parts = [_folded(part, can_say, depth + 1) for part in option]
        if None not in parts:
            return "".join(part for part in parts if part is not None)
    return None
