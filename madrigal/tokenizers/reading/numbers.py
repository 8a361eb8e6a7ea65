"""Numbers that stand alone: telephones, versions, fractions, ordinals, decades, ranges, years, and what is left."""

import re

from madrigal.data.numerals import cardinal, decimal, digits, integer, ordinal, plural

NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.\d+|\d+|(?<!\d)\.\d+)"
"""1,234.56 or 1234.56 or 1234 or .56"""
ORDINAL = "(?:st|nd|rd|th)"
FRACTIONS = {
    "½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅖": "2/5", "⅗": "3/5", "⅘": "4/5",
    "⅙": "1/6", "⅚": "5/6", "⅛": "1/8", "⅜": "3/8", "⅝": "5/8", "⅞": "7/8",
}  # fmt: skip
# Other denominators are more often a ratio, a date or a name than a part of something.
DENOMINATORS = {*range(2, 11), 12, 16, 20, 32, 50, 64, 100, 1000}
SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
AS_NAMES = {"24/7": "twenty-four seven", "9/11": "nine eleven"}


def read_numbers(text: str) -> str:
    """Every digit of `text` in words."""
    text = read_telephones(text)
    text = read_fractions(text)
    text = read_powers(text)
    text = re.sub(r"(?<![\d.])(\d+(?:\.\d+){2,})(?!\w)", _chain, text)
    text = re.sub(rf"(?<=\d)({ORDINAL})[-–](?=\d+{ORDINAL}\b)", r"\1 to ", text)
    text = re.sub(r"(?<=0s)[-–](?=\d*0s\b)", " to ", text)
    text = re.sub(rf"\b(\d{{1,15}}){ORDINAL}\b", lambda m: ordinal(int(m[1])), text)
    text = re.sub(r"(?<!\w)'(?=\d\d(?!['\w]))", "", text)  # '99
    text = re.sub(r"(?<![\w.,])'?(\d{1,3}0|\d0)'?s\b", lambda m: plural(integer(m[1])), text)
    text = read_signs(text)
    # A letter and a digit beside each other are two words: mp3, B2B, F-16, COVID-19.
    text = re.sub(r"(?<=[^\W\d_])-?(?=\d)|(?<=\d)(?=[^\W\d_])", " ", text)
    text = re.sub(NUMBER, lambda m: _plain(m[0]), text)
    return re.sub(r"\d", lambda m: f" {digits(m[0])} ", text)


def read_ranges(text: str) -> str:
    """A dash between two numbers is "to"; with spaces around it and before "=" it is "minus"."""
    minus = rf"({NUMBER}) [-−–] ({NUMBER})(?= ?=)"
    text = re.sub(minus, r"\1 minus \2", text)
    pair = rf"(?<![\w.,/−–-])([$£€¥]?{NUMBER}) ?[–—] ?(?=[$£€¥]?\.?\d)(?!{NUMBER}[–—-]\d)"
    text = re.sub(pair, r"\1 to ", text)
    hyphen = rf"(?<![\w.,/−–-])([$£€¥]?{NUMBER})-(?=[$£€¥]?\.?\d)(?!{NUMBER}-\d)"
    return re.sub(hyphen, r"\1 to ", text)


def read_telephones(text: str) -> str:
    """Groups of digits that are dialled or typed, each digit by itself and a pause after each group."""
    shapes = (
        r"(?<![\w.])\+\d{1,3}(?:[ .-]?\(?\d{2,5}\)?){2,5}(?![\w-])",  # +44 20 7946 0958
        r"(?<![\w.-])(?:1[ .-])?\(\d{3}\) ?\d{3}[ .-]\d{4}(?![\w-])",  # (555) 123-4567
        r"(?<![\w.-])(?:1[ .-])?\d{3}([ .-])\d{3}\1\d{4}(?![\w-])",  # 555-123-4567
        r"(?<![\w.-])\d{3}-\d{4}(?![\w-])",  # 555-1234
        r"(?<![\w.-])0\d{2,4}([ -])\d{3,4}\1\d{3,4}(?![\w-])",  # 0800 123 456
        r"(?<![\w.-])\d{3}-\d{2}-\d{4}(?![\w-])",  # 123-45-6789
        r"(?<![\w.-])\d{4}([ -])\d{4}\1\d{4}\1\d{4}(?![\w-])",  # a card
        r"(?<=\b[Cc]all )\d{3,}\b|(?<=\b[Dd]ial )\d{3,}\b|(?<=\b[Tt]ext )\d{4,}\b",
    )
    text = re.sub(r"\d{16,}", lambda m: f" {digits(m[0])} ", text)
    for shape in shapes:
        text = re.sub(shape, _dialled, text)
    return re.sub(
        r"(?<![\w.,$£€¥])\d{10,}(?![\w.,]\d|\w)", lambda m: m[0] if m[0].endswith("000") else digits(m[0]), text
    )


