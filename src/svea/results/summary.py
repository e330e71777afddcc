"""Results: how a group does in a mode, over tasks, and over training."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from svea.core.words import listed, plural
from svea.data.clips import source_of
from svea.results import published, stats
from svea.results.groups import Group, suite
from svea.results.published import PaperResult
from svea.results.read import Curve, Run


@dataclass(frozen=True, eq=False)
class MeanCurve:
    """A mean over seeds, at every decision where any of them was evaluated."""

    curve: Curve
    heights: NDArray[np.float64]
    """(seeds, points)."""

    @property
    def seeds(self) -> int:
        """How many it is the mean of."""
        return len(self.heights)

    @property
    def std(self) -> NDArray[np.float64]:
        """The standard deviation over seeds at each point; nan for one seed."""
        if self.seeds < 2:
            return np.full(self.heights.shape[1:], np.nan)
        return self.heights.std(axis=0, ddof=1)

    def interval(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lower and upper edge of the 95 % bootstrap interval of the mean; nan for one seed."""
        return stats.bootstrap_band(self.heights)


def mean_curve(curves: Iterable[Curve]) -> MeanCurve | None:
    """The mean of several seeds' curves, where all have been evaluated; None without a point."""
    present = [curve for curve in curves if curve.decisions.size]
    if not present:
        return None
    first = max(curve.decisions[0] for curve in present)
    last = min(curve.decisions[-1] for curve in present)
    grid = np.unique(np.concatenate([curve.decisions for curve in present]))
    grid = grid[(grid >= first) & (grid <= last)]
    if not grid.size:
        return None
    heights = np.array([np.interp(grid, c.decisions, c.returns) for c in present])
    return MeanCurve(Curve(grid, heights.mean(axis=0)), heights)


def areas(runs: Sequence[Run], mode: str, until: float | None = None) -> NDArray[np.float64]:
    """The area under each run's evaluation curve, up to one decision that all reach.

    Args:
        runs: to be compared, so that all areas end at the same decision.
        mode: of the evaluations.
        until: where the areas end; default: the last decision that all runs were evaluated at.
    """
    curves = [run.evaluation_curve(mode) for run in runs]
    curves = [curve for curve in curves if curve.decisions.size]
    if not curves:
        return np.empty(0)
    end = min(float(curve.decisions[-1]) for curve in curves) if until is None else until
    found = np.array([stats.area_under_curve(c.decisions, c.returns, end) for c in curves])
    return found[np.isfinite(found)]


# Wall time ----------------------------------------------------------------------------------------


def over_hours(runs: Sequence[Run], mode: str) -> MeanCurve | None:
    """Mean return over runs against their mean hours of wall time, evaluation by evaluation.

    Hours are those logged at each evaluation, so they include evaluations and do not assume that a
    run was equally fast from beginning to end.
    """
    hours = mean_curve(run.evaluation_hours(mode) for run in runs)
    returns = mean_curve(run.evaluation_curve(mode) for run in runs)
    if hours is None or returns is None or hours.heights.shape != returns.heights.shape:
        return None
    return MeanCurve(Curve(hours.curve.returns, returns.curve.returns), returns.heights)


def seconds_per_decision(runs: Iterable[Run]) -> float:
    """The mean over runs, evaluations included; nan where no run says."""
    known = [run.seconds / run.decisions_done for run in runs if run.seconds and run.decisions_done]
    return float(np.mean(known)) if known else math.nan


@dataclass(frozen=True, eq=False)
class WallTime:
    """How long a group takes, and what it has reached when."""

    group: Group
    curve: Curve
    """Mean return over seeds against their mean hours of wall time."""
    milliseconds: float
    """Per decision, evaluations included; mean over seeds."""

    def hours_to(self, level: float) -> float:
        """When the mean curve first reaches a return, between evaluations; nan if it never does."""
        x, y = self.curve.decisions, self.curve.returns
        for first in np.flatnonzero(y >= level)[:1]:
            if first == 0 or y[first] == y[first - 1]:
                return float(x[first])
            share = (level - y[first - 1]) / (y[first] - y[first - 1])
            return float(x[first - 1] + share * (x[first] - x[first - 1]))
        return float("nan")


