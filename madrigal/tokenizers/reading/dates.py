"""Dates and times of day: "March 5, 2024" -> "March fifth, twenty twenty-four", "9:05 pm" -> "nine oh five p m"."""

import re

from madrigal.data.numerals import cardinal, integer, ordinal
from madrigal.tokenizers.reading.endings import ends_sentence

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
SHORT_MONTHS = {month[:3]: month for month in MONTHS} | {"Sept": "September"}
DAYS = {
    "Mon": "Monday", "Tue": "Tuesday", "Tues": "Tuesday", "Wed": "Wednesday", "Thu": "Thursday", "Thur": "Thursday",
    "Thurs": "Thursday", "Fri": "Friday", "Sat": "Saturday", "Sun": "Sunday",
}  # fmt: skip
MONTH = rf"(?:{'|'.join(MONTHS)})"
SHORT = rf"(?:{'|'.join(sorted(SHORT_MONTHS, key=len, reverse=True))})"
DAY = r"(?:3[01]|[12]\d|0?[1-9])(?:st|nd|rd|th)?"
YEAR = r"(?:1\d{3}|20\d{2})"
HALF = r"(?:[ap]\.m\.|[AP]\.M\.|[ap]m|[AP]M)"
HALF_END = r"(?![A-Za-z])"


def read_dates(text: str) -> str:
    """Every date of `text` in words; a numeric one is read month first unless that is no month."""
    text = re.sub(rf"\b({'|'.join(DAYS)})\.?(?=,? (?:the )?(?:{MONTH}|{SHORT}\b|\d))", lambda m: DAYS[m[1]], text)
    text = re.sub(rf"\b({SHORT})\b\.?(?= (?:\d|the \d))", lambda m: SHORT_MONTHS[m[1]], text)
    text = re.sub(rf"(?<=\d )({SHORT})\b\.?|(?<=\d(?:st|nd|rd|th) )({SHORT})\b\.?", _month, text)
    text = re.sub(r"(?<![\w-])(\d{4}-\d\d-\d\d)T(?=\d\d:\d\d)", r"\1 ", text)
    text = re.sub(r"(?<![\w-])(\d{4})-(\d\d)-(\d\d)(?![\w-])", lambda m: _named(m, m[1], m[2], m[3]), text)
    text = re.sub(r"(?<![\w/])(\d{1,2})/(\d{1,2})/(\d{4}|\d{2})(?![\w/])", _slashed, text)
    text = re.sub(r"(?<![\w.])(\d{1,2})\.(\d{1,2})\.(\d{4})(?!\w|\.\d)", lambda m: _named(m, m[3], m[2], m[1]), text)
    after = r"(?![\w%°]|[.,:]\d)"
    text = re.sub(rf"\b({MONTH}) ({DAY}) ?[-–] ?({DAY})(?:,? ({YEAR}))?{after}", _month_days, text)
    text = re.sub(rf"\b({MONTH}) ({DAY}),? ({YEAR}){after}", lambda m: f"{m[1]} {_day(m[2])}, {integer(m[3])}", text)
    text = re.sub(rf"\b({MONTH}) ({DAY}){after}", lambda m: f"{m[1]} {_day(m[2])}", text)
    text = re.sub(rf"(?<![\w.,-])(?:[Tt]he )?({DAY}) (?:of )?({MONTH})(?:,? ({YEAR}))?{after}", _day_month, text)
    return re.sub(rf"\b({MONTH}),? ({YEAR}){after}", lambda m: f"{m[1]} {integer(m[2])}", text)


def read_times(text: str) -> str:
    """Every time of day in words."""
    hour = r"\d{1,2}(?::\d\d)?"
    text = re.sub(rf"(?<![\w:.])({hour}(?: ?{HALF})?) ?[-–] ?(?={hour} ?{HALF}{HALF_END}|\d?\d:\d\d)", r"\1 to ", text)
    # The half of the day of "6 to 7 p.m." belongs to both, and is said once.
    clock = rf"(?<![\w:.])([01]?\d|2[0-4]):([0-5]\d)(?::([0-5]\d))?(?![\d:]) ?({HALF}{HALF_END})?"
    text = re.sub(clock, _clock, text)
    return re.sub(
        rf"(?<![\w.])(1[0-2]|[1-9]) ?({HALF}){HALF_END}",
        lambda m: f"{cardinal(int(m[1]))} {_half(m, 2)}",
        text,
    )


def _month(match: re.Match[str]) -> str:
    return SHORT_MONTHS[match[1] or match[2]]


def _day(text: str) -> str:
    return ordinal(int(re.sub(r"\D", "", text)))


def _named(match: re.Match[str], year: str, month: str, day: str) -> str:
    """A date from its numbers, or what was written if there is no such date."""
    if not (1 <= int(month) <= 12 and 1 <= int(day) <= 31):
        return match[0]
    said = f"oh {cardinal(int(year))}" if len(year) == 2 and 0 < int(year) < 10 else integer(year)
    return f"{MONTHS[int(month) - 1]} {_day(day)}, {said}"


def _slashed(match: re.Match[str]) -> str:
    month, day = (match[1], match[2]) if int(match[1]) <= 12 else (match[2], match[1])
    return _named(match, match[3], month, day)


def _month_days(match: re.Match[str]) -> str:
    said = f"{match[1]} {_day(match[2])} to {_day(match[3])}"
    return f"{said}, {integer(match[4])}" if match[4] else said


def _day_month(match: re.Match[str]) -> str:
    article = "The" if match[0].startswith("The") else "the"
    said = f"{article} {_day(match[1])} of {match[2]}"
    return f"{said}, {integer(match[3])}" if match[3] else said


def _clock(match: re.Match[str]) -> str:
    hour, minute, half = int(match[1]), int(match[2]), match[4]
    if minute:
        said = f"{cardinal(hour)} {'oh ' if minute < 10 else ''}{cardinal(minute)}"
    elif half:
        said = cardinal(hour)
    elif hour % 24 == 0:
        said = "midnight"
    else:
        said = cardinal(hour) + (" hundred" if hour > 12 else " o'clock")
    if match[3] and int(match[3]):
        said += f" and {cardinal(int(match[3]))} second{'' if int(match[3]) == 1 else 's'}"
    if half:
        return f"{said} {_half(match, 4)}"
    return said + " " * match[0].endswith(" ")


def _half(match: re.Match[str], group: int) -> str:
    """ "p.m." -> "p m", with its full stop where the sentence ends there."""
    said = f"{match[group][0].lower()} m"
    ends = match[group].endswith(".") and ends_sentence(match.string[match.end() :])
    return f"{said}." if ends else said
