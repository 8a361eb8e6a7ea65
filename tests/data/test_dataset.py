from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from madrigal.data.audio import read
from madrigal.data.dataset import SoundDataset
from madrigal.data.manifest import Entry, Manifest
from madrigal.data.prepare import prepare
from madrigal.errors import UserError


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.fixture
def folder(record, tmp_path):
    record("in/long.wav", seconds=2.0, rate=22050, seed=1)
    record("in/deep/SHORT.FLAC", seconds=0.3, channels=2, seed=2)
    record("in/other.ogg", seconds=1.0, rate=24000, seed=3)
    return tmp_path / "in"


def test_AM34_endings_in_any_case_and_folders_in_any_depth(folder):
    assert [file.name for file in SoundDataset(folder, 16000).files] == ["SHORT.FLAC", "long.wav", "other.ogg"]
    some = SoundDataset(folder, 16000, exts=["Flac", ".ogg"])
    assert [file.name for file in some.files] == ["SHORT.FLAC", "other.ogg"]


def test_an_item_without_limits_is_the_whole_file_at_the_rate(folder):
    item = SoundDataset(folder, 16000)[1]
    assert item.keys() == {"audio"}
    assert item["audio"].shape == (1, 32000)
    assert item["audio"].dtype == torch.float32


def test_draws_depend_on_the_generator_alone(folder):
    dataset = SoundDataset(folder, 16000, max_length=8000)
    one = dataset.draw(1, rng(1))["audio"]
    assert one.shape == (1, 8000)
    assert torch.equal(one, dataset.draw(1, rng(1))["audio"])
    assert not torch.equal(one, dataset.draw(1, rng(2))["audio"])
    assert torch.equal(dataset[1]["audio"], dataset.draw(1, rng(1))["audio"])
    assert torch.equal(dataset[-2]["audio"], dataset[1]["audio"])
    with pytest.raises(IndexError):
        dataset[3]


def test_crops_reach_both_ends_and_stay_inside(folder):
    dataset = SoundDataset(folder, 16000, max_length=31998)
    whole = read(folder / "long.wav", sample_rate=16000)
    starts = set()
    for seed in range(40):
        crop = dataset.draw(1, rng(seed))["audio"]
        starts.update(s for s in range(3) if torch.allclose(crop, whole[:, s : s + 31998], atol=1e-4))
    assert starts == {0, 1, 2}


def test_without_random_crop_it_is_the_start(folder):
    dataset = SoundDataset(folder, 16000, max_length=4000, random_crop=False)
    whole = SoundDataset(folder, 16000)[1]["audio"]
    torch.testing.assert_close(dataset.draw(1, rng(5))["audio"], whole[:, :4000], atol=1e-4, rtol=0)


def test_AM34_short_files_are_not_padded_here(folder):
    assert SoundDataset(folder, 16000, max_length=16000)[0]["audio"].shape == (1, 4800)