def wall_times(groups: Sequence[Group], mode: str) -> list[WallTime]:
    """The groups that were evaluated in a mode during training, with their wall times."""
    curves = {group: over_hours(group.runs, mode) for group in groups}
    return [
        WallTime(group, found.curve, 1000 * seconds_per_decision(group.runs))
        for group, found in curves.items()
        if found is not None
    ]


def common_level(times: Sequence[WallTime]) -> float:
    """A return that all reach: nine tenths of the lowest of their best ones."""
    return 0.9 * min(float(one.curve.returns.max()) for one in times)


BENCHMARK = frozenset({"stored", "dmcgb", "davis"})
"""Sources of test data that are the benchmark's own."""

Unit = Literal["return", "success"]


@dataclass(frozen=True, eq=False)
class Result:
    """How a group does in one mode, with what it is to be judged against."""

    group: Group
    mode: str
    unit: Unit
    """What a score is: the mean return of a seed's episodes, or the share that succeeded."""
    seeds: int
    episodes: int
    mean: float
    std: float
    """Over seeds; nan for a single seed."""
    mean_interval: stats.Interval
    iqm: stats.Interval
    """95 % bootstrap intervals over seeds, in the worlds that were seen. For a single seed, the
    mean's is over worlds and the IQM's over episodes; for a single one of those there is none."""
    mean_over_worlds: stats.Interval
    iqm_over_worlds: stats.Interval
    """The same over seeds and worlds: of other worlds of the same kind, too."""
    worlds_seen: int
    """How many worlds every seed was judged in; 0 where records name none."""
    worlds: int
    """How many the mode has; 0 where it has one look."""
    area: stats.Interval
    """Sample efficiency: the area under the evaluation curve in this mode, as a mean return, up to
    the last decision that all seeds were evaluated at; its interval is over seeds."""
    random: float
    """The random policy's mean return in the same mode; nan where it was not evaluated."""
    train: float
    """The same group's mean in the training mode; nan where there is none."""
    paper: PaperResult | None

    @property
    def times_random(self) -> float:
        """The return as a multiple of the random policy's, where that is positive."""
        return self.mean / self.random if self.random > 0 else float("nan")

    @property
    def percent_of_train(self) -> float:
        """How much of the training return is kept in this mode."""
        return 100 * self.mean / self.train if self.train > 0 else float("nan")

    @property
    def departures(self) -> tuple[str, ...]:
        """What keeps the result from being a replication of the paper's."""
        few = self.seeds < published.SEEDS
        seeds = (plural(self.seeds, "seed"),) if few and not self.group.departures else ()
        seen = f"{self.worlds_seen} of {self.worlds}" if self.worlds_seen else "not all"
        partial = (f"partial: {seen} worlds",) if self.worlds_seen < self.worlds else ()
        return (*self.group.departures, *seeds, *partial, *self._test_data(bool(partial)))

    def _test_data(self, is_partial: bool) -> tuple[str, ...]:
        """What is not the benchmark's about the data of a test mode."""
        if self.mode == "train" or self.paper is None:
            return ()
        records = [run.provenance().get(self.mode, {}) for run in self.group.runs]
        sources = {source_of(record) for record in records}
        if other := sorted(sources - BENCHMARK):
            return (f"test data {listed(other)}",)
        lacking = any(record.get("missing") for record in records)
        return ("test data incomplete",) if lacking and not is_partial else ()

    @property
    def is_replication(self) -> bool:
        """Whether seeds, decisions, settings and worlds are the paper's: the numbers compare."""
        return self.paper is not None and not self.departures


def summarise(group: Group, unit: Unit = "return") -> list[Result]:
    """One result per mode of a group that has any."""
    found = (summarise_mode(group, mode, unit) for mode in group.modes)
    return [result for result in found if result is not None]


