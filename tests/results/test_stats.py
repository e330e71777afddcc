"""Statistics against closed forms and scipy."""

import itertools
import math
import statistics
from functools import partial

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from svea.results import stats

difference, chance_of = (
    partial(stats.contrast_interval, c) for c in (stats.difference, stats.chance)
)


def rng() -> np.random.Generator:
    """A fixed generator."""
    return np.random.default_rng(7)


def test_mean_and_std_are_over_seeds_not_over_pooled_episodes():
    mean, std = stats.mean_and_std(stats.seed_scores([[0, 10], [20, 20, 20, 20, 20]]))
    assert mean == 12.5  # pooled episodes would give 110 / 7
    assert std == pytest.approx(math.sqrt(2 * 7.5**2))


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=20))
def test_mean_and_std_are_the_standard_librarys(values: list[float]) -> None:
    mean, std = stats.mean_and_std(values)
    assert mean == pytest.approx(statistics.mean(values), abs=1e-6)
    assert std == pytest.approx(statistics.stdev(values), abs=1e-6)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40))
def test_interquartile_mean_is_scipys_trimmed_mean(values):
    expected = scipy.stats.trim_mean(values, 0.25)
    assert float(stats.interquartile_mean(values)) == pytest.approx(expected, rel=1e-9, abs=1e-6)


def test_bootstrap_of_a_mean_agrees_with_scipy():
    values = rng().normal(100, 15, size=60)
    ours = stats.bootstrap_interval([values], stats.mean, resamples=20_000)
    theirs = scipy.stats.bootstrap(
        (values,), np.mean, n_resamples=20_000, method="percentile", rng=rng()
    ).confidence_interval
    assert ours.point == pytest.approx(values.mean())
    assert ours.low == pytest.approx(theirs.low, abs=0.2)
    assert ours.high == pytest.approx(theirs.high, abs=0.2)


def test_bootstrap_is_stratified():
    # Tasks far apart, seeds equal: resampling across tasks would give a wide interval.
    interval = stats.bootstrap_interval([[0, 0, 0], [900, 900, 900]], stats.mean)
    assert (interval.low, interval.high) == (450, 450)


@pytest.mark.parametrize(
    ("seeds", "tasks", "share"), [(2, 1, 0.50), (3, 1, 0.76), (5, 1, 0.83), (2, 5, 0.77)]
)
def test_intervals_over_few_seeds_hold_the_true_mean_as_often_as_the_docs_say(seeds, tasks, share):
    """docs/evaluation.md has these shares: over few seeds "95 %" is less."""
    generator, trials, held = rng(), 800, 0
    for _ in range(trials):
        drawn = [generator.normal(size=seeds) for _ in range(tasks)]
        found = stats.bootstrap_interval(drawn, stats.mean, resamples=400)
        held += found.low <= 0 <= found.high
    assert held / trials == pytest.approx(share, abs=0.045)  # 2.5 standard errors


def by_world(table):
    """One episode per seed (row) and world (column)."""
    return stats.SeedsAndWorlds.of([{str(w): [x] for w, x in enumerate(row)} for row in table])


def test_variance_over_seeds_and_worlds_is_the_sum_of_three():
    """Of seeds, of worlds and of both: the formula in docs/evaluation.md, exact for any table."""
    seeds, worlds = 5, 8
    table = (
        rng().normal(500, 60, (seeds, 1))
        + np.random.default_rng(1).normal(0, 90, worlds)
        + np.random.default_rng(2).normal(0, 40, (seeds, worlds))
    )
    rows, columns, mean = table.mean(1), table.mean(0), table.mean()
    both = table - rows[:, None] - columns + mean
    expected = rows.var() / seeds + columns.var() / worlds + both.var() / (seeds * worlds)
    drawn = by_world(table).resample(rng(), 60_000, {}).mean(axis=1)
    assert drawn.mean() == pytest.approx(mean, abs=1)
    assert drawn.var() == pytest.approx(expected, rel=0.03)