def read_fractions(text: str) -> str:
    """3/4 and ¾ -> "three quarters", 2 1/2 and 2½ -> "two and a half", 24/7 and 50/50 as they are said."""
    for sign, written in FRACTIONS.items():
        text = re.sub(rf"(?<=\d){sign}", f" {written}", text).replace(sign, written)
    text = text.replace("⁄", "/")
    for written, said in AS_NAMES.items():
        text = re.sub(rf"(?<![\w/.]){written}(?![\w/])", said, text)
    return re.sub(r"(?<![\w/.,])(?:(\d{1,6})[ -])?(\d{1,6})/(\d{1,6})(?![\w/]|\.\d|,\d{3})", _fraction, text)


def read_powers(text: str) -> str:
    """6.02e23, 10^6, 10⁶ and x²."""
    text = re.sub(
        r"(?<![\w.])(\d+(?:\.\d+)?)[eE]([+-]?\d{1,6})(?!\w)",
        lambda m: f"{decimal(m[1])} times ten to the power of {cardinal(int(m[2]))}",
        text,
    )
    text = re.sub("(?<=[0-9A-Za-z)])[⁰¹²³⁴⁵⁶⁷⁸⁹⁻]+", lambda m: f"^{m[0].translate(SUPERSCRIPTS)}", text)
    return re.sub(r"(?<=[\w)])\^\(?([-−]?\d{1,6})(?!\d)\)?", _power, text)


def read_signs(text: str) -> str:
    """Signs that belong to a number."""
    text = re.sub(r"(?<![\w.,)%°])[-−–](?=\.?\d)", "minus ", text)
    text = re.sub(r"(?<!\w)\+(?=\.?\d)", "plus ", text)
    text = re.sub(r"(?<!\w)~ ?(?=\.?\d)", "about ", text)
    text = re.sub(r"(?<=\d) ?× ?(?=\.?\d)| \* (?=\d)", " times ", text)
    text = re.sub(r"(?<=\d) / (?=\d)", " divided by ", text)
    text = re.sub(r"(?<=\d)x(?=\d)|(?<=\d) x (?=\d)", " by ", text)
    text = re.sub(r"(?<=\d)[x×]\b", " times", text)
    text = re.sub(r"(?<=\d):(?=\d)", " to ", text)
    return re.sub(r"#(?=\d)", "number ", text)


def _dialled(match: re.Match[str]) -> str:
    groups = ", ".join(digits(group) for group in re.findall(r"\d+", match[0]))
    return f"plus {groups}" if match[0].startswith("+") else groups


def _chain(match: re.Match[str]) -> str:
    parts = match[1].split(".")
    return " " + f" {'dot' if len(parts) == 4 else 'point'} ".join(integer(part) for part in parts)


def _fraction(match: re.Match[str]) -> str:
    whole, top, bottom = match[1], int(match[2]), int(match[3])
    if top == bottom and not whole:
        return f"{cardinal(top)} {cardinal(bottom)}"
    if bottom not in DENOMINATORS or (top >= bottom and (whole or top > 99)):
        said = f"{cardinal(top)} over {cardinal(bottom)}"
        return f"{cardinal(int(whole))} {said}" if whole else said
    part = {2: "half", 4: "quarter"}.get(bottom) or ordinal(bottom)
    if top == 1:
        said = f"a {part}" if whole else f"one {part}"
    else:
        said = f"{cardinal(top)} {'halves' if bottom == 2 else part + 's'}"
    return f"{cardinal(int(whole))} and {said}" if whole else said


def _power(match: re.Match[str]) -> str:
    exponent = int(match[1].replace("−", "-"))
    return {2: " squared", 3: " cubed"}.get(exponent) or f" to the power of {cardinal(exponent)}"


def _plain(text: str) -> str:
    return integer(text) if text.isdecimal() else decimal(text)
