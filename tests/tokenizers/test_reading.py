"""The text front end: the table of what is said, what is reported, and that no text breaks it."""

import random
import re

import pytest
from readings import TABLE

from madrigal.tokenizers.reading import read_out
from madrigal.tokenizers.text import TextSpec, fit_text, make_text_tokenizer

CHARACTERS = make_text_tokenizer(TextSpec(kind="characters"))


@pytest.mark.parametrize(("written", "said"), TABLE)
def test_what_is_written_is_said(written: str, said: str) -> None:
    reading = read_out(written)
    assert reading.text == said
    assert reading.unknown == []
    assert reading.warning is None


def test_the_table_is_large() -> None:
    assert len({written for written, _ in TABLE}) >= 240


@pytest.mark.parametrize("said", sorted({said for _, said in TABLE}))
def test_what_was_read_out_is_left_alone(said: str) -> None:
    # A word written short again ("C D", "St") would be another reading; what is said is plain words.
    assert read_out(said).text == said


def test_letters_of_other_scripts_are_reported_with_their_numbers() -> None:
    reading = read_out("Say привет, 中文中 now.")
    assert reading.text == "Say, now."
    assert sorted(reading.unknown) == sorted("привет中文中")
    assert reading.warning is not None
    assert "'中' 2 times" in reading.warning
    assert "'п'" in reading.warning


def test_a_text_that_cannot_be_said_leaves_nothing_and_says_so() -> None:
    reading = read_out("日本語")
    assert (reading.text, reading.unknown) == ("", list("日本語"))


def test_many_unknown_characters_are_counted_and_not_all_named() -> None:
    warning = read_out("абвгдежзик").warning
    assert warning is not None
    assert "and 2 more" in warning


@pytest.mark.parametrize(
    ("written", "said", "unknown"),
    [
        ("Café, naïve Žižek!", "Cafe, naive Zizek!", []),
        ("Straße, Ærø, Łódź", "Strasse, Aero, Lodz", []),
        ("well — so; [sic]", "well, so; (sic)", []),
        ("a{b}", "a open brace b close brace", []),
        ("x\u0302 y", "x y", ["\u0302"]),
        ("bell \x07 null \x00", "bell null", ["\x07", "\x00"]),
    ],
)
def test_accents_and_marks_are_folded_to_what_the_tokenizer_has(written: str, said: str, unknown: list[str]) -> None:
    reading = read_out(written, CHARACTERS)
    assert (reading.text, reading.unknown) == (said, unknown)
    assert CHARACTERS.unknown(reading.text) == []


def test_accents_stay_where_the_tokenizer_has_them() -> None:
    tokenizer = make_text_tokenizer(fit_text(TextSpec(kind="characters", alphabet=None), ["café fée"]))
    assert read_out("café fée", tokenizer).text == "café fée"


def test_without_a_language_letters_are_left_to_the_tokenizer() -> None:
    everything = make_text_tokenizer(TextSpec())
    assert read_out("Привет 42 中", everything, language=None).text == "Привет 42 中"
    reading = read_out("привет 42", CHARACTERS, language=None)
    assert reading.text == ""
    assert sorted(reading.unknown) == sorted("привет42")


def test_lines_stay_lines_unless_a_sentence_goes_on() -> None:
    assert read_out("A title\n\nThe first line\ngoes on.\r\nThe second\t line ").text == (
        "A title\nThe first line goes on.\nThe second line"
    )


@pytest.mark.parametrize("text", ["", " ", "\n\n", "\u200b", "\ufeff"])
def test_empty_texts_are_empty(text: str) -> None:
    assert read_out(text) == read_out("")
    assert read_out(text).text == ""


def test_punctuation_alone_is_kept() -> None:
    assert read_out("?!").text == "?!"


@pytest.mark.parametrize("seed", range(8))
def test_no_text_breaks_it_and_no_digit_is_left(seed: int) -> None:
    rng = random.Random(seed)
    pieces = [
        *"0123456789",
        *".,:;/-–$€£%°'\"()#@&+=*_^~ \n",
        *"aAIVXskmpéß中ж😀½²٣\u200d\ud800",
        "000",
        "th",
        "St.",
        "p.m.",
        "http://",
    ]
    for _ in range(60):
        text = "".join(rng.choice(pieces) for _ in range(rng.randint(1, 40)))
        reading = read_out(text, CHARACTERS)
        assert not re.search(r"\d", reading.text), text
        assert CHARACTERS.unknown(reading.text.replace("\n", " ")) == [], text
        assert reading.unknown.count("中") == text.count("中"), text
        assert reading.unknown.count("ж") == text.count("ж"), text


@pytest.mark.parametrize("piece", ["1", "1,", "1-", "1/", "9 ", "$", "a.", ".", "-", "(", "😀", "www.", "a@", "٣"])
def test_five_thousand_of_anything_are_read(piece: str) -> None:
    reading = read_out(piece * (5000 // len(piece)))
    assert not re.search(r"\d", reading.text)
    assert reading.unknown == []
