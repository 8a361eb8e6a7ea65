"""What is not replaced stays, sample for sample, in files of every kind; words and spans are found or refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from madrigal.data.audio import resample
from madrigal.errors import UserError
from madrigal.voicebox.bursts import find_bursts
from madrigal.voicebox.mending import (
    Mend,
    Sound,
    blended,
    check_spans,
    cut_out,
    frames_of,
    mended,
    samples_of,
    spans_of,
)
from madrigal.voicebox.transcript import Change, change_of, with_words

RATE = 16000


def recording(path: Path, subtype: str, rate: int = RATE, channels: int = 1, seconds: float = 1.0) -> Path:
    """Every number that the format has is in it somewhere."""
    rng = np.random.default_rng(0)
    wave = rng.uniform(-1, 1, (round(seconds * rate), channels))
    wave[:4] = [[1.0], [-1.0], [0.999], [-0.999]]
    soundfile.write(path, wave, rate, subtype=subtype)
    return path


KINDS = [
    ("wav", "PCM_16"),
    ("wav", "PCM_24"),
    ("wav", "PCM_32"),
    ("wav", "PCM_U8"),
    ("wav", "FLOAT"),
    ("wav", "DOUBLE"),
    ("flac", "PCM_16"),
    ("flac", "PCM_24"),
]


@pytest.mark.parametrize(("ending", "subtype"), KINDS)
@pytest.mark.parametrize("channels", [1, 2])
def test_everything_outside_a_mend_is_untouched(tmp_path: Path, ending: str, subtype: str, channels: int) -> None:
    path = recording(tmp_path / f"in.{ending}", subtype, channels=channels)
    sound = Sound.read(path)
    mend = Mend(4000, 6000, np.full(2500, 0.25))
    mended(sound, [mend]).write(tmp_path / f"out.{ending}")
    before, after = (
        soundfile.read(file, dtype="float64", always_2d=True)[0] for file in (path, tmp_path / f"out.{ending}")
    )
    assert soundfile.info(tmp_path / f"out.{ending}").subtype == subtype
    assert len(after) == len(before) + 500
    assert np.array_equal(after[:4000], before[:4000])
    assert np.array_equal(after[6500:], before[6000:])
    assert not np.array_equal(after[4000:6000], before[4000:6000])


def test_several_mends_of_other_lengths(tmp_path: Path) -> None:
    sound = Sound.read(recording(tmp_path / "in.wav", "PCM_16"))
    done = mended(sound, [Mend(8000, 9000, np.zeros(400)), Mend(1000, 1500, np.zeros(900))])
    assert len(done.data) == len(sound.data) - 600 + 400
    assert np.array_equal(done.data[:1000], sound.data[:1000])
    assert np.array_equal(done.data[1900 : 1900 + 6500], sound.data[1500:8000])
    assert np.array_equal(done.data[-7000:], sound.data[-7000:])
    with pytest.raises(ValueError, match="in another mend"):
        mended(sound, [Mend(100, 500, np.zeros(400)), Mend(400, 600, np.zeros(200))])


def test_a_mend_fades_in_from_the_old_and_out_to_it() -> None:
    old, new = np.ones((1000, 1)), np.zeros((800, 1))
    out = blended(old, new, RATE)
    assert out[0, 0] > 0.99
    assert out[-1, 0] > 0.99
    assert np.abs(np.diff(out[:, 0])).max() < 0.03
    assert np.array_equal(out[80:720], np.zeros((640, 1)))
    assert blended(old[:3], new[:2], RATE).shape == (2, 1)
    assert blended(old[:0], new, RATE).shape == (800, 1)


def test_a_voice_on_the_left_stays_on_the_left(tmp_path: Path) -> None:
    tone = np.sin(np.arange(RATE) / 20)
    soundfile.write(tmp_path / "in.wav", np.stack([0.4 * tone, 0.1 * tone], 1), RATE)
    done = mended(Sound.read(tmp_path / "in.wav"), [Mend(4000, 8000, 0.25 * tone[:4000])])
    levels = np.abs(done.wave()[:, 4200:7800].numpy()).max(1)
    assert levels == pytest.approx([0.4, 0.1], abs=0.01)


def test_a_lossy_file_is_written_as_it_was_decoded(tmp_path: Path) -> None:
    soundfile.write(tmp_path / "in.ogg", 0.1 * np.random.default_rng(0).standard_normal(RATE), RATE)
    sound = Sound.read(tmp_path / "in.ogg")
    sound.write(tmp_path / "out.wav")
    assert np.array_equal(soundfile.read(tmp_path / "out.wav", dtype="float32", always_2d=True)[0], sound.data)
    with pytest.raises(UserError, match="could not be written"):
        sound.write(tmp_path / "out.xyz")
    sound.write(tmp_path / "out.flac")  # to 24 bits, far below what is lost already
    assert soundfile.info(tmp_path / "out.flac").subtype == "PCM_24"
    sound.write(tmp_path / "out.opus")
    assert soundfile.info(tmp_path / "out.opus").subtype == "OPUS"


@pytest.mark.parametrize("subtype", ["FLOAT", "DOUBLE", "PCM_32"])
def test_samples_that_a_format_cannot_hold_are_not_changed_for_it(tmp_path: Path, subtype: str) -> None:
    sound = Sound.read(recording(tmp_path / "in.wav", subtype))
    with pytest.raises(UserError, match=rf"cannot hold the samples of this recording \({subtype}\)"):
        sound.write(tmp_path / "out.flac")
    assert not (tmp_path / "out.flac").exists()
    sound.write(tmp_path / "out.ogg")  # who asks for a lossy file gets one


@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "PCM_U8"])
def test_samples_that_another_format_can_hold_are_the_same_in_it(tmp_path: Path, subtype: str) -> None:
    sound = Sound.read(recording(tmp_path / "in.wav", subtype))
    sound.write(tmp_path / "out.flac")
    one, other = (soundfile.read(tmp_path / name, dtype="float64")[0] for name in ("in.wav", "out.flac"))
    assert np.array_equal(one, other)


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 44100, 48000])
def test_what_is_cut_out_lies_where_it_belongs(rate: int) -> None:
    """A tone at the model's rate, cut out for a recording of another rate, goes on in phase."""
    hop, sample_rate, hertz = 256, 24000, 200.0
    wave = torch.sin(2 * torch.pi * hertz * (torch.arange(80 * hop) + 20 * hop) / sample_rate)
    start, samples = round(0.5 * rate), round(0.2 * rate)
    piece = cut_out(wave, first_frame=20, start=start, samples=samples, rate=rate, sample_rate=sample_rate, hop=hop)
    wanted = np.sin(2 * np.pi * hertz * (np.arange(samples) + start) / rate)
    assert piece.shape == (samples,)
    assert np.abs(piece - wanted).max() < 0.1


