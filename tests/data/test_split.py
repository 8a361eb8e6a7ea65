from __future__ import annotations

import pytest

from madrigal.data.split import split
from madrigal.errors import UserError


@pytest.mark.parametrize("num_items", [2, 3, 19, 20, 60, 1000])
@pytest.mark.parametrize("valid_frac", [0.001, 0.05, 0.5, 0.999])
def test_AT7_X11_both_sides_have_items_and_share_none(num_items, valid_frac):
    train, valid = split(num_items, valid_frac, 42)
    assert train
    assert valid
    assert sorted(train + valid) == list(range(num_items))


def test_fraction_and_seed_mean_something():
    train, valid = split(1000, 0.05, 42)
    assert len(valid) == 50
    assert split(1000, 0.05, 42) == (train, valid)
    assert split(1000, 0.05, 43)[1] != valid
    assert len(split(1000, 0.2, 42)[1]) == 200


def test_AT7_no_validation_only_when_asked_or_when_there_is_one_item():
    assert split(10, 0.0, 1) == (list(range(10)), [])
    assert split(1, 0.5, 1)[1] == []


@pytest.mark.parametrize(("num_items", "valid_frac"), [(10, 1.0), (10, -0.1), (0, 0.1)])
def test_bad_arguments_get_one_sentence(num_items, valid_frac):
    with pytest.raises(UserError):
        split(num_items, valid_frac, 1)
