"""Amounts: money, percent and units, each with the number that it belongs to."""

import re
from typing import NamedTuple

from madrigal.data.numerals import cardinal, decimal
from madrigal.tokenizers.reading.numbers import NUMBER


class Currency(NamedTuple):
    """What one, several, one hundredth and several hundredths of it are called; "" where it has no hundredths."""

    one: str
    many: str
    cent: str = ""
    cents: str = ""


DOLLAR, EURO = Currency("dollar", "dollars", "cent", "cents"), Currency("euro", "euros", "cent", "cents")
POUND, YEN = Currency("pound", "pounds", "penny", "pence"), Currency("yen", "yen")
FRANC, YUAN = Currency("Swiss franc", "Swiss francs", "centime", "centimes"), Currency("yuan", "yuan")
RUPEE, ROUBLE = Currency("rupee", "rupees", "paisa", "paise"), Currency("rouble", "roubles", "kopeck", "kopecks")
SIGNS = {
    "US$": Currency("US dollar", "US dollars", "cent", "cents"),
    "C$": Currency("Canadian dollar", "Canadian dollars", "cent", "cents"),
    "A$": Currency("Australian dollar", "Australian dollars", "cent", "cents"),
    "$": DOLLAR, "€": EURO, "£": POUND, "¥": YEN, "₹": RUPEE, "₽": ROUBLE, "₩": Currency("won", "won"),
    "₿": Currency("bitcoin", "bitcoins"),
}  # fmt: skip
CODES = {
    "USD": DOLLAR, "EUR": EURO, "GBP": POUND, "JPY": YEN, "CHF": FRANC, "CNY": YUAN, "INR": RUPEE, "RUB": ROUBLE,
    "CAD": SIGNS["C$"], "AUD": SIGNS["A$"],
}  # fmt: skip
SCALES = {
    "k": "thousand", "K": "thousand", "m": "million", "M": "million", "mn": "million", "b": "billion", "B": "billion",
    "bn": "billion", "tn": "trillion",
}  # fmt: skip
SCALE_WORDS = "thousand|million|billion|trillion"
UNITS = {
    "km": "kilometer", "m": "meter", "cm": "centimeter", "mm": "millimeter", "nm": "nanometer", "µm": "micrometer",
    "μm": "micrometer", "mi": "mile", "ft": "foot", "yd": "yard", "yds": "yard", "kg": "kilogram", "g": "gram",
    "mg": "milligram", "lb": "pound", "lbs": "pound", "oz": "ounce", "l": "liter", "L": "liter", "ml": "milliliter",
    "mL": "milliliter", "cl": "centiliter", "gal": "gallon", "tbsp": "tablespoon", "tsp": "teaspoon", "s": "second",
    "sec": "second", "secs": "second", "ms": "millisecond", "min": "minute", "mins": "minute", "h": "hour",
    "hr": "hour", "hrs": "hour", "yrs": "year", "Hz": "hertz", "kHz": "kilohertz", "MHz": "megahertz",
    "GHz": "gigahertz", "kB": "kilobyte", "KB": "kilobyte", "MB": "megabyte", "GB": "gigabyte", "TB": "terabyte",
    "W": "watt", "kW": "kilowatt", "MW": "megawatt", "GW": "gigawatt", "kWh": "kilowatt hour", "Wh": "watt hour",
    "mAh": "milliamp hour", "V": "volt", "kV": "kilovolt", "mA": "milliamp", "dB": "decibel", "kcal": "kilocalorie",
    "kJ": "kilojoule", "Pa": "pascal", "kPa": "kilopascal", "hPa": "hectopascal", "ha": "hectare", "px": "pixel",
    "mph": "mile per hour", "kph": "kilometer per hour", "rpm": "revolution per minute", "fps": "frame per second",
    "dpi": "dot per inch", "Mbps": "megabit per second", "Gbps": "gigabit per second", "kbps": "kilobit per second",
    "m²": "square meter", "km²": "square kilometer", "cm²": "square centimeter", "ft²": "square foot",
    "sq ft": "square foot", "sq mi": "square mile", "m³": "cubic meter", "cm³": "cubic centimeter",
    "km2": "square kilometer", "m2": "square meter", "m3": "cubic meter", "°C": "degree Celsius",
    "°F": "degree Fahrenheit", "° C": "degree Celsius", "° F": "degree Fahrenheit", "°": "degree",
}  # fmt: skip
PER = {"day": "day", "week": "week", "month": "month", "year": "year", "person": "person", "mo": "month", "yr": "year"}
UNCHANGED = {"hertz", "kilohertz", "megahertz", "gigahertz"}

