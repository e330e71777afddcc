"""Statistics of returns: what a table of results may claim, and how sure it is.

Every bootstrap starts from the same seed and sorts its scores first, so an interval depends on the
scores alone: every verb prints the same one for the same records.
A *seed* here is one training run; its *score* is the mean return over its evaluation episodes. A
*world* is what an episode shows (a colour setting, a clip); every seed is judged in the same ones.
`resamples` is how many times data are drawn; 95 % of what was drawn lies in the interval.
docs/evaluation.md says why seeds and worlds are drawn as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

BOOTSTRAP_SEED = 0
TAIL = (1 - 0.95) / 2  # of what was drawn, beyond each end of an interval

Statistic = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Reduces the last axis of an array; the leading axes are bootstrap resamples."""
Contrast = Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]
"""Compares two sides on one task in the same way."""

Episodes = Sequence[Mapping[str, Sequence[float]]]
"""For each seed, its values by world."""

EPISODE = "episode "
"""How the name of a world begins that is a single episode, in a mode with one look alone."""

DrawnWorlds = dict[tuple[str, ...], NDArray[np.int64]]
"""How often each of some worlds was drawn: (resamples, worlds)."""


@dataclass(frozen=True)
class Interval:
    """A point estimate with the two ends of its confidence interval; nan where it has none."""

    point: float
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class SeedsAndWorlds:
    """Episodes by seed and world: a score can be computed again for other worlds."""

    worlds: tuple[str, ...]
    """Their names, in the order of the columns."""
    totals: NDArray[np.float64]
    """(seeds, worlds): the sum of the episodes there."""
    counts: NDArray[np.float64]
    """(seeds, worlds): how many episodes there are."""

    @classmethod
    def of(cls, episodes: Episodes, other: Episodes = ()) -> SeedsAndWorlds:
        """Sort episodes, given for each seed by world; a seed without any is left out.

        The worlds of `other` have columns as well, so that two sides have the same ones.

        >>> SeedsAndWorlds.of([{"a": [1.0, 2.0], "b": [6.0]}, {"a": [4.0]}]).scores
        array([3., 4.])
        """
        present = [seed for seed in episodes if any(map(len, seed.values()))]
        worlds = sorted({world for seed in (*present, *other) for world in seed})
        shape = (len(present), len(worlds))
        each = [[np.asarray(seed.get(world, ()), float) for world in worlds] for seed in present]
        totals = np.array([[values.sum() for values in row] for row in each]).reshape(shape)
        counts = np.array([[values.size for values in row] for row in each], float).reshape(shape)
        order = np.argsort(totals.sum(axis=1) / counts.sum(axis=1), kind="stable")
        return cls(tuple(worlds), totals[order], counts[order])

    @property
    def scores(self) -> NDArray[np.float64]:
        """The mean over episodes of each seed, ascending."""
        return self.totals.sum(axis=1) / self.counts.sum(axis=1)

    @property
    def draws(self) -> int:
        """How many different seeds, or worlds, can be drawn: of one there is no interval."""
        return max(len(self.totals), int(self.counts.any(axis=0).sum()))

    def draw_worlds(
        self, generator: np.random.Generator, resamples: int, drawn: DrawnWorlds
    ) -> NDArray[np.int64]:
        """How often each world is drawn: (resamples, worlds).

        Tasks that show the same worlds have the same draws, which `drawn` collects. Episodes of
        several tasks have nothing in common.
        """
        if self.worlds in drawn:
            return drawn[self.worlds]
        worlds = self.totals.shape[1]
        weights = generator.multinomial(worlds, np.full(worlds, 1 / worlds), size=resamples)
        if not any(name.startswith(EPISODE) for name in self.worlds):
            drawn[self.worlds] = weights
        return weights

    def resample(
        self,
        generator: np.random.Generator,
        resamples: int,
        drawn: DrawnWorlds,
        weights: NDArray[np.int64] | None = None,
    ) -> NDArray[np.float64]:
        """Scores of drawn seeds, all of them judged in the same drawn worlds: (resamples, seeds).

        `weights` are worlds that were drawn already, for another side of the same evaluation.
        """
        seeds = len(self.totals)
        taken = generator.integers(seeds, size=(resamples, seeds))
        if weights is None:
            weights = self.draw_worlds(generator, resamples, drawn)
        totals, counts = weights @ self.totals.T, weights @ self.counts.T  # (resamples, seeds)
        seen = counts > 0  # a seed that was judged in none of the drawn worlds keeps its score
        scores = np.where(seen, totals / np.where(seen, counts, 1), self.scores)
        return np.take_along_axis(scores, taken, axis=1)


Scores = ArrayLike | SeedsAndWorlds
"""Of one task: a score per seed, or all episodes by seed and world."""
NO_INTERVAL = Interval(math.nan, math.nan, math.nan)


def _samples(strata: Sequence[Scores]) -> list[SeedsAndWorlds]:
    """What can be drawn of each task; of scores without their episodes, only seeds."""
    return [
        one if isinstance(one, SeedsAndWorlds)
        else SeedsAndWorlds.of([{"": [score]} for score in np.asarray(one, float)])
        for one in strata
    ]  # fmt: skip


def seed_scores(returns_by_seed: Sequence[ArrayLike]) -> NDArray[np.float64]:
    """The mean return over episodes of each seed; a seed without episodes has no score."""
    episodes = [np.asarray(returns, dtype=np.float64) for returns in returns_by_seed]
    return np.array([returns.mean() for returns in episodes if returns.size])


