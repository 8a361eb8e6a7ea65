"""Numbers as English words, by num2words: what is said of one here is what a judge expects to hear.

American: no "and" after the hundreds. Words are joined by spaces, and "forty-two" by its hyphen.
"""

ONES = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
    "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen",
)  # fmt: skip
TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
NAMED = 10**15
"""From here on numbers are read digit by digit: nobody knows their names."""


def cardinal(number: int) -> str:
    """42 -> "forty-two", -3 -> "minus three"."""
    if number < 0:
        return f"minus {cardinal(-number)}"
    return digits(str(number)) if number >= NAMED else _spoken(number, "cardinal")


def ordinal(number: int) -> str:
    """42 -> "forty-second"; past the names as `cardinal`, with "th" at the end of a digit that takes it."""
    if number < NAMED:
        return _spoken(number, "ordinal")
    *head, last = digits(str(number)).split()
    return " ".join([*head, _spoken(ONES.index(last), "ordinal")])


def digits(text: str) -> str:
    """ "007" -> "zero zero seven"."""
    return " ".join(ONES[int(digit)] for digit in text)


def integer(text: str) -> str:
    """A string of digits as a person would read it: a leading zero by digits, a year in pairs, the rest as a number."""
    if len(text) > 15 or (len(text) > 1 and text.startswith("0")):
        return digits(text)
    number = int(text)
    if len(text) == 4 and (1100 <= number <= 1999 or 2010 <= number <= 2099):
        century, year = divmod(number, 100)
        if year == 0:
            return f"{cardinal(century)} hundred"
        return f"{cardinal(century)} {'oh ' if year < 10 else ''}{cardinal(year)}"
    return cardinal(number)


def decimal(text: str) -> str:
    """ "1,234.56" -> "one thousand two hundred thirty-four point five six"; ".5" -> "zero point five"."""
    whole, _, fraction = text.replace(",", "").partition(".")
    by_digits = len(whole) > 15 or (len(whole) > 1 and whole.startswith("0"))
    spoken = digits(whole) if by_digits else cardinal(int(whole or 0))
    return f"{spoken} point {digits(fraction)}" if fraction else spoken


def plural(words: str) -> str:
    """ "nineteen ninety" -> "nineteen nineties", "six" -> "sixes"."""
    if words.endswith("y"):
        return words.removesuffix("y") + "ies"
    return f"{words}es" if words.endswith("x") else f"{words}s"


def _spoken(number: int, kind: str) -> str:
    from num2words import num2words  # here, because it reads the rules of fifty languages

    return str(num2words(number, to=kind)).replace(" and ", " ").replace(",", "")
