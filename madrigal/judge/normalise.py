"""English text made comparable: what is written two ways but said one way must not count as an error."""

from __future__ import annotations

import re
import unicodedata

from madrigal.data.numerals import ONES, TENS
from madrigal.judge.numerals import spell_numbers

WORDS = {
    "mr": "mister", "mrs": "missus", "ms": "miss", "dr": "doctor", "prof": "professor", "vs": "versus",
    "etc": "et cetera", "ok": "okay", "gonna": "going to", "wanna": "want to", "gotta": "got to",
    "cannot": "can not", "gimme": "give me", "lemme": "let me", "kinda": "kind of", "email": "e mail",
    "alright": "all right", "ya": "you", "yeah": "yes", "yep": "yes", "til": "until", "cause": "because",
}  # fmt: skip
CONTRACTIONS = {
    "won't": "will not", "can't": "can not", "shan't": "shall not", "ain't": "is not", "let's": "let us",
    "y'all": "you all", "o'clock": "oclock", "ma'am": "madam", "'cause": "because", "'em": "them", "'til": "until",
}  # fmt: skip
ENDINGS = (("n't", " not"), ("'re", " are"), ("'ve", " have"), ("'ll", " will"), ("'d", " would"), ("'m", " am"))
IS_AFTER = frozenset(["it", "that", "this", "he", "she", "there", "here", "what", "who", "where", "how", "when", "why"])
FILLERS = frozenset(["um", "uh", "uhm", "umm", "er", "erm", "hm", "hmm", "mm", "mhm"])
NUMBER_WORDS = "|".join([*ONES, *TENS])
SYMBOLS = {"%": " percent ", "&": " and ", "@": " at ", "+": " plus ", "=": " equals ", "°": " degrees "}


def normalise(text: str) -> str:
    """Lower-case words with single spaces: no punctuation, no digits, no contractions, no fillers."""
    text = unicodedata.normalize("NFKC", text).lower()
    text = re.sub("[‘’ʼ`´]", "'", text)
    text = re.sub(r"\[[^\]]*\]|<[^>]*>", " ", text)  # annotations such as [laughs] are not said
    text = re.sub(r"\b(?:[a-z]\.){2,}", lambda match: match[0].replace(".", "") + " ", text)
    text = spell_numbers(text)
    for symbol, word in SYMBOLS.items():
        text = text.replace(symbol, word)
    text = " ".join(_expand(token) for token in re.findall(r"'?\w+(?:'\w+)*", text.replace("_", " ")))
    # "one hundred and five" is "one hundred five" to half of all writers.
    text = re.sub(rf"\b(hundred|thousand|million|billion) and (?=(?:{NUMBER_WORDS})\b)", r"\1 ", text)
    return " ".join(word for word in text.split() if word not in FILLERS)


def _expand(token: str) -> str:
    """One token without its apostrophes: contractions in full, possessives joined."""
    if token in CONTRACTIONS:
        return CONTRACTIONS[token]
    token = token.removeprefix("'")
    for ending, words in ENDINGS:
        if token.endswith(ending) and len(token) > len(ending):
            return _expand(token.removesuffix(ending)) + words
    if token.endswith("'s") and token[:-2] in IS_AFTER:
        return f"{token[:-2]} is"
    token = token.replace("'", "")
    return WORDS.get(token, token)
