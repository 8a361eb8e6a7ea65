"""Addresses of pages and people: "bob@example.com" -> "bob at example dot com". The scheme of a page is not said."""

import re

from madrigal.data.numerals import digits, integer

ENDINGS = "com|org|net|edu|gov|io|ai|dev|app|info|co|uk|de|fr|eu|us|ca|au|jp|ch|at|nl|se|no|es|it|ru|in|br|me|tv|gg"
MAIL = re.compile(r"(?<![\w.])[\w.+-]+@[\w-]+(?:\.[\w-]+)+(?<![.-])")
PAGE = re.compile(
    r"(?<![\w@.])(?:https?://|ftp://|www\.)[^\s<>\"'“”]+|"
    rf"(?<![\w@./-])(?:[a-z0-9-]+\.)+(?:{ENDINGS})(?![\w@]|\.\w)(?:/[^\s<>\"'“”]*)?"
)
MARKS = {
    ".": "dot", "@": "at", "/": "slash", "-": "dash", "_": "underscore", ":": "colon", "?": "question mark",
    "=": "equals", "&": "and", "#": "hash", "+": "plus", "%": "percent", "~": "tilde", ",": "comma", ";": "semicolon",
    "!": "exclamation mark", "*": "asterisk", "$": "dollar", "(": "open parenthesis", ")": "close parenthesis",
}  # fmt: skip
AS_LETTERS = frozenset(
    ["www", "uk", "de", "fr", "eu", "us", "ca", "au", "jp", "ch", "nl", "se", "es", "ru", "br", "tv", "gg", "io", "ai"]
)
PIECE = re.compile(r"[^\W\d_]+|\d+|.")


def read_addresses(text: str) -> str:
    """Every address of `text`, mark by mark."""
    return PAGE.sub(_page, MAIL.sub(lambda match: spelled(match[0]), text))


def spelled(address: str) -> str:
    """An address with its marks by name, its words as words and its numbers as numbers."""
    said = []
    for place, piece in enumerate(pieces := PIECE.findall(address)):
        if piece.isdecimal():
            said.append(integer(piece) if len(piece) <= 4 else digits(piece))
        elif piece in MARKS:
            said.append(MARKS[piece])
        elif piece in AS_LETTERS and (piece == "www" or (place and pieces[place - 1] == ".")):
            said.extend(piece)
        else:
            said.append(piece)
    return " ".join(said)


def _page(match: re.Match[str]) -> str:
    address = match[0]
    # The mark behind an address belongs to the sentence.
    end = re.search(r"[.,;:!?)]*$", address)
    tail = end[0] if end else ""
    address = address[: len(address) - len(tail)]
    return spelled(re.sub(r"^(?:https?|ftp)://", "", address).rstrip("/")) + tail
