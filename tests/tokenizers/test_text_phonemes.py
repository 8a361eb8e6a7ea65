"""Phonemes by espeak: sounds and not spelling, marks kept, foreign scripts reported."""

import pytest

from madrigal.errors import UserError
from madrigal.tokenizers.text import TextSpec, make_text_tokenizer
from madrigal.tokenizers.text_phonemes import SYMBOLS, Phonemes


@pytest.fixture(scope="module")
def english() -> Phonemes:
    tokenizer = make_text_tokenizer(TextSpec(kind="phonemes"))
    assert isinstance(tokenizer, Phonemes)
    return tokenizer


def test_what_sounds_alike_has_the_same_ids(english: Phonemes) -> None:
    assert english.encode("The knight reads.") == english.encode("The night reeds.")
    assert english.encode("The cat.") != english.encode("The cut.")


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        ("Yes, no.", "_, _."),
        ('"Why?" he asked...', '"_?" _ _...'),
        ("(well-known) - it's 3.14!", "(_) - _ _ _ _ _!"),
        ("wait—what; so: there", "_—_; _: _"),
        ("  spaces \n here  ", "_ _"),
        ("", ""),
    ],
)
def test_marks_stay_where_they_were(english: Phonemes, text: str, shape: str) -> None:
    marks = set('"?!.,;:()—- ')
    said = english.phonemes(text)
    found = "".join("_" if symbol not in marks else symbol for symbol in said)
    while "__" in found:
        found = found.replace("__", "_")
    assert found == shape


def test_ids_say_their_phonemes(english: Phonemes) -> None:
    text = "Ships leave at dawn, don't they?"
    assert english.decode(english.encode(text)) == english.phonemes(text)
    assert english.size == len(set(SYMBOLS)) == len(SYMBOLS)


def test_scripts_that_espeak_would_only_name_are_unknown(english: Phonemes) -> None:
    assert english.unknown("a中ж é_b") == ["中", "ж", "_"]
    with pytest.raises(UserError, match="'中'"):
        english.encode("中 a")


def test_accents_are_one_letter_however_they_are_written(english: Phonemes) -> None:
    assert english.encode("caf\u00e9") == english.encode("cafe\u0301")


def test_two_languages_at_once_do_not_disturb_each_other(english: Phonemes) -> None:
    german = make_text_tokenizer(TextSpec(kind="phonemes", language="de"))
    before = english.encode("An angel wins.")
    assert german.encode("An angel wins.") != before
    english._speaker.say.cache_clear()
    assert english.encode("An angel wins.") == before
    assert german.fingerprint() != english.fingerprint()


def test_a_script_of_the_language_is_said() -> None:
    russian = make_text_tokenizer(TextSpec(kind="phonemes", language="ru"))
    assert russian.unknown("Привет") == []
    assert len(russian.encode("Привет")) > 4


def test_an_unknown_language_is_refused() -> None:
    with pytest.raises(UserError, match="no language 'xx'"):
        make_text_tokenizer(TextSpec(kind="phonemes", language="xx"))