_SIGN = "|".join(re.escape(sign) for sign in SIGNS)
_CODE = "|".join(CODES)
_SCALE = rf"(?:[ -]?(?P<scale>{SCALE_WORDS})\b|(?P<short>{'|'.join(sorted(SCALES, key=len, reverse=True))})\b(?!/))"
_UNIT = "|".join(re.escape(unit) for unit in sorted(UNITS, key=len, reverse=True))
_BELOW = "|".join(re.escape(unit) for unit in sorted([*UNITS, *PER], key=len, reverse=True))
_MINUS = r"(?P<minus>(?<![\w.)])[-−–])?"
MONEY = (
    re.compile(rf"{_MINUS}(?P<sign>{_SIGN}) ?(?P<number>[-−]?{NUMBER}){_SCALE}?"),
    re.compile(rf"(?<![\w.]){_MINUS}(?P<sign>{_CODE}) ?(?P<number>{NUMBER}){_SCALE}?"),
    re.compile(rf"(?<![\w.]){_MINUS}(?P<number>{NUMBER}){_SCALE}? ?(?P<sign>{_CODE}|[€£₽₹])(?!\w)"),
)
MONEY_RANGE = re.compile(
    rf"(?<![\w.])(?P<sign>{_SIGN})(?P<low>{NUMBER}) ?[-–] ?(?:{_SIGN})?(?P<high>{NUMBER}){_SCALE}?(?![-–]?\d)|"
    rf"(?<![\w.-])(?P<from>{NUMBER}) ?[-–] ?(?P<to>{NUMBER}) ?(?P<after>{_CODE}|[€£])(?!\w)"
)
_MANY = "|".join(sorted({currency.many for currency in [*SIGNS.values(), *CODES.values()]}))
MONEY_PER = re.compile(rf"\b({_MANY}|cents|pence)/({_BELOW})\b")
MEASURE = re.compile(
    rf"(?<![\w.,]){_MINUS}(?P<number>{NUMBER})(?P<gap>[ -]?)(?P<unit>{_UNIT})(?:/(?P<per>{_BELOW}))?(?![\w²³'’])"
    r"(?:\.(?= [a-z]))?"  # 3 ft. deep
)


def read_money(text: str) -> str:
    """$5.50 -> "five dollars and fifty cents", €3.5 million -> "three point five million euros"."""
    text = re.sub(r"(?<=€)( ?\d+),(?=\d\d(?!\d))", r"\1.", text)  # as the countries of the euro write it
    text = re.sub(r"(?<![\d.,])(\d+),(\d\d)(?= ?€)", r"\1.\2", text)
    text = MONEY_RANGE.sub(_range, text)
    for shape in MONEY:
        text = shape.sub(_money, text)
    text = re.sub(rf"(?<![\w.,])({NUMBER}) ?¢", lambda m: _counted(m[1], "cent", "cents"), text)
    text = re.sub(r"(?<![\w.,])(\d\d?)p\b", lambda m: _counted(m[1], "penny", "pence"), text)
    return MONEY_PER.sub(lambda m: f"{m[1]} per {_unit(m[2])}", text)