def summarise_mode(group: Group, mode: str, unit: Unit = "return") -> Result | None:
    """The result of a group in a mode; None where there is none.

    It depends on the records of the group's runs alone, so every verb shows the same numbers.
    """
    present = [run for run in group.runs if run.finals(mode, unit).size]
    scores = [run.finals(mode, unit) for run in present]
    if not scores:
        return None
    mean, std = stats.mean_and_std_over_seeds(scores)
    by_world = stats.SeedsAndWorlds.of([run.final_by_world(mode, unit) for run in group.runs])
    in_training = [run.finals("train", unit) for run in group.runs]
    several, is_return = len(scores) > 1, unit == "return"
    seeds = stats.seed_scores(scores)
    return Result(
        group=group,
        mode=mode,
        unit=unit,
        seeds=len(scores),
        episodes=sum(values.size for values in scores),
        mean=mean,
        std=std,
        mean_interval=stats.bootstrap_interval([seeds if several else by_world], stats.mean),
        iqm=stats.bootstrap_interval([seeds if several else scores[0]], stats.interquartile_mean),
        mean_over_worlds=stats.bootstrap_interval([by_world], stats.mean),
        iqm_over_worlds=stats.bootstrap_interval([by_world], stats.interquartile_mean),
        worlds_seen=min(run.worlds_seen(mode) for run in present),
        worlds=max(run.worlds_of(mode) for run in present),
        area=_mean_area(group, mode) if is_return else stats.NO_INTERVAL,
        random=random_return(group, mode) if is_return else float("nan"),
        train=stats.mean_and_std_over_seeds(in_training)[0],
        paper=_paper(group.runs[0], mode, unit),
    )


@dataclass(frozen=True)
class Aggregate:
    """How one setting does in one mode over several tasks, each of them a stratum."""

    label: str
    mode: str
    suite: str
    tasks: tuple[str, ...]
    seeds: int
    """Runs, over all tasks."""
    mean: stats.Interval
    iqm: stats.Interval
    """95 % bootstrap intervals: seeds are resampled within each task. Where a task has a single
    seed there is nothing to draw of it, and both are over seeds and worlds."""
    mean_over_worlds: stats.Interval
    iqm_over_worlds: stats.Interval
    """The same with seeds and worlds resampled within each task."""


def aggregate(groups: Sequence[Group]) -> list[Aggregate]:
    """One row per setting, mode and suite that has results on several tasks.

    Returns are pooled as they are, so only within a suite: every task of DMControl pays 0 to 1,000
    an episode, every robot task at most 50.
    """
    pooled: dict[tuple[str, str, str], dict[str, stats.SeedsAndWorlds]] = {}
    for group in groups:
        for mode in group.modes:
            by_world = stats.SeedsAndWorlds.of([run.final_by_world(mode) for run in group.runs])
            if by_world.scores.size:
                setting = (group.label, mode, suite(group.task))
                pooled.setdefault(setting, {})[group.task] = by_world
    return [
        Aggregate(label, mode, family, tuple(by_task), *_pool(list(by_task.values())))
        for (label, mode, family), by_task in pooled.items()
        if len(by_task) > 1
    ]


def _pool(
    tasks: Sequence[stats.SeedsAndWorlds],
) -> tuple[int, stats.Interval, stats.Interval, stats.Interval, stats.Interval]:
    """The number of runs, and both statistics over seeds, then over seeds and worlds."""
    scores = [task.scores for task in tasks]
    found = (
        stats.bootstrap_interval(strata, statistic)
        for strata in (scores, tasks)
        for statistic in (stats.mean, stats.interquartile_mean)
    )
    mean, iqm, wide_mean, wide_iqm = found
    if any(values.size < 2 for values in scores):
        # A task with one seed would add nothing to the width, as if its seeds were all alike.
        mean, iqm = wide_mean, wide_iqm
    return sum(values.size for values in scores), mean, iqm, wide_mean, wide_iqm


def random_return(group: Group, mode: str) -> float:
    """The random policy's mean return in a mode, over the runs it was evaluated with."""
    return stats.mean_and_std_over_seeds([run.random_returns(mode) for run in group.runs])[0]


def _mean_area(group: Group, mode: str) -> stats.Interval:
    """The area of a group: its mean over seeds; a single seed has no interval."""
    return stats.bootstrap_interval([areas(group.runs, mode)], stats.mean)


def _paper(run: Run, mode: str, unit: Unit) -> PaperResult | None:
    """The paper's number for a run's setting: always on SAC, one view of each kind, no mask."""
    recipe = run.config.get("recipe")
    views = [recipe.get(name, 1) for name in "KM"] if isinstance(recipe, dict) else []
    if run.base != "sac" or run.mask != "none" or any(view != 1 for view in views):
        return None
    found = published.lookup(run.task, mode, run.method, run.augment, run.encoder)
    return found if found is not None and found.unit == unit else None
