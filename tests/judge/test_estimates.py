from __future__ import annotations

import numpy as np
import pytest

from madrigal.judge.estimates import of_difference, of_mean, of_ratio, of_share, student_quantile


@pytest.mark.parametrize(("freedom", "point"), [(1, 12.706), (4, 2.776), (9, 2.262), (30, 2.042), (1000, 1.962)])
def test_student_quantile_is_that_of_the_tables(freedom: int, point: float) -> None:
    assert student_quantile(freedom) == pytest.approx(point, rel=0.01)


def test_the_interval_holds_the_truth_19_times_in_20() -> None:
    rng = np.random.default_rng(0)
    inside = [(e := of_mean(rng.normal(3.0, 1.0, 6))) is not None and e.low <= 3.0 <= e.high for _ in range(2000)]
    assert np.mean(inside) == pytest.approx(0.95, abs=0.015)


def test_undefined_values_are_not_counted() -> None:
    estimate = of_mean([1.0, float("nan"), 3.0])
    assert estimate is not None
    assert (estimate.mean, estimate.count) == (2.0, 2)


def test_one_value_has_no_error_and_none_has_no_mean() -> None:
    single = of_mean([2.0])
    assert single is not None
    assert (single.mean, single.standard_error, single.half_width) == (2.0, None, None)
    assert of_mean([float("nan")]) is None


def test_a_paired_difference_is_sharper_than_two_means() -> None:
    rng = np.random.default_rng(0)
    easy = rng.normal(0, 5, 50)
    difference = of_difference(easy + 0.2 + 0.1 * rng.normal(size=50), easy)
    assert difference is not None
    assert difference.low is not None
    assert difference.low > 0


def test_a_ratio_is_pooled_and_its_error_is_that_of_resampling() -> None:
    rng = np.random.default_rng(0)
    words = rng.integers(3, 30, 200)
    errors = rng.binomial(words, 0.1)
    estimate = of_ratio(errors, words)
    assert estimate is not None
    assert estimate.mean == errors.sum() / words.sum()
    draws = [rng.integers(0, 200, 200) for _ in range(1000)]
    resampled = np.std([errors[draw].sum() / words[draw].sum() for draw in draws])
    assert estimate.standard_error == pytest.approx(resampled, rel=0.1)


def test_a_ratio_without_denominator_is_none() -> None:
    assert of_ratio([1.0], [0.0]) is None


def test_shares_are_never_certain() -> None:
    all_won, half = of_share(10, 10), of_share(50, 100)
    assert (all_won.mean, all_won.high) == (1.0, 1.0)
    assert all_won.low == pytest.approx(0.722, abs=0.001)
    assert (half.low, half.high) == (pytest.approx(0.404, abs=0.001), pytest.approx(0.596, abs=0.001))
