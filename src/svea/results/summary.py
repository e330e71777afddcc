"""Results: how a group does in a mode, over tasks, and over training."""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from svea.core.words import listed, plural
from svea.data.clips import source_of
from svea.results import published, stats
from svea.results.groups import Group, shown_modes, suite
from svea.results.published import PaperResult
from svea.results.read import Curve, Run

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
    interval: stats.Interval
    """Of the mean, 95 % bootstrap over seeds and worlds: the one that is shown."""
    iqm: stats.Interval
    """The interquartile mean over seeds; of a single seed, over its episodes."""
    mean_over_seeds: stats.Interval
    iqm_over_worlds: stats.Interval
    """The other intervals, for the CSV: the mean's over seeds alone (of a single seed: worlds), and
    the IQM's over seeds and worlds."""
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
        return self.mean / self.random if self.random > 0 else math.nan

    @property
    def percent_of_train(self) -> float:
        """How much of the training return is kept in this mode."""
        return 100 * self.mean / self.train if self.train > 0 else math.nan

    @property
    def departures(self) -> tuple[str, ...]:
        """What keeps the result from being a replication of the paper's."""
        found = list(self.group.departures)
        if self.seeds < published.SEEDS and not found:
            found.append(plural(self.seeds, "seed"))
        partial = self.worlds_seen < self.worlds
        if partial:
            seen = f"{self.worlds_seen} of {self.worlds}" if self.worlds_seen else "not all"
            found.append(f"partial: {seen} worlds")
        if self.mode != "train" and self.paper is not None:
            shown = [run.provenance.get(self.mode, {}) for run in self.group.runs]
            if other := sorted({source_of(record) for record in shown} - BENCHMARK):
                found.append(f"test data {listed(other)}")
            elif any(record.get("missing") for record in shown) and not partial:
                found.append("test data incomplete")
        return tuple(found)

    @property
    def is_replication(self) -> bool:
        """Whether seeds, decisions, settings and worlds are the paper's: the numbers compare."""
        return self.paper is not None and not self.departures


def summarise(
    group: Group, unit: Unit = "return", modes: Collection[str] | None = None
) -> list[Result]:
    """One result per mode (of `modes`, if given) of a group that has any."""
    found = (summarise_mode(group, mode, unit) for mode in shown_modes(group.modes, modes))
    return [result for result in found if result is not None]


def summarise_mode(group: Group, mode: str, unit: Unit = "return") -> Result | None:
    """The result of a group in a mode, from the records of its runs alone; None without any."""
    present = [run for run in group.runs if run.finals(mode, unit).size]
    scores = [run.finals(mode, unit) for run in present]
    if not scores:
        return None
    by_world = group.by_world(mode, unit)
    seeds, is_return = stats.seed_scores(scores), unit == "return"
    mean, std = stats.mean_and_std(seeds)
    one_mean, one_iqm = (seeds, seeds) if len(scores) > 1 else (by_world, scores[0])
    return Result(
        group=group,
        mode=mode,
        unit=unit,
        seeds=len(scores),
        episodes=sum(values.size for values in scores),
        mean=mean,
        std=std,
        interval=stats.bootstrap_interval([by_world], stats.mean),
        iqm=stats.bootstrap_interval([one_iqm], stats.interquartile_mean),
        mean_over_seeds=stats.bootstrap_interval([one_mean], stats.mean),
        iqm_over_worlds=stats.bootstrap_interval([by_world], stats.interquartile_mean),
        worlds_seen=min(run.worlds_seen(mode) for run in present),
        worlds=max(run.worlds_of(mode) for run in present),
        area=stats.bootstrap_interval([areas(group.runs, mode) if is_return else []], stats.mean),
        random=random_return(group, mode) if is_return else math.nan,
        train=_mean_over_seeds([run.finals("train", unit) for run in group.runs]),
        paper=_paper(group.runs[0], mode, unit),
    )


def random_return(group: Group, mode: str) -> float:
    """The random policy's mean return in a mode, over the runs it was evaluated with."""
    return _mean_over_seeds([run.random_returns(mode) for run in group.runs])


def _mean_over_seeds(returns: Sequence[NDArray[np.float64]]) -> float:
    return stats.mean_and_std(stats.seed_scores(returns))[0]


def _paper(run: Run, mode: str, unit: Unit) -> PaperResult | None:
    """The paper's number for a run's setting: always on SAC, one view of each kind, no mask."""
    recipe = run.config.get("recipe")
    views = {recipe.get(name, 1) for name in "KM"} if isinstance(recipe, dict) else {1}
    if (run.base, run.mask, views) != ("sac", "none", {1}):
        return None
    found = published.lookup(run.task, mode, run.method, run.augment, run.encoder)
    return found if found is not None and found.unit == unit else None