def test_frames_cover_the_samples_and_their_reach() -> None:
    options = {"rate": 24000, "sample_rate": 24000, "hop": 256}
    assert frames_of(2560, 5120, **options, reach=0) == (10, 20)
    assert frames_of(2561, 5121, **options, reach=2) == (8, 23)
    assert frames_of(0, 100, **options, reach=2) == (0, 3)
    assert frames_of(8000, 16000, rate=8000, sample_rate=24000, hop=256, reach=0) == (93, 188)


def test_spans_are_read_or_refused() -> None:
    assert spans_of("1.2-1.9", "--fill") == [(1.2, 1.9)]
    assert spans_of("3-3.5s, .2–1", "--fill") == [(0.2, 1.0), (3.0, 3.5)]
    for wrong in ("", "1.2", "2-1", "1-1", "a-b", "1-2;3-4", "-1-2", "nan-3"):
        with pytest.raises(UserError, match="--fill is"):
            spans_of(wrong, "--fill")
    check_spans([(0.1, 0.4), (0.5, 0.9)], 2.0, "in.wav")
    with pytest.raises(UserError, match="beyond the end"):
        check_spans([(1.0, 2.5)], 2.0, "in.wav")
    with pytest.raises(UserError, match="overlap"):
        check_spans([(0.1, 0.5), (0.4, 0.9)], 2.0, "in.wav")
    with pytest.raises(UserError, match=r"Nothing of in\.wav would be left"):
        check_spans([(0.0, 1.9)], 2.0, "in.wav")


def test_a_span_is_whole_samples(tmp_path: Path) -> None:
    sound = Sound.read(recording(tmp_path / "in.wav", "PCM_16", rate=22050, seconds=1.0))
    assert samples_of((0.1, 0.2), sound) == (2205, 4410)
    assert samples_of((0.5, 1.0004), sound) == (11025, 22050)


@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("brown fox", "red dog", "The quick red dog, it's said, don't jump."),
        ("QUICK, brown", "slow", "The slow fox, it's said, don't jump."),
        ("fox", "cat;", "The quick brown cat; it's said, don't jump."),
        ("it's said", "I think", "The quick brown fox, I think, don't jump."),
        ("don’t", "did", "The quick brown fox, it's said, did jump."),
        ("quick", "", "The brown fox, it's said, don't jump."),
        ("it's said", "", "The quick brown fox, don't jump."),
    ],
)
def test_words_are_replaced_as_they_are_said(old: str, new: str, wanted: str) -> None:
    assert with_words("The quick brown fox, it's said, don't jump.", old, new) == wanted


def test_words_that_go_leave_one_mark() -> None:
    assert with_words("Yes, big, world.", "big", "") == "Yes, world."
    assert with_words("Yes, big.", "big", "") == "Yes."
    assert with_words("Big, wide world.", "big", "") == "wide world."


def test_words_that_are_not_there_or_not_alone_are_refused() -> None:
    with pytest.raises(UserError, match="'cat' are not said"):
        with_words("the fox and the dog", "cat", "bird")
    with pytest.raises(UserError, match="are said 2 times"):
        with_words("the fox and the dog", "the", "a")
    assert with_words("the fox and the dog", "and the", "or a") == "the fox or a dog"
    with pytest.raises(UserError, match="no words to replace"):
        with_words("the fox", "...", "a")
    with pytest.raises(UserError, match="not said"):
        with_words("the foxes", "fox", "dog")