def test_drawing_seeds_and_worlds_is_like_every_draw_there_is():
    """Two seeds in three worlds, not all equally often: 4 × 27 draws, each equally likely."""
    episodes = [{"a": [1.0, 2.0], "b": [10.0], "c": [4.0]}, {"a": [3.0], "b": [30.0], "c": [8.0]}]

    def score(seed, worlds):
        return np.mean([value for world in worlds for value in seed[world]])

    every = [
        np.mean([score(seed, worlds) for seed in seeds])
        for seeds in itertools.product(episodes, repeat=2)
        for worlds in itertools.product("abc", repeat=3)
    ]
    drawn = stats.SeedsAndWorlds.of(episodes).resample(rng(), 50_000, {}).mean(axis=1)
    for height in (1.6, 3.0, 5.0, 8.0, 12.0, 20.0, 29.0):
        chance = np.mean(np.array(every) <= height)
        assert np.mean(drawn <= height) == pytest.approx(chance, abs=0.01)


def test_what_a_world_does_to_all_tasks_widens_the_interval():
    """Two tasks that suffer alike from the same worlds are no surer than one."""
    table = [[0.0, 10.0, 50.0, 400.0]]
    one = stats.bootstrap_interval([by_world(table)], stats.mean)
    assert stats.bootstrap_interval([by_world(table), by_world(table)], stats.mean) == one
    other = stats.SeedsAndWorlds.of([{f"{w} too": [x] for w, x in enumerate(table[0])}])
    episodes = stats.SeedsAndWorlds.of(
        [{f"{stats.EPISODE}{w}": [x] for w, x in enumerate(table[0])}]
    )
    for apart in ([by_world(table), other], [episodes, episodes]):
        both = stats.bootstrap_interval(apart, stats.mean)
        assert both.high - both.low < 0.9 * (one.high - one.low)


def test_a_difference_draws_worlds_once_for_all_tasks():
    ours, theirs = by_world([[0.0, 10.0, 50.0, 400.0]]), by_world([[0.0, 0.0, 0.0, 0.0]])
    one = difference([ours], [theirs])
    assert difference([ours] * 3, [theirs] * 3) == one


def test_one_seed_is_resampled_over_worlds_alone():
    assert stats.bootstrap_interval([by_world([[7.0, 7.0, 7.0]])], stats.mean).high == 7
    two = stats.bootstrap_interval([by_world([[0.0, 1.0]])], stats.mean)
    assert (two.low, two.point, two.high) == (0, 0.5, 1)
    twice = stats.SeedsAndWorlds.of([{"a": [0.0, 0.0, 1.0, 1.0]}])
    one = stats.bootstrap_interval([twice], stats.mean)
    assert one.point == 0.5 and math.isnan(one.low), "one world has no spread"


def test_a_single_score_has_no_interval_instead_of_one_without_width():
    alone, in_another = by_world([[7.0]]), stats.SeedsAndWorlds.of([{"b": [5.0]}], [{"0": [7.0]}])
    for found in (
        stats.bootstrap_interval([[7.0]], stats.mean),
        stats.bootstrap_interval([alone], stats.interquartile_mean),
        stats.bootstrap_interval([alone, [7.0]], stats.mean),
    ):
        assert found.point == 7 and math.isnan(found.low) and math.isnan(found.high)
    gain = difference([stats.SeedsAndWorlds.of([{"0": [7.0]}], [{"b": []}])],
                                 [in_another])  # fmt: skip
    assert gain.point == 2 and math.isnan(gain.low) and math.isnan(gain.high)
    chance = chance_of([[7.0]], [[5.0]])
    assert chance.point == 1 and math.isnan(chance.low)
    assert chance_of([[7.0]], [[5.0, 8.0]]).low == 0, "theirs can be drawn"
    assert stats.bootstrap_interval([[7.0], [5.0, 6.0]], stats.mean).low < 6


