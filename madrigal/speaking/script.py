"""A text as it will be said: read out, without what cannot be said, and in pieces of a sentence or less."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from madrigal.errors import UserError
from madrigal.tokenizers.reading import read_out
from madrigal.tokenizers.sentences import split_sentences
from madrigal.tokenizers.text import TextTokenizer, listed, shortened

MAX_CHARACTERS = 200
"""Characters of a piece: models learn from recordings of a sentence, and lose their way in longer ones."""


def read_text(file: Path) -> str:
    """What is written in a file, for people who may have saved it anyhow."""
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{file} is no text in UTF-8; save it as such.") from error
    except OSError as error:
        raise UserError(f"The text {file} cannot be read: {error.strerror}.") from error


def transcript_of(recording: Path, text: str | None = None) -> str | None:
    """What is said in a recording: the text that is given, else that of a .txt beside it, else nobody knows."""
    beside = recording.with_suffix(".txt")
    if text is None and beside.is_file():
        text = read_text(beside)
    return " ".join(text.split()) if text and text.strip() else None


@dataclass(frozen=True)
class Script:
    """The pieces in order, and the characters that cannot be said, each as often as it stood in the text."""

    pieces: list[str]
    unknown: list[str]
    warning: str | None
    """One sentence on what is not said, or None."""


def script_of(
    text: str, tokenizer: TextTokenizer, *, language: Literal["en"] | None = "en", longest: int = MAX_CHARACTERS
) -> Script:
    """How `text` is said by a model of this tokenizer, in pieces of at most `longest` characters.

    Numbers are read out in `language`, if any.
    """
    if not text.strip():
        raise UserError("There is nothing to say: the text is empty.")
    # Read first: what is written in one character may take a line to say.
    reading = read_out(text, tokenizer, language=language)
    pieces = [" ".join(piece.split()) for piece in split_sentences(reading.text, longest)]
    pieces = [piece for piece in pieces if any(character.isalnum() for character in piece)]
    if not pieces:
        why = f": {listed(reading.unknown)} cannot be said" if reading.unknown else ""
        if reading.unknown and language is not None and not tokenizer.unknown(text):
            why += " by a model of English (one that was trained with model.text.read=null says all its letters)"
        raise UserError(f"There is nothing to say in {shortened(text.strip())!r}{why}; write words or numbers.")
    return Script(pieces, reading.unknown, reading.warning)