def symbols(text: str) -> list[int]:
    """Letters, and 0 for the silence between words and at both ends."""
    return [0 if letter == " " else ord(letter) for letter in f" {text} "]


def test_a_change_is_of_whole_words() -> None:
    before, after = symbols("the cat sat"), symbols("the hat sat")
    assert change_of(before, after, 0) == Change(5, 8, 8)
    change = change_of(symbols("the cat sat"), symbols("the cat sat down"), 0)
    assert symbols("the cat sat")[change.stop :] == symbols("the cat sat down")[change.new_stop :]
    assert change_of(before, symbols("the sat"), 0) == Change(4, 9, 5)  # the word, with a pause on each side
    assert change_of(before, symbols("the big cat sat"), 0) == Change(4, 5, 9)
    with pytest.raises(UserError, match="nothing to change"):
        change_of(before, before, 0)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("the cat sat", "the sat"),
        ("the cat", "the"),
        ("the cat", "cat"),
        ("one two", "one one two"),
        ("a b c d", "a x y d"),
        ("cat", "dog"),
        ("so so so", "so so"),
        ("so so", "so so so so"),
    ],
)
def test_the_rest_of_both_texts_is_the_same(before: str, after: str) -> None:
    one, other = symbols(before), symbols(after)
    change = change_of(one, other, 0)
    assert one[: change.start] == other[: change.start]
    assert one[change.stop :] == other[change.new_stop :]
    assert change.start < change.stop
    assert change.start < change.new_stop
    for row, stop in ((one, change.stop), (other, change.new_stop)):
        assert change.start == 0 or 0 in row[change.start - 1 : change.start + 1]
        assert stop == len(row) or 0 in row[stop - 1 : stop + 1]


@pytest.mark.parametrize(
    ("before", "after", "stays"),
    [
        ("one two three", "one three", "three"),
        ("one two three", "one two big three", "three"),
        ("a b c", "a b d c", "c"),
    ],
)
def test_a_word_that_nobody_named_is_left_alone(before: str, after: str, stays: str) -> None:
    one = symbols(before)
    change = change_of(one, symbols(after), 0)
    kept = symbols(stays)[1:]  # without the pause before it
    assert len(one) - change.stop >= len(kept)
    assert one[-len(kept) :] == kept


def hum(seconds: float, rate: int = 24000) -> torch.Tensor:
    time = torch.arange(round(seconds * rate)) / rate
    tone = sum(torch.sin(2 * torch.pi * k * 140 * time) / k for k in range(1, 20))
    hiss = torch.randn(len(time), generator=torch.Generator().manual_seed(1))
    # Every second half is an s: noise without low frequencies.
    sharp = torch.diff(hiss, n=3, prepend=torch.zeros(3)) * 0.05 * (torch.sin(2 * torch.pi * time) < -0.3)
    return 0.1 * tone * (torch.sin(2 * torch.pi * time) > 0) + sharp + 0.001 * hiss


def test_bursts_are_found_where_they_are_and_speech_is_none() -> None:
    clean, rate = hum(4.0), 24000
    assert find_bursts(clean, rate) == []
    noisy = clean.clone()
    places = [(0.7, 0.9), (2.2, 2.6)]
    noise = torch.randn(len(clean), generator=torch.Generator().manual_seed(2))
    for start, stop in places:
        noisy[round(start * rate) : round(stop * rate)] += 0.3 * noise[round(start * rate) : round(stop * rate)]
    found = find_bursts(noisy, rate)
    assert len(found) == 2
    for (start, stop), (from_, to) in zip(places, found, strict=True):
        assert from_ <= start
        assert stop <= to
        assert from_ == pytest.approx(start, abs=0.06)
        assert to == pytest.approx(stop, abs=0.06)


@pytest.mark.parametrize("rate", [8000, 11025, 16000, 44100])
def test_a_burst_is_found_in_what_came_by_telephone(rate: int) -> None:
    """At its own rate, and brought to a higher one, where the upper frequencies are empty."""
    clean = resample(hum(4.0), 24000, rate)
    noise = torch.randn(len(clean), generator=torch.Generator().manual_seed(2))
    noisy = clean.clone()
    noisy[round(0.7 * rate) : round(0.9 * rate)] += 0.3 * noise[: round(0.9 * rate) - round(0.7 * rate)]
    for to in (rate, 48000):
        assert find_bursts(resample(clean, rate, to), to) == []
        ((start, stop),) = find_bursts(resample(noisy, rate, to), to)
        assert start == pytest.approx(0.7, abs=0.06)
        assert stop == pytest.approx(0.9, abs=0.06)


def test_noise_all_over_is_no_burst() -> None:
    noise = 0.1 * torch.randn(48000, generator=torch.Generator().manual_seed(2))
    assert find_bursts(noise, 24000) == []
    assert find_bursts(torch.zeros(24000), 24000) == []
    assert find_bursts(torch.zeros(0), 24000) == []
