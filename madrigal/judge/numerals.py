"""Numbers in a transcript as words, so that "42" and "forty-two" count as the same thing heard."""

from __future__ import annotations

import re

from madrigal.data.numerals import cardinal, digits, integer, ordinal, plural

CURRENCIES = {"$": ("dollar", "cent"), "£": ("pound", "penny"), "€": ("euro", "cent")}
PLURALS = {"penny": "pence"}


def _money(match: re.Match[str]) -> str:
    unit, part = CURRENCIES[match["sign"]]
    whole, fraction = int(match["whole"].replace(",", "")), match["fraction"]
    if fraction and len(fraction) != 2:  # "$1.5" and "$2.125" are read as decimals
        return f"{cardinal(whole)} point {digits(fraction)} {unit}s"
    spoken = [f"{cardinal(whole)} {unit}{'' if whole == 1 else 's'}"] if whole or not fraction else []
    if fraction and int(fraction):
        small = int(fraction)
        spoken.append(f"{cardinal(small)} {part if small == 1 else PLURALS.get(part, part + 's')}")
    return " and ".join(spoken) or f"zero {unit}s"


def spell_numbers(text: str) -> str:
    """Every number in `text` (lower case) as words: money, times, ordinals, decades, decimals, signs, years."""
    text = re.sub(r"(?P<sign>[$£€]) ?(?P<whole>\d+(?:,\d{3})*)(?:\.(?P<fraction>\d+))?", _money, text)
    # A number written with commas is no year; one with a decimal part is read further down.
    text = re.sub(r"\b\d{1,3}(?:,\d{3})+\b(?!\.\d)", lambda match: cardinal(int(match[0].replace(",", ""))), text)
    text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text)
    text = re.sub(r"\b(\d{1,2}):00\b", r"\1", text)
    text = re.sub(r"\b(\d{1,2}):0([1-9])\b", r"\1 oh \2", text)
    text = re.sub(r"\b(\d{1,2}):(\d\d)\b", r"\1 \2", text)
    text = re.sub(r"(?<![\w.])-(?=\d)", "minus ", text)
    text = re.sub(r"(\d+)(?:st|nd|rd|th)\b", lambda match: f" {ordinal(int(match[1]))} ", text)
    text = re.sub(r"(\d+)'?s\b", lambda match: f" {plural(integer(match[1]))} ", text)
    text = re.sub(r"(\d+)\.(\d+)", lambda match: f" {cardinal(int(match[1]))} point {digits(match[2])} ", text)
    return re.sub(r"\d+", lambda match: f" {integer(match[0])} ", text)