def mean_and_std(values: ArrayLike) -> tuple[float, float]:
    """The mean, and the standard deviation as the paper reports it, over seeds' mean returns.

    The paper does not name the divisor; we take n - 1, the larger of the two. One seed has no
    spread, so its deviation is nan rather than a flattering zero.

    >>> mean_and_std([1, 2, 3])
    (2.0, 1.0)
    """
    numbers = np.asarray(values, np.float64)
    middle = float(numbers.mean()) if numbers.size else math.nan
    return middle, float(numbers.std(ddof=1)) if numbers.size > 1 else math.nan


def mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean of the last axis, as a `Statistic`."""
    return values.mean(axis=-1)


def interquartile_mean(values: ArrayLike) -> NDArray[np.float64]:
    """The mean of the middle half of the last axis: a quarter, rounded down, is cut at each end.

    >>> float(interquartile_mean([0.0, 10.0, 20.0, 1000.0]))
    15.0
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64), axis=-1)
    cut = ordered.shape[-1] // 4
    return ordered[..., cut : ordered.shape[-1] - cut].mean(axis=-1)


def mean_of_strata(sizes: Sequence[int]) -> Statistic:
    """The mean over tasks, which have `sizes` scores each: one with more seeds counts no more."""
    ends = np.cumsum(sizes)[:-1]
    return lambda scores: np.mean(
        [task.mean(axis=-1) for task in np.split(scores, ends, axis=-1)], axis=0
    )


def bootstrap_interval(
    strata: Sequence[Scores], statistic: Statistic, *, resamples: int = 2000
) -> Interval:
    """A percentile bootstrap interval: seeds are drawn within each stratum, worlds for all.

    Where there is nothing to draw but one score, the interval would have no width, as if the score
    were certain: its ends are nan. Strata are tasks, usually: each an array with a score per seed,
    of which seeds are drawn; or `SeedsAndWorlds`, of which both are drawn.
    """
    samples = [sample for sample in _samples(strata) if sample.scores.size]
    if not samples:
        return NO_INTERVAL
    point = float(statistic(np.concatenate([sample.scores for sample in samples])))
    if all(sample.draws < 2 for sample in samples):
        return Interval(point, math.nan, math.nan)
    generator, worlds = np.random.default_rng(BOOTSTRAP_SEED), DrawnWorlds()
    drawn = [sample.resample(generator, resamples, worlds) for sample in samples]
    return _percentiles(point, statistic(np.concatenate(drawn, axis=-1)))


def bootstrap_band(
    heights: ArrayLike, *, resamples: int = 1000
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The pointwise bootstrap interval of a mean curve over seeds: its lower and upper edge.

    Whole curves, (seeds, points), are resampled, so the band of each point is `bootstrap_interval`
    of the mean there. One seed has no spread: its band is nan.
    """
    curves = np.asarray(heights, dtype=np.float64)
    seeds = len(curves)
    if seeds < 2:
        nothing = np.full(curves.shape[1:], np.nan)
        return nothing, nothing
    generator = np.random.default_rng(BOOTSTRAP_SEED)
    drawn = generator.integers(seeds, size=(resamples, seeds))
    weights = (drawn[:, :, None] == np.arange(seeds)).mean(axis=1)  # (resamples, seeds)
    low, high = np.quantile(weights @ curves, [TAIL, 1 - TAIL], axis=0)
    return low, high


def area_under_curve(
    decisions: NDArray[np.float64], returns: NDArray[np.float64], until: float
) -> float:
    """Sample efficiency: the trapezoid area under a training curve over its width.

    The result is in units of return (the mean height of the curve). The curve is cut at `until`,
    so that runs of different length compare; a shorter curve has no such area: nan.
    """
    x, y = decisions, returns
    if x.size == 0 or until > x[-1] or until <= x[0]:
        return math.nan
    height = np.interp(until, x, y)
    x, y = np.append(x[x < until], until), np.append(y[x < until], height)
    return float(np.trapezoid(y, x) / (x[-1] - x[0]))


def difference(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """How much higher our mean is than theirs, as a `Contrast`."""
    return mean(x) - mean(y)


def chance(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.float64]:
    """The chance that a run of ours beats one of theirs: over all pairs, the share where x > y.

    Ties count half (the Mann-Whitney U statistic over its maximum).
    """
    x, y = x[..., :, None], y[..., None, :]  # (..., n, 1), (..., 1, m)
    return (x > y).mean(axis=(-2, -1)) + 0.5 * (x == y).mean(axis=(-2, -1))


def contrast_interval(
    contrast: Contrast, ours: Sequence[Scores], theirs: Sequence[Scores], *, resamples: int = 2000
) -> Interval:
    """A comparison of two sides, averaged over tasks; nan unless both have scores on every task.

    Both sides have one entry per task, in the same order: an array with a score per seed, of which
    seeds are drawn within each task and side; or `SeedsAndWorlds` with the same worlds, which are
    drawn for both sides at once. The ends are nan where no side has two scores to draw from.
    """
    pairs = list(zip(_samples(ours), _samples(theirs), strict=True))
    if not pairs or any(one.scores.size == 0 for pair in pairs for one in pair):
        return NO_INTERVAL
    point = float(np.mean([contrast(x.scores, y.scores) for x, y in pairs]))
    if all(one.draws < 2 for pair in pairs for one in pair):
        return Interval(point, math.nan, math.nan)
    generator, drawn = np.random.default_rng(BOOTSTRAP_SEED), DrawnWorlds()
    compared = []
    for x, y in pairs:  # seeds apart, worlds at once: what a world does to both is no difference
        worlds = x.draw_worlds(generator, resamples, drawn)
        sides = (side.resample(generator, resamples, drawn, worlds) for side in (x, y))
        compared.append(contrast(*sides))
    return _percentiles(point, np.mean(compared, axis=0))


def _percentiles(point: float, drawn: NDArray[np.float64]) -> Interval:
    low, high = np.quantile(drawn, [TAIL, 1 - TAIL])
    return Interval(point, float(low), float(high))
