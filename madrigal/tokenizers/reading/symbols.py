"""Symbols, Greek letters and emoji by their names, and typography as plain marks."""

import re
import unicodedata

NAMES = {
    "&": "and", "@": "at", "+": "plus", "=": "equals", "%": "percent", "°": "degrees", "§": "section", "¶": "paragraph",
    "©": "copyright", "®": "registered", "™": "trademark", "×": "times", "÷": "divided by", "±": "plus or minus",
    "−": "minus", "≤": "less than or equal to", "≥": "greater than or equal to", "≠": "is not equal to",
    "≈": "approximately", "∞": "infinity", "√": "square root of", "∑": "sum", "∫": "integral", "∂": "partial",
    "∈": "in", "<": "less than", ">": "greater than", "→": "right arrow", "←": "left arrow", "↑": "up arrow",
    "↓": "down arrow", "⇒": "implies", "$": "dollar", "€": "euro", "£": "pound", "¥": "yen", "¢": "cent",
    "₹": "rupee", "₽": "rouble", "₩": "won", "₿": "bitcoin", "/": "slash", "\\": "backslash", "_": "underscore",
    "|": "vertical bar", "~": "tilde", "^": "caret", "`": "backtick", "*": "asterisk", "#": "hash", "†": "dagger",
    "‰": "per mille", "♥": "heart", "♪": "note", "♫": "notes", "✓": "check mark", "✔": "check mark", "★": "star",
    "☆": "star", "{": "open brace", "}": "close brace", "№": "number",
}  # fmt: skip
# Marks that are seen and not heard, as others write them.
TYPOGRAPHY = {
    "‘": "'", "’": "'", "‚": "'", "‛": "'", "′": "'", "ʼ": "'", "´": "'", "“": '"', "”": '"', "„": '"', "‟": '"',
    "″": '"', "«": '"', "»": '"', "‹": "'", "›": "'", "‐": "-", "‑": "-", "‒": "–", "―": "—", "…": "...", "•": ",",
    "·": ",", "‣": ",", "▪": ",", "¡": "", "¿": "", "\u00ad": "", "\u200b": "", "\u2060": "", "\ufeff": "",
    "\u200e": "", "\u200f": "", "℃": "°C", "℉": "°F",
}  # fmt: skip
SKIN = {
    "\U0001f3fb": "light", "\U0001f3fc": "medium light", "\U0001f3fd": "medium", "\U0001f3fe": "medium dark",
    "\U0001f3ff": "dark",
}  # fmt: skip
FLAG = re.compile("[\U0001f1e6-\U0001f1ff]{2}")
KEYCAP = re.compile("([0-9#*])\ufe0f?\u20e3")
JOINERS = "\u200d\ufe0e\ufe0f"
GREEK = re.compile(r"(?<![\u0370-\u03ff\u1f00-\u1fff])[\u0391-\u03c9](?![\u0370-\u03ff\u1f00-\u1fff])")
EMPHASIS = re.compile(r"(?<![\w*_`~])(\*{1,3}|_{1,3}|`{1,3}|~~)(?=\S)([^*_`\n]+?)(?<=\S)\1(?![\w*_`~])")


def plain_marks(text: str) -> str:
    """Quotes, hyphens and bullets as ASCII has them, and the marks of emphasis taken away."""
    for mark, plain in TYPOGRAPHY.items():
        text = text.replace(mark, plain)
    text = re.sub(r"(?m)^[ \t]*(?:[-*+]|#{1,6})[ \t]+(?=\S)", "", text)  # items and headings of plain-text markup
    return EMPHASIS.sub(r"\2", EMPHASIS.sub(r"\2", text))


def read_emoji(text: str) -> str:
    """Emoji by their Unicode names: flags by the letters of their country, skin tones as such."""
    text = KEYCAP.sub(r" \1 ", text)
    text = FLAG.sub(lambda m: f" flag of {' '.join(chr(ord(c) - 0x1F1E6 + ord('A')) for c in m[0])} ", text)
    text = re.sub(f"[{JOINERS}]", "", text)
    return "".join(_emoji(character) for character in text)


def read_symbols(text: str) -> str:
    """What is left of symbols, by name. Dashes and brackets are marks, and stay."""
    text = re.sub(r"#(?=[^\W\d_])", "hashtag ", text)
    text = re.sub(r"(?<=\w)&(?=\w)", " and ", text)
    text = re.sub(r"(?<=[A-Za-z])/(?=[A-Za-z])", " slash ", text)
    text = re.sub(r"(?<![\w\s])-{2,}|-{2,}", "—", text)
    text = GREEK.sub(_greek, text)
    return "".join(f" {NAMES[character]} " if character in NAMES else character for character in text)


def _emoji(character: str) -> str:
    if character in SKIN:
        return f" {SKIN[character]} skin tone "
    name = unicodedata.name(character, "").lower()
    if character in NAMES or unicodedata.category(character) != "So" or "replacement" in name or not name:
        return character
    return f" {re.sub('[^a-z]+', ' ', name).strip()} "


def _greek(match: re.Match[str]) -> str:
    name = unicodedata.name(match[0]).lower()
    return f" {name.split('letter ')[-1].removeprefix('final ').split(' with ')[0]} "