def test_an_interval_over_worlds_depends_on_the_records_alone():
    table = rng().normal(size=(4, 6))
    first = stats.bootstrap_interval([by_world(table)], stats.interquartile_mean)
    shuffled = [
        {str(w): [table[s, w]] for w in (5, 3, 0, 1, 4, 2)} for s in (2, 0, 3, 1)
    ]  # fmt: skip
    again = stats.SeedsAndWorlds.of([*shuffled, {}, {"9": []}])
    assert stats.bootstrap_interval([again], stats.interquartile_mean) == first
    assert math.isnan(stats.bootstrap_interval([stats.SeedsAndWorlds.of([])], stats.mean).low)


def test_area_under_a_straight_line_is_its_mean_height():
    x = np.array([0.0, 10, 100])  # uneven on purpose
    assert stats.area_under_curve(x, 3 * x + 1, until=100) == pytest.approx(151)
    assert stats.area_under_curve(x, 3 * x + 1, until=50) == pytest.approx(76)


def test_probability_of_improvement_is_mann_whitney_u():
    x, y = rng().normal(1, 1, 12), rng().normal(0, 1, 9)
    ours = chance_of([x], [y])
    u = scipy.stats.mannwhitneyu(x, y).statistic
    assert ours.point == pytest.approx(u / (12 * 9))
    assert ours.low < ours.point < ours.high


def test_probability_of_improvement_counts_ties_half_and_averages_tasks():
    interval = chance_of([[1, 1], [5, 6]], [[1, 1], [0, 0]])
    assert (interval.low, interval.point, interval.high) == (0.75, 0.75, 0.75)


def test_the_difference_of_means_has_the_width_of_its_closed_form():
    x, y = rng().normal(3, 2, 80), rng().normal(1, 1, 50)
    ours = difference([x], [y], resamples=20_000)
    assert ours.point == pytest.approx(x.mean() - y.mean())
    error = math.sqrt(x.var() / 80 + y.var() / 50)  # of the bootstrap's normal limit
    width = 2 * scipy.stats.norm.ppf(0.975) * error
    assert ours.high - ours.low == pytest.approx(width, rel=0.03)


def test_differences_are_averaged_over_tasks_and_resampled_within_them():
    interval = difference([[1, 1], [900, 900]], [[0, 0], [890, 890]])
    assert (interval.low, interval.point, interval.high) == (5.5, 5.5, 5.5)
    assert math.isnan(difference([[1]], [[]]).point)


def test_a_difference_over_worlds_has_the_variance_of_its_closed_form():
    """What a world does to both sides cancels; seeds of each side are drawn apart."""
    shared, generator = np.linspace(-300, 300, 40), rng()
    x = 500 + shared + generator.normal(0, 20, (6, 1)) + generator.normal(0, 30, 40)
    y = 400 + shared + generator.normal(0, 10, (4, 1))
    ours, theirs = by_world(x), by_world(y)
    found = difference([ours], [theirs], resamples=40_000)
    assert found.point == pytest.approx(x.mean() - y.mean())
    gaps = x.mean(axis=0) - y.mean(axis=0)
    variance = x.mean(axis=1).var() / 6 + y.mean(axis=1).var() / 4 + gaps.var() / 40
    width = 2 * scipy.stats.norm.ppf(0.975) * math.sqrt(variance)  # no residual in these tables
    assert found.high - found.low == pytest.approx(width, rel=0.03)


def test_sides_that_were_judged_in_other_worlds_are_compared_too():
    left, right = [{"a": [1.0], "b": [3.0]}], [{"b": [3.0], "c": [3.0]}]
    sides = stats.SeedsAndWorlds.of(left, right), stats.SeedsAndWorlds.of(right, left)
    assert sides[0].totals.shape == sides[1].totals.shape == (1, 3)
    found = difference(sides[:1], sides[1:])
    assert (found.low, found.point, found.high) == (-2, -1, 0)
    chance = chance_of(sides[:1], sides[1:])
    assert (chance.low, chance.point, chance.high) == (0, 0, 0.5)
