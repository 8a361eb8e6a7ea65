from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from token_folders import ACOUSTIC, SEMANTIC, manifest_of, write_tokens

from madrigal.data.collate import collate
from madrigal.data.loader import make_loader
from madrigal.data.manifest import Entry, Manifest
from madrigal.data.sampler import StepSampler
from madrigal.data.token_dataset import TokenDataset, shared_grid
from madrigal.data.tokens import PAD
from madrigal.errors import UserError

SECONDS = {"long.wav": 4.01, "bad.wav": 2.0, "short.wav": 0.5, "middle.wav": 1.0}


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@pytest.fixture
def manifest(tmp_path):
    return manifest_of(tmp_path, SECONDS)


@pytest.fixture
def both(tmp_path, manifest):
    return {
        "semantic": write_tokens(tmp_path, SEMANTIC, manifest),
        "acoustic": write_tokens(tmp_path, ACOUSTIC, manifest),
    }


def test_whole_recordings(manifest, both):
    dataset = TokenDataset(manifest, **both)
    assert len(dataset) == 3
    assert dataset.left_out == {"bad.wav": "semantic: its data is damaged"}
    item = dataset[0]
    assert item.keys() == {"semantic", "acoustic", "reaches_end", "text", "speaker"}
    assert item["semantic"].tolist() == list(range(101))
    assert item["acoustic"].shape == (201, 3)
    assert item["semantic"].dtype == item["acoustic"].dtype == torch.int64
    assert item["reaches_end"] is True
    assert (item["text"], item["speaker"]) == ("long.wav", "")


def test_crops_are_of_the_same_span_of_time(manifest, both):
    dataset = TokenDataset(manifest, **both, max_seconds=1.0)
    starts = set()
    for seed in range(300):
        item = dataset.draw(0, rng(seed))
        semantic, acoustic = item["semantic"], item["acoustic"]
        assert int(acoustic[0, 0]) == 2 * int(semantic[0])
        assert torch.equal(acoustic[:, 1], acoustic[:, 0] + 1000)
        at_end = int(semantic[-1]) == 100 and int(acoustic[-1, 0]) == 200
        assert item["reaches_end"] is at_end
        # The last crop ends with the last half frame of the slower stream.
        assert (len(semantic), len(acoustic)) == ((25, 49) if at_end else (25, 50))
        starts.add(int(semantic[0]))
    assert {0, 76} <= starts
    assert max(starts) == 76


def test_AM15_reaches_end_is_true_only_at_the_true_end_and_is_seen_often_enough(manifest, both):
    dataset = TokenDataset(manifest, **both, max_seconds=1.0)
    ends = [dataset.draw(0, rng(seed))["reaches_end"] for seed in range(500)]
    # Cut into pieces of a second, one of five would hold the end.
    assert 0.15 < np.mean(ends) < 0.27
    assert all(dataset.draw(1, rng(seed))["reaches_end"] for seed in range(5))
    assert all(dataset.draw(2, rng(seed))["reaches_end"] for seed in range(5))
    start = TokenDataset(manifest, **both, max_seconds=1.0, random_crop=False).draw(0, rng(3))
    assert start["reaches_end"] is False
    assert start["semantic"].tolist() == list(range(25))


def test_draws_depend_on_the_generator_alone(manifest, both):
    dataset = TokenDataset(manifest, **both, max_seconds=0.52)
    assert len(dataset.draw(0, rng(1))["semantic"]) == 13
    assert torch.equal(dataset.draw(0, rng(1))["acoustic"], dataset.draw(0, rng(1))["acoustic"])
    assert torch.equal(dataset[0]["semantic"], dataset.draw(0, rng(0))["semantic"])
    assert torch.equal(dataset.for_evaluation()[0]["semantic"], dataset[0]["semantic"])
    assert torch.equal(dataset[-1]["semantic"], dataset[2]["semantic"])
    with pytest.raises(IndexError):
        dataset[3]


def test_one_stream_alone(manifest, both):
    semantic = TokenDataset(manifest, both["semantic"], max_seconds=1.0, fields=("path",))
    item = semantic[0]
    assert item.keys() == {"semantic", "reaches_end", "path"}
    assert (len(item["semantic"]), item["path"]) == (25, "long.wav")
    acoustic = TokenDataset(manifest, acoustic=both["acoustic"], max_seconds=0.5, fields=())
    assert acoustic[0].keys() == {"acoustic", "reaches_end"}
    assert acoustic[0]["acoustic"].shape[1] == 3


