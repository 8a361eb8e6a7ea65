"""Text to ids and back: nothing is lost, nothing is left out in silence, and a spec is all that a model has to keep."""

import sys
from typing import Any

import pytest
from pydantic import ValidationError

from madrigal.errors import UserError
from madrigal.tokenizers import text_phonemes
from madrigal.tokenizers.text import TextSpec, TextTokenizer, fit_text, make_text_tokenizer
from madrigal.tokenizers.text_bpe import learned_merges

CORPUS = ["The cat sat on the mat.", "The hat is on the cat.", "That cat, that hat; that mat!"] * 3
ANYTHING = ["The cat.", "  two  spaces \n and\ta line", "naïve Ünïcödé", "中文 😀 ж", "a\u200db", "", " ", "İ ß ﬁ"]


@pytest.fixture(params=["bytes", "bpe"])
def says_all(request: pytest.FixtureRequest) -> TextTokenizer:
    return make_text_tokenizer(fit_text(TextSpec(kind=request.param), CORPUS))


@pytest.mark.parametrize("text", ANYTHING)
def test_bytes_and_pairs_give_back_every_text(says_all: TextTokenizer, text: str) -> None:
    ids = says_all.encode(text)
    assert says_all.decode(ids) == text
    assert all(0 <= index < says_all.size for index in ids)
    assert says_all.unknown(text) == []


def test_padding_is_passed_over_and_other_ids_are_refused(says_all: TextTokenizer) -> None:
    assert says_all.decode([*says_all.encode("ab"), -1, -1]) == "ab"
    with pytest.raises(UserError, match=f"{says_all.size} is no id"):
        says_all.decode([says_all.size])  # the end token of a model is no text
    with pytest.raises(UserError, match="-2 is no id"):
        says_all.decode([-2])


def test_bytes_that_are_no_text_are_shown_as_such(says_all: TextTokenizer) -> None:
    assert says_all.decode([0x61, 0xFF, 0x62]) == "a\ufffdb"


def test_half_a_character_is_refused_rather_than_left_out(says_all: TextTokenizer) -> None:
    with pytest.raises(UserError, match="U\\+D800"):
        says_all.encode("a\ud800b")


def test_a_capital_is_said_as_its_small_letter() -> None:
    tokenizer = make_text_tokenizer(TextSpec(kind="characters"))
    assert tokenizer.decode(tokenizer.encode("The CAT, isn't it?")) == "the cat, isn't it?"
    assert tokenizer.encode("THE") == tokenizer.encode("the")


def test_an_alphabet_with_capitals_keeps_them() -> None:
    tokenizer = make_text_tokenizer(TextSpec(kind="characters", alphabet="abAB"))
    assert tokenizer.decode(tokenizer.encode("AbBa")) == "AbBa"
    assert tokenizer.size == 4


def test_characters_outside_the_alphabet_are_named() -> None:
    tokenizer = make_text_tokenizer(TextSpec(kind="characters"))
    assert tokenizer.unknown("a1é1") == ["1", "é", "1"]
    with pytest.raises(UserError, match=r"'1' \(U\+0031\), 'é' \(U\+00E9\) in 'a1é1'"):
        tokenizer.encode("a1é1")


def test_an_alphabet_can_be_learned() -> None:
    spec = fit_text(TextSpec(kind="characters", alphabet=None), ["ba", "ça"])
    assert spec.alphabet == "abç"
    with pytest.raises(UserError, match="no alphabet yet"):
        make_text_tokenizer(TextSpec(kind="characters", alphabet=None))


def test_pairs_make_texts_shorter_and_are_learned_the_same_each_time() -> None:
    spec = fit_text(TextSpec(kind="bpe", vocabulary=270), CORPUS)
    assert spec.merges == fit_text(TextSpec(kind="bpe", vocabulary=270), CORPUS).merges
    tokenizer = make_text_tokenizer(spec)
    assert tokenizer.size <= 270
    assert len(tokenizer.encode("The cat sat")) < len("The cat sat")
    more = make_text_tokenizer(fit_text(TextSpec(kind="bpe", vocabulary=260), CORPUS))
    assert more.size == 260
    assert len(more.encode("The cat sat")) > len(tokenizer.encode("The cat sat"))


def test_what_was_learned_travels_in_the_spec() -> None:
    spec = fit_text(TextSpec(kind="bpe", vocabulary=280), CORPUS)
    again = TextSpec.model_validate_json(spec.model_dump_json())
    assert again == spec
    assert make_text_tokenizer(again).encode(CORPUS[0]) == make_text_tokenizer(spec).encode(CORPUS[0])
    assert fit_text(spec, ["other texts"] * 9) == spec  # it has learned already


def test_pairs_that_nobody_learned_are_refused() -> None:
    with pytest.raises(UserError, match="learned no pairs yet"):
        make_text_tokenizer(TextSpec(kind="bpe"))
    with pytest.raises(UserError, match="Pair 0"):
        make_text_tokenizer(TextSpec(kind="bpe", merges=((97, 256),)))
    with pytest.raises(UserError, match="twice"):
        learned_merges(["ab"], 300)


def test_fingerprints_follow_the_ids() -> None:
    specs = [
        TextSpec(),
        TextSpec(kind="characters"),
        TextSpec(kind="characters", alphabet="ab"),
        fit_text(TextSpec(kind="bpe", vocabulary=260), CORPUS),
        fit_text(TextSpec(kind="bpe", vocabulary=261), CORPUS),
    ]
    prints = [make_text_tokenizer(spec).fingerprint() for spec in specs]
    assert len(set(prints)) == len(specs)
    assert prints == [make_text_tokenizer(spec).fingerprint() for spec in specs]
    # How many it might have learned is not what it did learn.
    few = specs[3].model_copy(update={"vocabulary": 999})
    assert make_text_tokenizer(few).fingerprint() == prints[3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alphabet": "abc"}, "alphabet is an option of kind=characters"),
        ({"kind": "characters", "language": "de"}, "language is an option of kind=phonemes"),
        ({"kind": "characters", "alphabet": "aba"}, "twice"),
        ({"kind": "bpe", "vocabulary": 200}, "257"),
        ({"kind": "words"}, "'bytes', 'characters', 'bpe' or 'phonemes'"),
        ({"sizes": 5}, "sizes"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TextSpec(**options)


@pytest.mark.parametrize(
    ("module", "spec", "command"),
    [
        ("tokenizers", TextSpec(kind="bpe", merges=((97, 98),)), r'pip install "madrigal\[text\]"'),
        ("espeakng_loader", TextSpec(kind="phonemes"), "pip install espeakng-loader"),
    ],
)
def test_a_missing_package_is_named_with_its_command(
    monkeypatch: pytest.MonkeyPatch, module: str, spec: TextSpec, command: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    text_phonemes._library.cache_clear()
    text_phonemes._speaker.cache_clear()
    with pytest.raises(UserError, match=command):
        make_text_tokenizer(spec)
