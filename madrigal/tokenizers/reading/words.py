"""Words that are written short: abbreviations, initials and Roman numerals."""

import re

from madrigal.data.numerals import cardinal, ordinal
from madrigal.tokenizers.reading.endings import STARTERS, ends_sentence

# Before a name, a number or a further word; their full stop never ends a sentence.
BEFORE = {
    "Mr": "Mister", "Mrs": "Missus", "Ms": "Miss", "Dr": "Doctor", "Prof": "Professor", "Gen": "General",
    "Col": "Colonel", "Capt": "Captain", "Lt": "Lieutenant", "Sgt": "Sergeant", "Rev": "Reverend", "Gov": "Governor",
    "Sen": "Senator", "Rep": "Representative", "Pres": "President", "Hon": "Honorable", "Mt": "Mount", "Ft": "Fort",
    "St": "Saint",
}  # fmt: skip
# Their full stop may end a sentence too.
ANYWHERE = {
    "vs": "versus", "etc": "et cetera", "Jr": "Junior", "Sr": "Senior", "Inc": "Incorporated", "Ltd": "Limited",
    "Corp": "Corporation", "Co": "Company", "Bros": "Brothers", "approx": "approximately", "dept": "department",
    "Dept": "Department", "Ave": "Avenue", "Blvd": "Boulevard", "Rd": "Road", "Hwy": "Highway", "Univ": "University",
    "govt": "government", "misc": "miscellaneous", "temp": "temperature", "tel": "telephone", "Tel": "Telephone",
    "et al": "and others", "ca": "circa", "incl": "including", "max": "maximum", "min": "minimum", "avg": "average",
    "cf": "compare", "viz": "namely", "resp": "respectively", "esp": "especially", "est": "established",
}  # fmt: skip
BEFORE_NUMBERS = {
    "no": "number", "nos": "numbers", "vol": "volume", "ch": "chapter", "fig": "figure", "figs": "figures",
    "eq": "equation", "sec": "section", "p": "page", "pp": "pages", "art": "article", "ed": "edition",
    "apt": "apartment", "c": "circa",
}  # fmt: skip
SPELLED = frozenset([
    "AC", "AD", "AI", "AM", "API", "ATM", "BCE", "CE", "CEO", "CIA", "CPU", "DIY", "DNA", "EU", "EV", "FAQ", "FBI",
    "GPA", "GPU", "HIV", "IBM", "ID", "IOU", "IP", "IPO", "IQ", "ISBN", "MIT", "OS", "PA", "RNA", "SUV", "UAE", "UFO",
    "UI", "UK", "UN", "URL", "USA", "USB", "USSR", "UV", "UX", "VIP", "YMCA",
])  # fmt: skip
COUNTED = "Chapter|Part|Volume|Act|Section|Book|War|Scene|Article|Phase|Stage|Episode|Bowl|chapter|volume|section|phase"
REIGNING = (
    "Henry|Louis|George|Edward|Richard|Charles|James|William|John|Paul|Pius|Elizabeth|Mary|Philip|Catherine|Nicholas"
    "|Alexander|Peter|Napoleon|Frederick|Wilhelm|Benedict|Gregory|Innocent|Leo|Clement|Francis|Ramses|Ptolemy|Ivan"
    "|Constantine|Otto|Christian|Gustav|Ferdinand|Alfonso|Juan|Umberto|Victor"
)
ROMAN = re.compile(r"M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})")
VALUES = {"M": 1000, "D": 500, "C": 100, "L": 50, "X": 10, "V": 5, "I": 1}