def test_lengths_for_buckets(manifest, both):
    whole, cropped = TokenDataset(manifest, **both), TokenDataset(manifest, **both, max_seconds=1.0)
    assert [whole.tokens(n) for n in range(3)] == [101 + 3 * 201, 13 + 3 * 25, 25 + 3 * 50]
    assert [cropped.tokens(n) for n in range(3)] == [25 + 3 * 50, 13 + 3 * 25, 25 + 3 * 50]
    assert TokenDataset(manifest, both["semantic"]).tokens(0) == 101
    assert cropped.seconds(0) == 1.0
    assert whole.seconds(1) == 0.52


@pytest.mark.parametrize(
    ("rates", "grid"),
    [
        ((25, 50), Fraction(1, 25)),
        ((50,), Fraction(1, 50)),
        ((50, 75), Fraction(1, 25)),
        ((50, Fraction(100, 3)), Fraction(3, 50)),
        # 50 and 44100 / 512 a second meet every 5.12 seconds: too seldom for crops.
        ((50, Fraction(44100, 512)), Fraction(1, 50)),
    ],
)
def test_crops_begin_where_frames_of_both_begin(rates, grid):
    assert shared_grid([Fraction(rate) for rate in rates]) == grid


@pytest.mark.parametrize("max_seconds", [0.04, 0.1, 3.0])
@pytest.mark.parametrize("frame_rate", [50.0, 33.333333333333336, 44100 / 512, 12.5])
def test_no_crop_is_empty_or_shifted_whatever_the_rates(tmp_path, frame_rate, max_seconds):
    manifest = manifest_of(tmp_path, {"a.wav": 2.99, "b.wav": 3.03})
    semantic = write_tokens(tmp_path, SEMANTIC, manifest)
    acoustic = write_tokens(tmp_path, ACOUSTIC.model_copy(update={"frame_rate": frame_rate}), manifest)
    if max_seconds < shared_grid([semantic.info.rate, acoustic.info.rate]):
        with pytest.raises(UserError, match="max_seconds"):
            TokenDataset(manifest, semantic, acoustic, max_seconds=max_seconds)
        return
    dataset = TokenDataset(manifest, semantic, acoustic, max_seconds=max_seconds)
    ends = 0
    for seed in range(60):
        item = dataset.draw(seed % 2, rng(seed))
        assert len(item["semantic"]) > 0
        assert len(item["acoustic"]) > 0
        assert len(item["semantic"]) <= 25 * max_seconds + 1
        assert abs(int(item["semantic"][0]) / 25 - int(item["acoustic"][0, 0]) / frame_rate) <= 0.5 / frame_rate + 1e-9
        ends += item["reaches_end"]
    assert ends > 0


def test_padded_batches_with_lengths(manifest, both):
    batch = collate([TokenDataset(manifest, **both)[n] for n in (1, 2)])
    assert batch["semantic"].tolist()[0] == [*range(13), *[PAD] * 12]
    assert batch["semantic_lengths"].tolist() == [13, 25]
    assert batch["acoustic"].shape == (2, 50, 3)
    assert batch["acoustic_lengths"].tolist() == [25, 50]
    assert (batch["acoustic"][0, 25:] == PAD).all()
    assert batch["reaches_end"].dtype == torch.bool
    assert batch["text"] == ["short.wav", "middle.wav"]


def test_workers_change_nothing(manifest, both):
    dataset = TokenDataset(manifest, **both, max_seconds=1.0)

    def first(workers: int) -> list[dict]:
        batches = iter(make_loader(dataset, StepSampler(len(dataset), 2, seed=1), num_workers=workers))
        return [next(batches) for _ in range(3)]

    for alone, helped in zip(first(0), first(1)):
        assert torch.equal(alone["acoustic"], helped["acoustic"])
        assert torch.equal(alone["semantic_lengths"], helped["semantic_lengths"])


def test_a_part_of_the_manifest_is_enough(tmp_path, manifest, both):
    part = Manifest(tmp_path, manifest.entries[2:])
    assert len(TokenDataset(part, **both)) == 2


def test_bad_arguments_get_one_sentence(tmp_path, manifest, both):
    with pytest.raises(UserError, match="semantic or acoustic"):
        TokenDataset(manifest)
    with pytest.raises(UserError, match=r"at least 0\.04"):
        TokenDataset(manifest, **both, max_seconds=0.03)
    with pytest.raises(UserError, match=r"knows no recording new\.wav"):
        TokenDataset(manifest_of(tmp_path, {"new.wav": 1.0}), **both)
    with pytest.raises(UserError, match="another recording of that name"):
        TokenDataset(manifest_of(tmp_path, {"long.wav": 2.0}), **both)
    bad = Entry(path="bad.wav", duration=2.0, sample_rate=16000, channels=1)
    with pytest.raises(UserError, match="None of the 1 recordings"):
        TokenDataset(Manifest(tmp_path, [bad]), **both)
