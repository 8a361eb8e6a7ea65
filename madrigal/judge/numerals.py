"""Numbers as English words, so that "42" and "forty-two" count as the same thing heard."""

from __future__ import annotations

import re

ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
SCALES = ((10**12, "trillion"), (10**9, "billion"), (10**6, "million"), (10**3, "thousand"), (100, "hundred"))
IRREGULAR_ORDINALS = {
    "one": "first", "two": "second", "three": "third", "five": "fifth", "eight": "eighth", "nine": "ninth",
    "twelve": "twelfth",
}  # fmt: skip
CURRENCIES = {"$": ("dollar", "cent"), "£": ("pound", "penny"), "€": ("euro", "cent")}
PLURALS = {"penny": "pence"}


def cardinal(number: int) -> str:
    """42 -> "forty two"; numbers of a quadrillion and over are read digit by digit."""
    if number >= 10**15:
        return digits(str(number))
    for scale, word in SCALES:
        if number >= scale:
            rest = f" {cardinal(number % scale)}" if number % scale else ""
            return f"{cardinal(number // scale)} {word}{rest}"
    if number < 20:
        return ONES[number]
    rest = f" {ONES[number % 10]}" if number % 10 else ""
    return TENS[number // 10 - 2] + rest


def ordinal(number: int) -> str:
    """42 -> "forty second"."""
    *head, last = cardinal(number).split()
    if last in IRREGULAR_ORDINALS:
        last = IRREGULAR_ORDINALS[last]
    else:
        last = last.removesuffix("y") + "ieth" if last.endswith("y") else f"{last}th"
    return " ".join([*head, last])


def digits(text: str) -> str:
    """ "007" -> "zero zero seven"."""
    return " ".join(ONES[int(digit)] for digit in text)


def integer(text: str) -> str:
    """A string of digits as a person would read it: a leading zero by digits, a year in pairs, the rest as a number."""
    if len(text) > 1 and text.startswith("0"):
        return digits(text)
    number = int(text)
    if len(text) == 4 and (1100 <= number <= 1999 or 2010 <= number <= 2099):
        century, year = divmod(number, 100)
        if year == 0:
            return f"{cardinal(century)} hundred"
        return f"{cardinal(century)} {'oh ' if year < 10 else ''}{cardinal(year)}"
    return cardinal(number)


def plural(words: str) -> str:
    """ "nineteen ninety" -> "nineteen nineties"."""
    return words.removesuffix("y") + "ies" if words.endswith("y") else f"{words}s"


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