def read_measures(text: str) -> str:
    """5 km -> "five kilometers", -3°C -> "minus three degrees Celsius", 5% -> "five percent"."""
    text = re.sub(rf"({NUMBER}) ?%", lambda m: f"{m[1]} percent", text)
    text = re.sub(rf"({NUMBER}) ?‰", lambda m: f"{m[1]} per mille", text)
    text = re.sub(r"(?<!\d)(\d{1,3})° ?(\d{1,2})['′] ?(?:([\d.]+)[\"″] ?)?([NSEW])\b", _bearing, text)
    text = re.sub(r"(?<![\w'’])(\d)['′] ?(\d{1,2})(?:[\"″]|(?!\w))", _height, text)
    # "30s" is a decade or an age; a unit of one letter that touches such a number is left to `read_numbers`.
    text = re.sub(r"(?<![\w.])(\d*0)s\b", "\\1\u2060s", text)
    text = MEASURE.sub(_measure, text).replace("\u2060", "")
    return re.sub(r"(?<![\w.,])(\d+(?:\.\d+)?)(k|bn)\b", lambda m: f"{decimal(m[1])} {SCALES[m[2]]}", text)


def _money(match: re.Match[str]) -> str:
    sign = match["sign"]
    currency = SIGNS.get(sign) or CODES[sign]
    number, scale = match["number"].lstrip("-−"), match["scale"] or SCALES.get(match["short"] or "")
    minus = "minus " if match["minus"] or number != match["number"] else ""
    if scale:
        return f"{minus}{decimal(number)} {scale} {_after_article(match, currency)}"
    whole, _, fraction = number.replace(",", "").partition(".")
    # "$1.5" and "$2.125" are read as decimals.
    if fraction and (len(fraction) != 2 or not currency.cent):
        return f"{minus}{decimal(number)} {currency.many}"
    small = int(fraction or 0)
    said = []
    if whole.strip("0") or not small:
        many = currency.one if whole == "1" else _after_article(match, currency)
        said.append(f"{decimal(whole or '0')} {many}")
    if small:
        said.append(f"{cardinal(small)} {currency.cent if small == 1 else currency.cents}")
    return minus + " and ".join(said)


def _range(match: re.Match[str]) -> str:
    if match["after"]:
        currency = SIGNS.get(match["after"]) or CODES[match["after"]]
        return f"{decimal(match['from'])} to {decimal(match['to'])} {currency.many}"
    scale = match["scale"] or SCALES.get(match["short"] or "")
    high = f"{decimal(match['high'])} {scale}" if scale else decimal(match["high"])
    return f"{decimal(match['low'])} to {high} {SIGNS[match['sign']].many}"


def _after_article(match: re.Match[str], currency: Currency) -> str:
    """ "a $5 bill" is a five dollar bill."""
    before, after = match.string[: match.start()], match.string[match.end() :]
    is_adjective = re.search(r"\b[Aa]n? $", before) and re.match(r" [a-z]", after)
    return currency.one if is_adjective else currency.many


def _counted(number: str, one: str, many: str) -> str:
    return f"{decimal(number)} {one if number == '1' else many}"


def _measure(match: re.Match[str]) -> str:
    number, unit, per = match["number"], match["unit"], match["per"]
    adjective = match["gap"] == "-"
    if adjective and len(unit) == 1 and unit.isupper():
        return match[0]
    name = UNITS[unit] if number == "1" or adjective else _several(UNITS[unit])
    return f"{'minus ' if match['minus'] else ''}{decimal(number)} {name}" + (f" per {_unit(per)}" if per else "")


def _unit(text: str) -> str:
    return UNITS.get(text) or PER[text]


def _several(unit: str) -> str:
    """ "mile per hour" -> "miles per hour", "square foot" -> "square feet", "degree Celsius" -> "degrees Celsius"."""
    if unit in UNCHANGED:
        return unit
    first, *rest = re.split(r"( per | Celsius| Fahrenheit)", unit, maxsplit=1)
    first = re.sub("foot$", "feet", first) if first.endswith("foot") else f"{first}s"
    return first + "".join(rest)


def _bearing(match: re.Match[str]) -> str:
    sides = {"N": "north", "S": "south", "E": "east", "W": "west"}
    parts = [f"{cardinal(int(match[1]))} degrees", f"{cardinal(int(match[2]))} minutes"]
    if match[3]:
        parts.append(f"{decimal(match[3])} seconds")
    return f"{' '.join(parts)} {sides[match[4]]}"


def _height(match: re.Match[str]) -> str:
    return f"{cardinal(int(match[1]))} foot {cardinal(int(match[2]))}"