@dataclass(frozen=True)
class Aggregate:
    """How one setting does in one mode over several tasks, each of them a stratum."""

    label: str
    method: str
    mode: str
    suite: str
    tasks: tuple[str, ...]
    seeds: int
    """Runs, over all tasks."""
    mean: stats.Interval
    iqm: stats.Interval
    """95 % bootstrap intervals over seeds and worlds, resampled within each task."""


def aggregate(groups: Sequence[Group], modes: Collection[str] | None = None) -> list[Aggregate]:
    """One row per setting, mode (of `modes`, if given) and suite with results on several tasks.

    Only within a suite returns have one scale: 0 to 1,000 in DMControl, at most 50 with a robot.
    """
    pooled: dict[tuple[str, str, str, str], dict[str, stats.SeedsAndWorlds]] = {}
    for group in groups:
        for mode in shown_modes(group.modes, modes):
            by_world = group.by_world(mode)
            if by_world.scores.size:
                setting = (group.label, group.method, mode, suite(group.task))
                pooled.setdefault(setting, {})[group.task] = by_world
    return [
        Aggregate(
            *setting,
            tuple(by_task),
            seeds=sum(task.scores.size for task in by_task.values()),
            mean=stats.bootstrap_interval([*by_task.values()], stats.mean),
            iqm=stats.bootstrap_interval([*by_task.values()], stats.interquartile_mean),
        )
        for setting, by_task in pooled.items()
        if len(by_task) > 1
    ]


# Over training ------------------------------------------------------------------------------------


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
        return self.heights.std(axis=0, ddof=1) if self.seeds > 1 else self.band[0]

    @cached_property
    def band(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Lower and upper edge of the 95 % bootstrap interval of the mean; nan for one seed."""
        return stats.bootstrap_band(self.heights)


def mean_curve(curves: Iterable[Curve]) -> MeanCurve | None:
    """The mean of several seeds' curves, where all have been evaluated; None without a point."""
    present = [curve for curve in curves if curve.decisions.size]
    grid = np.unique(np.concatenate([np.empty(0), *(curve.decisions for curve in present)]))
    for curve in present:
        grid = grid[(grid >= curve.decisions[0]) & (grid <= curve.decisions[-1])]
    if not grid.size:
        return None
    heights = np.array([np.interp(grid, c.decisions, c.returns) for c in present])
    return MeanCurve(Curve(grid, heights.mean(axis=0)), heights)


def areas(runs: Sequence[Run], mode: str, beside: Sequence[Run] = ()) -> NDArray[np.float64]:
    """The area under each run's evaluation curve, to where all, and those `beside` them, end."""
    curves, others = (
        [curve for run in some if (curve := run.evaluation_curve(mode)).decisions.size]
        for some in (runs, beside)
    )
    until = min((float(curve.decisions[-1]) for curve in (*curves, *others)), default=0.0)
    found = np.array([stats.area_under_curve(c.decisions, c.returns, until) for c in curves])
    return found[np.isfinite(found)]


def over_hours(runs: Sequence[Run], mode: str) -> MeanCurve | None:
    """Mean return over runs against their mean hours of wall time, evaluation by evaluation.

    Hours are those logged at each evaluation, so they include evaluations and do not assume that a
    run was equally fast from beginning to end.
    """
    seconds = mean_curve(run.evaluation_curve(mode, "seconds") for run in runs)
    returns = mean_curve(run.evaluation_curve(mode) for run in runs)
    if seconds is None or returns is None or seconds.heights.shape != returns.heights.shape:
        return None
    hours = (seconds.heights / 3600).mean(axis=0)
    return MeanCurve(Curve(hours, returns.curve.returns), returns.heights)


def seconds_per_decision(runs: Iterable[Run]) -> float:
    """The mean over runs, evaluations included; nan where no run says."""
    known = [run.seconds / run.decisions_done for run in runs if run.seconds and run.decisions_done]
    return float(np.mean(known)) if known else math.nan


def hours_to(curve: Curve, level: float) -> float:
    """When a curve over hours first reaches a return, between evaluations; nan if it never does."""
    x, y = curve.decisions, curve.returns
    for first in np.flatnonzero(y >= level)[:1]:
        around = slice(max(first - 1, 0), first + 1)
        return float(np.interp(level, y[around], x[around]))
    return math.nan
