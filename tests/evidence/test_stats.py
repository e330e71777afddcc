"""Statistics against closed forms and scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from svea.evidence import stats


def rng() -> np.random.Generator:
    """A fixed generator."""
    return np.random.default_rng(7)


def test_mean_and_std_are_over_seeds_not_over_pooled_episodes():
    mean, std = stats.mean_and_std_over_seeds([[0, 10], [20, 20, 20, 20, 20]])
    assert mean == 12.5  # pooled episodes would give 110 / 7
    assert std == pytest.approx(math.sqrt(2 * 7.5**2))


def test_one_seed_has_no_deviation_and_none_has_no_mean():
    mean, std = stats.mean_and_std_over_seeds([[1.0, 3.0]])
    assert mean == 2.0
    assert math.isnan(std)
    assert all(math.isnan(value) for value in stats.mean_and_std_over_seeds([[]]))


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_interquartile_mean_is_scipys_trimmed_mean(values):
    expected = scipy.stats.trim_mean(values, 0.25)
    assert float(stats.interquartile_mean(values)) == pytest.approx(expected, rel=1e-9, abs=1e-6)


def test_interquartile_mean_reduces_the_last_axis():
    rows = np.array([[0.0, 1, 2, 99], [5, 5, 5, 5]])
    np.testing.assert_allclose(stats.interquartile_mean(rows), [1.5, 5])


def test_bootstrap_of_a_mean_agrees_with_scipy():
    values = rng().normal(100, 15, size=60)
    ours = stats.bootstrap_interval([values], stats.mean, resamples=20_000)
    theirs = scipy.stats.bootstrap(
        (values,), np.mean, n_resamples=20_000, method="percentile", rng=rng()
    ).confidence_interval
    assert ours.point == pytest.approx(values.mean())
    assert ours.low == pytest.approx(theirs.low, abs=0.2)
    assert ours.high == pytest.approx(theirs.high, abs=0.2)


def test_bootstrap_interval_of_two_values_is_exact():
    # Means of two draws from {0, 1} are 0, 1/2, 1 with chances 1/4, 1/2, 1/4.
    narrow = stats.bootstrap_interval([[0, 1]], stats.mean, confidence=0.4)
    wide = stats.bootstrap_interval([[0, 1]], stats.mean, confidence=0.95)
    assert (narrow.low, narrow.point, narrow.high) == (0.5, 0.5, 0.5)
    assert (wide.low, wide.high) == (0.0, 1.0)


def test_bootstrap_is_stratified():
    # Tasks far apart, seeds equal: resampling across tasks would give a wide interval.
    interval = stats.bootstrap_interval([[0, 0, 0], [900, 900, 900]], stats.mean)
    assert (interval.low, interval.high) == (450, 450)


def test_an_interval_depends_on_the_scores_alone():
    values = np.arange(9.0) ** 2
    first = stats.bootstrap_interval([values], stats.interquartile_mean)
    stats.bootstrap_interval([values], stats.mean)  # what was asked for before does not matter
    assert stats.bootstrap_interval([values], stats.interquartile_mean) == first
    shuffled = np.random.default_rng(0).permutation(values)
    again = stats.bootstrap_interval([shuffled], stats.interquartile_mean)
    assert (again.low, again.high) == (first.low, first.high)


def test_bootstrap_of_nothing_is_nan():
    assert math.isnan(stats.bootstrap_interval([[]], stats.mean).low)


def test_area_under_a_straight_line_is_its_mean_height():
    x = np.array([0.0, 10, 100])  # uneven on purpose
    assert stats.area_under_curve(x, 3 * x + 1) == pytest.approx(151)
    assert stats.area_under_curve(x, 3 * x + 1, until=50) == pytest.approx(76)


def test_area_up_to_a_decision_never_reached_is_nan():
    assert math.isnan(stats.area_under_curve([0, 10], [1, 1], until=20))
    assert math.isnan(stats.area_under_curve([5], [1]))


def test_probability_of_improvement_is_mann_whitney_u():
    x, y = rng().normal(1, 1, 12), rng().normal(0, 1, 9)
    ours = stats.probability_of_improvement([x], [y])
    u = scipy.stats.mannwhitneyu(x, y).statistic
    assert ours.point == pytest.approx(u / (12 * 9))
    assert ours.low < ours.point < ours.high


def test_probability_of_improvement_counts_ties_half_and_averages_tasks():
    interval = stats.probability_of_improvement([[1, 1], [5, 6]], [[1, 1], [0, 0]])
    assert (interval.low, interval.point, interval.high) == (0.75, 0.75, 0.75)


def test_the_difference_of_means_has_the_width_of_its_closed_form():
    x, y = rng().normal(3, 2, 80), rng().normal(1, 1, 50)
    ours = stats.mean_difference([x], [y], resamples=20_000)
    assert ours.point == pytest.approx(x.mean() - y.mean())
    error = math.sqrt(x.var() / 80 + y.var() / 50)  # of the bootstrap's normal limit
    width = 2 * scipy.stats.norm.ppf(0.975) * error
    assert ours.high - ours.low == pytest.approx(width, rel=0.03)


def test_differences_are_averaged_over_tasks_and_resampled_within_them():
    interval = stats.mean_difference([[1, 1], [900, 900]], [[0, 0], [890, 890]])
    assert (interval.low, interval.point, interval.high) == (5.5, 5.5, 5.5)
    assert math.isnan(stats.mean_difference([[1]], [[]]).point)
