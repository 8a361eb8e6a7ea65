"""Phonemes: what espeak-ng would say, in letters of the phonetic alphabet, each an id.

The library comes with the package `espeakng-loader`; nothing is installed on the system. espeak reads in clauses and
keeps no punctuation, so the text is cut at its marks here, and they are ids as well. `decode` gives phonemes: there
is no way back to spelling.
"""

import ctypes
import re
import threading
import unicodedata
from functools import cache, lru_cache
from typing import Any

from madrigal.errors import UserError
from madrigal.tokenizers.text import TextSpec, TextTokenizer, listed, shortened

# Inside a word ("3.14", "don't", "well-known") espeak needs the soft marks; the hard ones are no part of any word.
SOFT, HARD = ";:,.!?'‘’–-", '…—"“”«»()[]{}¡¿。、，！？'
LETTERS = (
    "abcdefghijklmnopqrstuvwxyzæðøħŋœβθχɐɑɒɓɔɕɖɗɘəɚɛɜɝɞɟɠɡɢɣɤɥɦɧɨɪɫɬɭɮɯɰɱɲɳɴɵɶɸɹɺɻɽɾʀʁʂʃʄʈʉʊʋʌʍʎʏʐʑʒʔʕʘʙʛʜʝʟʡʢǀǁǂǃᵻᵝ"
)
SIGNS = "ˈˌːˑʰʲʷˠˤ˞ʼⁿˡ↗↘↑↓˥˦˧˨˩0123456789\u0303\u0327\u0325\u0329\u032a\u032f\u031a\u0361\u0308\u031e\u031d"
SYMBOLS = " " + SOFT + HARD + LETTERS + SIGNS

_SOFT, _HARD = re.escape(SOFT), re.escape(HARD)
MARKS = re.compile(rf"([{_HARD}]+|(?<![^\s{_HARD}])[{_SOFT}]+(?!\d)|[{_SOFT}]+(?![^\s{_HARD}]))")
LANGUAGE_SWITCH = re.compile(r"\([a-z]{2,3}(?:-[a-z0-9-]+)?\)")
# Where another script appears in these, espeak says the names of its letters, or "Chinese letter" for each.
LATIN_WRITTEN = (
    "ca", "cs", "cy", "da", "de", "en", "es", "et", "eu", "fi", "fr", "ga", "hr", "hu", "id", "is", "it", "lt", "lv",
    "nb", "nl", "pl", "pt", "ro", "sk", "sl", "sv", "sw", "tr", "vi",
)  # fmt: skip


class Phonemes(TextTokenizer):
    """The sounds of a text in one language, with the marks between them."""

    size = len(SYMBOLS)

    def __init__(self, spec: TextSpec) -> None:
        super().__init__(spec)
        self._speaker = _speaker(spec.language)
        self._places = {symbol: place for place, symbol in enumerate(SYMBOLS)}

    def phonemes(self, text: str) -> str:
        """ "Hello, you." -> "həlˈoʊ, juː." """
        pieces = MARKS.split(unicodedata.normalize("NFC", text))
        spoken = [piece if place % 2 else self._clause(piece) for place, piece in enumerate(pieces)]
        return "".join(spoken).strip()

    def unknown(self, text: str) -> list[str]:
        return [character for character in unicodedata.normalize("NFC", text) if not self._says(character)]

    def _says(self, character: str) -> bool:
        if character.isspace() or character in SOFT or character in HARD:
            return True
        if character.isalpha() and self.spec.language.split("-")[0] in LATIN_WRITTEN:
            return unicodedata.name(character, "").startswith("LATIN")
        return bool(self._speaker.say(character).strip())

    def _clause(self, text: str) -> str:
        """What stands between two marks, with one space where there was space at its ends."""
        if not text.strip():
            return " " if text else ""
        said = self._speaker.say(text.strip())
        return f"{' ' if text[0].isspace() else ''}{said}{' ' if text[-1].isspace() else ''}"

    def _ids(self, text: str) -> list[int]:
        phonemes = self.phonemes(text)
        if strange := [symbol for symbol in phonemes if symbol not in self._places]:
            raise UserError(
                f"espeak says {listed(strange)} for {shortened(text)!r}, which is no phoneme that is known here: "
                "take kind=bytes for this language."
            )
        return [self._places[symbol] for symbol in phonemes]

    def _text(self, ids: list[int]) -> str:
        return "".join(SYMBOLS[index] for index in ids)


class Espeak:
    """The library, which is one for the whole process and speaks one language at a time."""

    SYNCHRONOUS, DO_NOT_EXIT, UTF8, PHONETIC = 2, 0x8000, 1, 2

    def __init__(self, language: str) -> None:
        self.language = language
        self.say = lru_cache(maxsize=10_000)(self._say)
        with _LOCK:
            self._choose(_library())

    def _choose(self, library: Any) -> None:
        if library.espeak_SetVoiceByName(self.language.encode()) != 0:
            raise UserError(f"espeak has no language {self.language!r}; such names are en-us, en-gb, de, fr and cmn.")

    def _say(self, text: str) -> str:
        with _LOCK:
            library = _library()
            self._choose(library)
            rest = ctypes.c_char_p(text.encode())
            clauses = []
            while rest.value is not None:  # it moves on by a clause each time
                said = library.espeak_TextToPhonemes(ctypes.byref(rest), self.UTF8, self.PHONETIC)
                clauses.append((said or b"").decode())
        said_all = LANGUAGE_SWITCH.sub("", " ".join(" ".join(clauses).split()))
        return unicodedata.normalize("NFD", said_all)  # a letter and its signs are ids each


_LOCK = threading.Lock()


@cache
def _speaker(language: str) -> Espeak:
    return Espeak(language)


@cache
def _library() -> Any:
    try:
        import espeakng_loader
    except ModuleNotFoundError as error:
        raise UserError("Phonemes need the package espeakng-loader: pip install espeakng-loader") from error
    library = ctypes.CDLL(espeakng_loader.get_library_path())
    library.espeak_TextToPhonemes.restype = ctypes.c_char_p
    if (
        library.espeak_Initialize(Espeak.SYNCHRONOUS, 0, espeakng_loader.get_data_path().encode(), Espeak.DO_NOT_EXIT)
        < 0
    ):
        raise UserError("espeak could not be started: install the package espeakng-loader anew.")
    return library
