from __future__ import annotations

import subprocess
import sys
from itertools import islice

import numpy as np
import pytest

from madrigal.data.sampler import BucketSampler, Draw, EvaluationSampler, StepSampler, mix, permutation
from madrigal.errors import UserError


def steps(sampler, count):
    """The micro-batches of `count` steps, step by step."""
    flat = list(islice(sampler, count * sampler.accumulation))
    return [flat[i : i + sampler.accumulation] for i in range(0, len(flat), sampler.accumulation)]


def bucket(**options):
    lengths = np.random.default_rng(1).uniform(1, 10, 53)
    return BucketSampler(lengths, 30.0, num_buckets=4, **options)


def plain(**options):
    return StepSampler(23, 3, **options)


@pytest.mark.parametrize("make", [plain, bucket])
def test_start_at_any_step_equals_running_there(make):
    whole = steps(make(accumulation=2, seed=5), 40)
    for start in (1, 7, 39):
        assert steps(make(accumulation=2, seed=5, start_step=start), 40 - start) == whole[start:]


@pytest.mark.parametrize("make", [plain, bucket])
def test_two_ranks_see_what_one_with_twice_the_accumulation_sees(make):
    one = steps(make(accumulation=4, seed=9), 20)
    ranks = [steps(make(accumulation=2, world=2, rank=rank, seed=9), 20) for rank in (0, 1)]
    for step, alone in enumerate(one):
        together = [ranks[number % 2][step][number // 2] for number in range(4)]
        assert together == alone


@pytest.mark.parametrize("make", [plain, bucket])
def test_seed_and_stream_change_order_and_draws(make):
    first = steps(make(seed=1), 5)
    assert steps(make(seed=1), 5) == first
    for other in (make(seed=2), make(seed=1, stream=1)):
        different = steps(other, 5)
        assert [[d.index for d in b] for s in different for b in s] != [[d.index for d in b] for s in first for b in s]
        assert {d.seed for s in different for b in s for d in b}.isdisjoint(d.seed for s in first for b in s for d in b)


def test_every_epoch_is_a_permutation_of_its_own():
    sampler = StepSampler(10, 4, seed=3)
    draws = [draw for batch in islice(sampler, 10) for draw in batch]
    epochs = [[draw.index for draw in draws[i : i + 10]] for i in range(0, 40, 10)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4
    assert len({draw.seed for draw in draws}) == 40


def test_step_sampler_follows_its_formula():
    sampler = StepSampler(7, 3, accumulation=2, world=2, rank=1, seed=4, stream=6)
    for step in (0, 5, 1000):
        for micro in (0, 1):
            number = step * 4 + micro * 2 + 1
            positions = [number * 3 + k for k in range(3)]
            expected = [Draw(int(permutation(7, 4, 6, p // 7)[p % 7]), mix(4, 6, p)) for p in positions]
            assert sampler.micro_batch(step, micro) == expected


def test_draws_are_the_same_in_another_process():
    code = "from madrigal.data.sampler import StepSampler; print(StepSampler(100, 4, seed=-1).micro_batch(10**9, 0))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == str(StepSampler(100, 4, seed=-1).micro_batch(10**9, 0))


def test_hash_and_permutation_never_change():
    """A change here would break the resuming of every run that was ever started."""
    assert mix(0) == 16294208416658607535
    assert mix(1, 2, 3) == 7702586659592502839
    assert permutation(8, 42, 0, 0).tolist() == [0, 6, 5, 1, 4, 7, 2, 3]


def test_steps_per_epoch():
    assert StepSampler(20, 3, accumulation=2, world=2).steps_per_epoch == 2
    assert StepSampler(3, 8).steps_per_epoch == 1
    sampler = bucket(accumulation=2)
    assert sampler.steps_per_epoch == -(-sampler.batches_per_epoch // 2)


def test_X11_a_batch_larger_than_the_set_wraps_round():
    batch = StepSampler(3, 8, seed=1).micro_batch(0, 0)
    assert len(batch) == 8
    assert {draw.index for draw in batch} == {0, 1, 2}
    assert len({draw.seed for draw in batch}) == 8


def test_bucket_batches_keep_the_budget_and_hold_like_lengths():
    lengths = np.random.default_rng(0).uniform(0.5, 12, 200)
    sampler = BucketSampler(lengths, 40.0, num_buckets=8, seed=2)
    for epoch in range(3):
        first = epoch * sampler.batches_per_epoch
        batches = [[d.index for d in sampler.micro_batch(first + i, 0)] for i in range(sampler.batches_per_epoch)]
        assert sorted(index for batch in batches for index in batch) == list(range(200))
        assert all(len(batch) * lengths[batch].max() <= 40 for batch in batches)
        padding = sum(len(batch) * lengths[batch].max() for batch in batches) / lengths.sum()
        assert padding < 1.35


def test_bucket_draws_have_seeds_of_their_own():
    sampler = bucket(seed=8)
    draws = [draw for step in range(3 * sampler.batches_per_epoch) for draw in sampler.micro_batch(step, 0)]
    assert len({draw.seed for draw in draws}) == 3 * 53


def test_bucket_refuses_an_item_over_the_budget():
    with pytest.raises(UserError, match="longest item is 31 long but a batch may hold 20"):
        BucketSampler([3.0, 31.0], 20.0)


@pytest.mark.parametrize("world", [1, 2, 3, 5])
def test_evaluation_sees_every_item_once_in_order(world):
    ranks = [list(EvaluationSampler(11, 3, world=world, rank=rank)) for rank in range(world)]
    batches = [ranks[number % world][number // world] for number in range(4)]
    assert [draw for batch in batches for draw in batch] == [Draw(index, index) for index in range(11)]
    assert [len(EvaluationSampler(11, 3, world=world, rank=rank)) for rank in range(world)] == [len(r) for r in ranks]
    assert sum(len(batches) for batches in ranks) == 4


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: StepSampler(0, 4), "empty"),
        (lambda: StepSampler(4, 0), "batch size"),
        (lambda: StepSampler(4, 1, accumulation=0), "accumulation"),
        (lambda: StepSampler(4, 1, world=2, rank=2), "Rank 2"),
        (lambda: EvaluationSampler(0, 4), "empty"),
        (lambda: BucketSampler([], 4), "empty"),
        (lambda: BucketSampler([1, 0], 4), "above zero"),
        (lambda: BucketSampler([1, 2], 4, num_buckets=0), "buckets"),
    ],
)
def test_bad_arguments_get_one_sentence(make, words):
    with pytest.raises(UserError, match=words):
        make()
