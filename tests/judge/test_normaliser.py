from __future__ import annotations

import pytest

from madrigal.data.numerals import cardinal, ordinal
from madrigal.judge.normalise import normalise


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("Hello, World!", "hello world"),
        ("“It’s”  here…", "it is here"),
        ("I'm sure they'd've won't can't", "i am sure they would have will not can not"),
        ("John's dog; the dogs' bowl", "johns dog the dogs bowl"),
        ("You're, we've, she'll, didn't", "you are we have she will did not"),
        ("42 and 1,000,001", "forty two and one million one"),
        ("one hundred and five", "one hundred 5"),
        ("In 1999, 2005 and 2024", "in nineteen ninety nine two thousand five and twenty twenty four"),
        ("the 1980s, the 90's", "the nineteen eighties the nineties"),
        ("1,999 people", "one thousand nine hundred ninety nine people"),
        ("the 1st, 2nd, 3rd, 12th, 20th, 42nd", "the first second third twelfth twentieth forty second"),
        ("3.14 is 50%", "three point one four is fifty percent"),
        (
            "$3.50, £1.01, €2, $0.99",
            "three dollars and fifty cents one pound and one penny two euros ninety nine cents",
        ),
        ("$1,500.5", "one thousand five hundred point five dollars"),
        ("at 10:05, 10:30 and 9:00", "at ten oh five ten thirty and nine"),
        ("-5 degrees, a well-known 3-4", "minus five degrees a well known three four"),
        ("agent 007", "agent zero zero seven"),
        ("6 p.m. in the U.S. & the PBX", "six pm in the us and the pbx"),
        ("Dr. Smith vs. Mr. Jones", "doctor smith versus mister jones"),
        ("um, [laughs] <noise> yeah ok", "yes okay"),
        ("naïve café Привет", "naïve café привет"),
        ("mp3 b2b", "mp three b two b"),
        ("snake_case", "snake case"),
        ("", ""),
        ("... !?", ""),
    ],
)
def test_what_is_said_one_way_reads_one_way(written: str, said: str) -> None:
    assert normalise(written) == normalise(said)


@pytest.mark.parametrize("text", ["It's 5 o'clock, don't!", "The 21st, $5.25", "we shouldn't've"])
def test_normalising_twice_changes_nothing(text: str) -> None:
    assert normalise(normalise(text)) == normalise(text)


def test_normalised_text_has_only_lower_case_words() -> None:
    words = normalise("Mix: 12,345.678 -- 'quoted' WORDS (and brackets) @ 100%!").split()
    assert all(word.isalpha() and word == word.lower() for word in words)


@pytest.mark.parametrize(
    ("number", "words"),
    [(0, "zero"), (13, "thirteen"), (80, "eighty"), (110, "one hundred ten"), (10**6, "one million")],
)
def test_cardinals(number: int, words: str) -> None:
    assert cardinal(number) == words


def test_numbers_beyond_names_are_read_by_digits() -> None:
    assert cardinal(10**15).split()[:3] == ["one", "zero", "zero"]


def test_every_ordinal_is_distinct() -> None:
    assert len({ordinal(number) for number in range(1, 500)}) == 499