def read_abbreviations(text: str) -> str:
    """Dr. Smith, St. Paul, Main St., e.g., i.e., No. 5, p. 7, etc."""
    text = re.sub(r"\be\. ?g\.,?", "for example,", text)
    text = re.sub(r"\bi\. ?e\.,?", "that is,", text)
    text = re.sub(r"\bE\. ?g\.,?", "For example,", text)
    text = re.sub(r"\bI\. ?e\.,?", "That is,", text)
    # A street has a name before it, a saint has one behind.
    text = re.sub(r"(?<=[a-z0-9] )St\b(?!\. ?[A-Z])(?! [A-Z])\.?", lambda m: "Street" + _stop(m), text)
    text = re.sub(rf"(?<=[a-z0-9] )St\.(?= (?:{STARTERS})\b)", "Street.", text)
    numbered = "|".join(f"[{word[0]}{word[0].upper()}]{word[1:]}" for word in BEFORE_NUMBERS)
    text = re.sub(rf"(?<![\w.])({numbered})\. ?(?=\d)", _numbered, text)
    text = re.sub(r"(?:№|\bNº|\bnº|\bN°) ?(?=\d)", "number ", text)
    text = re.sub(rf"(?<![\w.])({'|'.join(BEFORE)})(?:\. ?|(?<=Mr) |(?<=Mrs) |(?<=Dr) )(?=[A-Z]|and\b)", _title, text)
    short = "|".join(sorted(ANYWHERE, key=len, reverse=True))
    text = re.sub(rf"(?<![\w.])({short})\.(?!\w)", lambda m: ANYWHERE[m[1]] + _stop(m), text)
    text = re.sub(r"(?<![\w.])(vs|Jr|Sr|Inc|Ltd)\b(?=,| [A-Za-z])(?!\.)", lambda m: ANYWHERE[m[1]], text)
    text = re.sub(r"\bw/o\b", "without", text).replace("and/or", "and or")
    return re.sub(r"\bw/ ?(?=[a-z])", "with ", text)


def read_initials(text: str) -> str:
    """U.S.A. and FBI letter by letter; an abbreviation that can be read as a word (NASA) is left one."""
    text = re.sub(r"\bPh\. ?D\.|\bPhD\b", lambda m: "P H D" + (_stop(m) if m[0][-1] == "." else ""), text)
    text = re.sub(r"(?<![\w.])((?:[A-Za-z]\.){2,})(?!\w)", lambda m: " ".join(m[1].split(".")).strip() + _stop(m), text)
    text = re.sub(r"(?<![\w.'’-])OK(?![\w'’])", "okay", text)
    words = re.findall(r"[A-Za-z]{2,}", text)
    if len(words) > 3 and sum(word.isupper() for word in words) > 0.6 * len(words):  # a text that shouts
        return text
    return re.sub(r"(?<![\w'’])([A-Z]{2,6})(s?)(?![\w])", _initials, text)


def read_roman(text: str) -> str:
    """Roman numerals where nothing else is likely: Chapter IV, World War II, Louis XIV, but not "Mary, I said"."""
    text = re.sub(rf"\b({REIGNING}) ([IVX]{{2,}}|V|X|I(?=[,.;)]|$| of\b))(?!\w)", _reigning, text)
    return re.sub(rf"\b({COUNTED}) ([IVXLC]{{2,}}|[IVX])(?![\w'’])(?! am\b)", _counted, text)


def _reigning(match: re.Match[str]) -> str:
    value = roman_value(match[2])
    return f"{match[1]} the {ordinal(value)}" if value else match[0]


def _counted(match: re.Match[str]) -> str:
    value = roman_value(match[2])
    return f"{match[1]} {cardinal(value)}" if value else match[0]


def roman_value(numeral: str) -> int | None:
    """XIV -> 14; None for what is no Roman numeral."""
    if not numeral or not ROMAN.fullmatch(numeral):
        return None
    values = [VALUES[letter] for letter in numeral]
    return sum(-value if value < after else value for value, after in zip(values, [*values[1:], 0], strict=True))


def _title(match: re.Match[str]) -> str:
    return f"{BEFORE[match[1]]} "


def _numbered(match: re.Match[str]) -> str:
    word = BEFORE_NUMBERS[match[1].lower()]
    return f"{word.capitalize() if match[1][0].isupper() else word} "


def _initials(match: re.Match[str]) -> str:
    letters = match[1]
    if letters not in SPELLED and re.search("[AEIOUY]", letters):
        return match[0]
    return " ".join(letters) + ("s" if match[2] else "")


def _stop(match: re.Match[str]) -> str:
    return "." if ends_sentence(match.string[match.end() :]) else ""
