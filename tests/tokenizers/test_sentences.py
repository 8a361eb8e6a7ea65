"""Long text in pieces: sentences where they end, nothing lost, nothing too long."""

import random

import pytest

from madrigal.tokenizers.sentences import split_sentences


@pytest.mark.parametrize(
    "pieces",
    [
        ["Dr. Smith went home. ", "He slept! ", "Did he?"],
        ["“Why?” he asked. ", "“No.” ", "She left."],
        ["She left... and came back… ", "Then it rained."],
        ["J. R. R. Tolkien (b. 1892) wrote. ", "We read."],
        ["It was 5 p.m. ", "He left."],
        ["The U.S. Army came. ", "It went."],
        ["No. 5 is here. ", "See p. 7 and Fig. 3. ", "No! ", "Yes."],
        ["He came on Jan. 3 with Mr. Jones. ", "They met."],
        ["It costs 3.50 at example.com now. ", "Buy it."],
        ["Apples, pears, etc. ", "The end."],
        ["He has apples, pears, etc. in a box."],
        ["It is I. ", "You are you."],
        ["你好。", "世界！", "再见"],
        ["「はい。」", "彼は言った。"],
        ["A title\n", "\nA line\n", "the next"],
        ["One.   ", "Two.\t", "Three."],
        ["He said (quietly.) ", "Then he left."],
        ["What?! ", "Really..."],
        ["no end"],
        ["!!! ... ???"],
        [],
    ],
)
def test_sentences_end_where_they_end(pieces: list[str]) -> None:
    text = "".join(pieces)
    found = split_sentences(text)
    assert "".join(found) == text
    assert [piece.strip() for piece in found] == [piece.strip() for piece in pieces]


def test_a_long_sentence_is_cut_at_the_best_place() -> None:
    text = "The ship left the harbour at dawn, with nobody on deck; the town slept on and on and on and on."
    assert split_sentences(text, 60)[0] == "The ship left the harbour at dawn, with nobody on deck; "
    assert split_sentences(text, 50)[0] == "The ship left the harbour at dawn, "
    assert split_sentences(text, 20)[0] == "The ship left the "
    assert split_sentences("x" * 25, 10) == ["x" * 10, "x" * 10, "x" * 5]


def test_a_character_is_not_cut_from_its_accent() -> None:
    pieces = split_sentences("e\u0301" * 10, 5)
    assert all(not piece.startswith("\u0301") for piece in pieces)


def test_marks_alone_stay_with_the_sentence_before_them() -> None:
    assert split_sentences("Yes. *** No.") == ["Yes. ", "*** No."]
    assert split_sentences("Yes.\n***\nNo.") == ["Yes.\n***\n", "No."]


@pytest.mark.parametrize("longest", [1, 2, 7, 40, 250])
def test_joined_they_are_the_text_and_none_is_too_long(longest: int) -> None:
    rng = random.Random(longest)
    words = [
        "Dr.",
        "a",
        "Then,",
        "U.S.",
        "end.",
        "why?",
        "“No!”",
        "3.14",
        "\n",
        "...",
        "你好。",
        "long-word;",
        "e\u0301",
        "  ",
    ]
    for _ in range(50):
        text = " ".join(rng.choice(words) for _ in range(60))
        pieces = split_sentences(text, longest)
        assert "".join(pieces) == text
        assert all(0 < len(piece) <= longest for piece in pieces)


def test_no_room_for_a_character_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one character"):
        split_sentences("a", 0)
