from __future__ import annotations

import random
import signal
import subprocess
from itertools import islice

import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset

from madrigal.data.dataset import SoundDataset
from madrigal.data.loader import Drawn, make_loader
from madrigal.data.sampler import Draw, EvaluationSampler, StepSampler
from madrigal.errors import UserError


class Foreign(Dataset):
    """A dataset of somebody else: random by the global generators, with a wave of random length."""

    def __len__(self):
        return 9

    def __getitem__(self, index):
        numbers = [random.random(), np.random.rand(), torch.rand(()).item()]
        return torch.tensor([index, *numbers])


class Complaining(Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        raise UserError("The disk is gone.")


@pytest.fixture
def sounds(record, tmp_path):
    for number in range(7):
        record(f"in/{number}.wav", seconds=0.2 + 0.1 * number, seed=number)
    (tmp_path / "in" / "bad.wav").write_text("no sound")
    return SoundDataset(tmp_path / "in", (16000, 24000), max_length=4000, gain_db=(-6, 6), fields=("path",))


def batches(dataset, count=6, num_workers=0, **options):
    sampler = StepSampler(len(dataset), 3, seed=11, **options)
    return list(islice(make_loader(dataset, sampler, num_workers=num_workers), count))


def assert_same(left, right):
    assert len(left) == len(right)
    for one, other in zip(left, right):
        assert one.keys() == other.keys()
        for key in one:
            assert torch.equal(one[key], other[key]) if isinstance(one[key], torch.Tensor) else one[key] == other[key]


@pytest.mark.parametrize("foreign", [True, False])
def test_workers_give_the_same_batches(sounds, foreign):
    dataset = Foreign() if foreign else sounds
    expected = batches(dataset)
    assert_same(batches(dataset, num_workers=2), expected)
    assert_same(batches(dataset, count=4, start_step=2), expected[2:])


def test_the_same_item_differs_from_epoch_to_epoch(sounds):
    drawn = Drawn(sounds)
    index = len(sounds) - 1
    one, again, other = (drawn[Draw(index, seed)]["audio"] for seed in (1, 1, 2))
    assert torch.equal(one, again)
    assert not torch.equal(one, other)


def test_global_generators_do_not_notice():
    def state():
        return random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()

    torch.manual_seed(3)
    before = state()
    drawn = Drawn(Foreign())
    assert torch.equal(drawn[Draw(2, 2**64 - 1)], drawn[Draw(2, 2**64 - 1)])
    assert not torch.equal(drawn[Draw(2, 1)], drawn[Draw(2, 2)])
    batches(Foreign())
    assert state() == before


def test_AT7_parts_of_a_split_keep_the_draws_of_their_dataset(sounds):
    """Through a plain Subset an item would get the same crop for ever."""
    part = Subset(ConcatDataset([Subset(sounds, [0, 1]), Subset(sounds, [5, 6])]), [3, 0])
    for place, index in ((0, 6), (1, 0)):
        for seed in (1, 2):
            expected = sounds.draw(index, np.random.default_rng(seed))
            assert_same([Drawn(part)[Draw(place, seed)]], [expected])


def test_a_damaged_file_is_replaced_from_its_own_part_of_the_split(sounds):
    assert sounds.files[7].name == "bad.wav"
    part = Drawn(Subset(sounds, [7, 2, 4]))
    names = {part[Draw(0, seed)]["path"].rsplit("/", 1)[1] for seed in range(20)}
    assert names == {"2.wav", "4.wav"}


def test_validation_is_the_same_every_time_and_whole(sounds):
    def run():
        return list(make_loader(sounds, EvaluationSampler(len(sounds), 3)))

    first = run()
    assert_same(run(), first)
    assert sum(len(batch["lengths"]) for batch in first) == len(sounds)
    assert torch.equal(first[0]["audio"][1, :, : first[0]["lengths"][1]], sounds[1]["audio"])


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_mistake_leaves_a_worker_as_one_sentence(num_workers):
    with pytest.raises(UserError, match=r"^The disk is gone\.$"):
        batches(Complaining(), num_workers=num_workers)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_workers_outlive_the_signals_that_stop_a_trainer(number):
    dataset = Foreign()
    loader = make_loader(dataset, StepSampler(len(dataset), 3, seed=11), num_workers=2)
    stream = iter(loader)
    got = [next(stream)]
    for worker in loader._iterator._workers:
        # From a third process, as a terminal or a scheduler sends it: the loader's own word is obeyed.
        subprocess.run(["kill", f"-{int(number)}", str(worker.pid)], check=True)
    got += list(islice(stream, 5))
    assert_same(got, batches(dataset))


def test_own_collation(sounds):
    loader = make_loader(sounds, EvaluationSampler(4, 2), collate=len)
    assert list(loader) == [2, 2]