@pytest.mark.parametrize("seed", range(5))
def test_several_rates_cover_the_same_span(folder, seed):
    rates = (16000, 24000, 22050)
    item = SoundDataset(folder, rates, max_length=8000).draw(1, rng(seed))
    sizes = {key: value.shape[-1] for key, value in item.items()}
    assert sizes == {"audio": 8000, "audio_24000": 12000, "audio_22050": 11025}
    # The file has 22050 Hz, so that this rate is an untouched piece of it and its place can be found.
    whole = read(folder / "long.wav")[0]
    piece = item["audio_22050"][0]
    starts = [s for s in range(len(whole) - len(piece) + 1) if torch.equal(whole[s : s + 4], piece[:4])]
    assert len(starts) == 1
    for rate in (16000, 24000):
        start = starts[0] * rate / 22050
        assert start == int(start)
        key = "audio" if rate == 16000 else f"audio_{rate}"
        expected = read(folder / "long.wav", start=int(start), frames=rate // 2, sample_rate=rate)
        torch.testing.assert_close(item[key], expected, atol=1e-4, rtol=0)


def test_multiples_are_cut_at_the_same_time_for_all_rates(folder):
    item = SoundDataset(folder, (16000, 24000), max_length=9000, seq_len_multiple_of=(320, 320))[1]
    low, high = item["audio"].shape[-1], item["audio_24000"].shape[-1]
    assert low % 320 == high % 320 == 0
    assert low / 16000 == high / 24000
    assert low == 8960


def test_multiples_that_never_meet_are_cut_alone(folder):
    item = SoundDataset(folder, (16000, 22050), max_length=9000, seq_len_multiple_of=(320, 512))[1]
    low, high = item["audio"].shape[-1], item["audio_22050"].shape[-1]
    assert (low, high) == (8960, 12288)
    assert abs(low / 16000 - high / 22050) < 512 / 22050


def test_a_file_shorter_than_one_multiple_stays_whole(folder):
    assert SoundDataset(folder, 16000, seq_len_multiple_of=32000)[0]["audio"].shape == (1, 4800)


def test_AT20_seconds_times_a_rate_may_be_a_float(folder):
    assert SoundDataset(folder, 16000, max_length=0.52 * 16000, seq_len_multiple_of=320)[1]["audio"].shape == (1, 8320)


@pytest.mark.parametrize(("channels", "shapes"), [(1, [1, 1, 1]), (2, [2, 2, 2]), (None, [2, 1, 1])])
def test_mono_stereo_and_as_it_is(folder, channels, shapes):
    dataset = SoundDataset(folder, 16000, channels=channels, max_length=1000)
    assert [dataset[i]["audio"].shape[0] for i in range(3)] == shapes


def test_gain_is_drawn_from_its_range_and_never_clips(folder):
    plain = SoundDataset(folder, (16000, 8000), max_length=4000, random_crop=False)[0]
    quiet = SoundDataset(folder, (16000, 8000), max_length=4000, random_crop=False, gain_db=(-12, -6))
    ratios = []
    for seed in range(20):
        item = quiet.draw(0, rng(seed))
        per_rate = [float((item[key] / plain[key]).nanmean()) for key in plain]
        assert per_rate[0] == pytest.approx(per_rate[1], rel=1e-3)
        ratios.append(20 * np.log10(per_rate[0]))
    assert -12 <= min(ratios) < -10
    assert -8 < max(ratios) <= -6
    loud = SoundDataset(folder, 16000, gain_db=(40, 40))[0]["audio"]
    assert float(loud.abs().max()) == pytest.approx(1, abs=1e-5)


def test_manifest_folder_file_and_object_give_the_same(folder, tmp_path):
    prepared = prepare(folder, tmp_path / "out")
    whole = SoundDataset(folder, 16000, max_length=8000)
    for source in (tmp_path / "out", tmp_path / "out" / "manifest.jsonl", prepared.manifest):
        dataset = SoundDataset(source, 16000, max_length=8000)
        assert len(dataset) == 3
        assert all(torch.equal(dataset[i]["audio"], whole[i]["audio"]) for i in range(3))


def test_fields_and_seconds(record, tmp_path):
    path = record("a.wav", seconds=1.0)
    entry = Entry(path="a.wav", duration=1.0, sample_rate=16000, channels=1, text="hello", mood="glad")
    dataset = SoundDataset(
        Manifest(tmp_path, [entry]), 24000, max_length=12000, fields=("text", "speaker", "mood", "path")
    )
    item = dataset[0]
    assert (item["text"], item["speaker"], item["mood"], item["path"]) == ("hello", "", "glad", str(path))
    assert dataset.seconds(0) == 0.5
    assert SoundDataset(tmp_path, 24000).seconds(0) == 1.0


def test_a_file_that_goes_bad_is_replaced_and_noted_once(folder, tmp_path):
    prepare(folder, tmp_path / "out")
    rejected = tmp_path / "run" / "rejected.jsonl"
    dataset = SoundDataset(tmp_path / "out", 16000, max_length=2000, rejected_path=rejected)
    bad = folder / "long.wav"
    bad.write_bytes(bad.read_bytes()[:1000])
    again = SoundDataset(tmp_path / "out", 16000, max_length=2000, rejected_path=rejected)
    for seed in range(5):
        items = [d.draw(1, rng(seed))["audio"] for d in (dataset, again)]
        assert torch.equal(*items)
        assert items[0].shape == (1, 2000)
    assert list(dataset.failed) == [str(bad)]
    assert "shorter" in dataset.failed[str(bad)]
    lines = [json.loads(line) for line in rejected.read_text().splitlines()]
    assert [line["path"] for line in lines] == [str(bad)]


def test_training_goes_on_when_the_note_cannot_be_written(folder):
    (folder / "long.wav").write_text("no sound any more")
    dataset = SoundDataset(folder, 16000, rejected_path=folder / "other.ogg" / "rejected.jsonl")
    assert dataset[1]["audio"].shape[0] == 1
    assert len(dataset.failed) == 1


def test_a_disk_that_is_gone_ends_with_one_sentence(folder):
    dataset = SoundDataset(folder, 16000)
    for file in dataset.files:
        file.unlink()
    with pytest.raises(UserError, match="in a row could not be decoded"):
        dataset[0]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"target_sample_hz": 0}, "target_sample_hz"),
        ({"target_sample_hz": (16000, 16000)}, "target_sample_hz"),
        ({"target_sample_hz": ()}, "target_sample_hz"),
        ({"max_length": 0}, "max_length"),
        ({"seq_len_multiple_of": 0}, "seq_len_multiple_of"),
        ({"seq_len_multiple_of": (320, 320)}, "seq_len_multiple_of"),
        ({"channels": 3}, "channels"),
        ({"gain_db": (3, -3)}, "gain_db"),
        ({"exts": ["aiff"]}, "no audio files"),
        ({"folder": "missing"}, "There is no folder"),
    ],
)
def test_bad_arguments_get_one_sentence(folder, options, words):
    with pytest.raises(UserError, match=words) as caught:
        SoundDataset(**{"folder": folder, "target_sample_hz": 16000, **options})
    assert "\n" not in str(caught.value)


