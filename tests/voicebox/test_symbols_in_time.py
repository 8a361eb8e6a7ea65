"""Texts to symbols, symbols and durations to ids, and whole frames."""

import pytest
import torch

from madrigal.data.tokens import PAD
from madrigal.errors import UserError
from madrigal.voicebox.expand import at_frame_rate, collapse, crop, expand
from madrigal.voicebox.lasting import shared_out, whole_frames
from madrigal.voicebox.symbols import Symbols, SymbolSpec

CHARACTERS = SymbolSpec(text={"kind": "characters"})


def test_silence_stands_between_words_and_at_both_ends() -> None:
    symbols = Symbols(CHARACTERS)
    found = symbols.encode("So  far,\nso good")
    assert [symbols.shown(symbol) for symbol in found] == list("∅so∅far,∅so∅good∅")
    assert symbols.silence == symbols.size - 1
    assert symbols.decode(found) == "so far, so good"
    assert [found[word.start : word.stop] for word in symbols.words(found)] == [
        symbols.encode(word)[1:-1] for word in ("so", "far,", "so", "good")
    ]


def test_numbers_are_read_out_first() -> None:
    symbols = Symbols(CHARACTERS)
    assert symbols.encode("2 of 3") == symbols.encode("two of three")
    assert Symbols(SymbolSpec(text={"kind": "bytes"}, read=None)).decode([50, 256, 51]) == "2 3"


def test_a_phoneme_and_its_signs_are_one_symbol() -> None:
    symbols = Symbols()
    found = symbols.encode("Hello, you.")
    assert [symbols.shown(symbol) for symbol in found] == ["∅", "h", "ə", "l", "ˈo", "ʊ", ",", "∅", "j", "uː", ".", "∅"]
    assert symbols.decode(found) == "həlˈoʊ, juː."
    assert max(found) < symbols.size
    stressed, plain = (symbols.encode(text)[1] for text in ("eat", "he eats"))
    assert stressed != plain


def test_what_cannot_be_said_is_refused() -> None:
    symbols = Symbols(CHARACTERS)
    with pytest.raises(UserError, match="which cannot be said"):
        symbols.encode("so 中 far")
    with pytest.raises(UserError, match="empty"):
        symbols.encode("  ")
    with pytest.raises(ValueError, match="no sounds"):
        SymbolSpec(text={"kind": "bpe"})


def test_several_texts_are_padded() -> None:
    symbols = Symbols(CHARACTERS)
    ids, lengths = symbols.batch(["ab", "abcd"])
    assert lengths.tolist() == [4, 6]
    assert ids[0].tolist() == [*symbols.encode("ab"), PAD, PAD]


def test_the_fingerprint_changes_with_what_a_symbol_means() -> None:
    kinds = [SymbolSpec(text={"kind": kind}, read=read) for kind in ("bytes", "phonemes") for read in ("en", None)]
    assert len({Symbols(kind).fingerprint() for kind in kinds}) == 4


def test_symbols_are_repeated_and_found_again() -> None:
    symbols = torch.tensor([[1, 2, 3, PAD], [4, 5, 4, 7]])
    durations = torch.tensor([[2, 1, 3, 0], [1, 1, 1, 5]])
    ids = expand(symbols, durations)
    assert ids.tolist() == [[1, 1, 2, 3, 3, 3, PAD, PAD], [4, 5, 4, 7, 7, 7, 7, 7]]
    again, lasting, lengths = collapse(ids)
    assert again.equal(symbols)
    assert lasting.equal(durations)
    assert lengths.tolist() == [3, 4]


def test_a_crop_has_the_symbols_that_sound_in_it() -> None:
    symbols, durations = torch.tensor([1, 2, 3, 4]), torch.tensor([2, 3, 1, 4])
    ids = expand(symbols[None], durations[None])[0]
    for start in range(10):
        for stop in range(start + 1, 11):
            cut = crop(symbols, durations, start, stop)
            assert expand(cut[0][None], cut[1][None])[0].equal(ids[start:stop])


def test_VB3_tokens_last_as_long_as_they_sound() -> None:
    """100 tokens at 50 a second are two seconds: 150 frames at 75 a second, and 187 whole ones at 93.75."""
    ids = torch.arange(100)[None]
    assert at_frame_rate(ids, torch.tensor([100]), 50, 75).shape == (1, 150)
    spread = at_frame_rate(ids, torch.tensor([100]), 50, 93.75)[0]
    assert len(spread) == 187
    assert spread.tolist() == [int((frame + 0.5) * 50 / 93.75) for frame in range(187)]


def test_VB17_a_frame_has_one_id_and_rows_keep_their_own_length() -> None:
    ids = torch.tensor([[5, 9, PAD], [1, 2, 3]])
    spread = at_frame_rate(ids, torch.tensor([2, 3]), 25, 50)
    assert spread.tolist() == [[5, 5, 9, 9, PAD, PAD], [1, 1, 2, 2, 3, 3]]


@pytest.mark.parametrize("total", [4, 5, 9, 100])
def test_frames_are_shared_out_to_the_last(total: int) -> None:
    shares = shared_out(torch.tensor([0.001, 3.0, 1.0, 2.0]).double(), total)
    assert int(shares.sum()) == total
    assert int(shares.min()) >= 1
    assert shares[1] >= shares[3] >= shares[2] >= shares[0]


def test_known_durations_stay_and_the_others_fill_the_time() -> None:
    wish, known = torch.full((1, 4), 2.0), torch.tensor([[0, 7, 0, 0]])
    assert whole_frames(wish, torch.tensor([4]), known=known).tolist() == [[2, 7, 2, 2]]
    assert whole_frames(wish, torch.tensor([4]), known=known, totals=[19]).tolist() == [[4, 7, 4, 4]]
    assert whole_frames(wish, torch.tensor([3])).tolist() == [[2, 2, 2, 0]]
    with pytest.raises(UserError, match="too few"):
        whole_frames(wish, torch.tensor([4]), known=known, totals=[9])