def test_AM15_reaches_end_is_true_only_at_the_true_end_and_is_seen_often_enough(folder):
    dataset = SoundDataset(folder, 16000, max_length=8000, seq_len_multiple_of=320, fields=("reaches_end",))
    whole = read(folder / "long.wav", sample_rate=16000)
    ends = []
    for seed in range(100):
        item = dataset.draw(1, rng(seed))
        ends.append(item["reaches_end"])
        tail = torch.allclose(item["audio"][:, -320:], whole[:, -320:], atol=1e-4)
        assert tail <= item["reaches_end"]
        assert item["audio"].shape == (1, 8000 // 320 * 320)
    # Cut into pieces of half a second, one of four would hold the end; by chance alone it would be one of 24,000.
    assert 0.15 < np.mean(ends) < 0.4
    assert all(isinstance(end, bool) for end in ends)
    assert dataset.draw(0, rng())["reaches_end"] is True
    first = SoundDataset(folder, 16000, max_length=8000, random_crop=False, fields=("reaches_end",))
    assert first.draw(1, rng())["reaches_end"] is False
    assert SoundDataset(folder, (16000, 24000), fields=("reaches_end",))[1]["reaches_end"] is True


def test_asking_for_no_ends_changes_no_crop(folder):
    plain = SoundDataset(folder, 16000, max_length=8000)
    with_text = SoundDataset(folder, 16000, max_length=8000, fields=("text",))
    assert all(torch.equal(plain.draw(1, rng(s))["audio"], with_text.draw(1, rng(s))["audio"]) for s in range(5))
