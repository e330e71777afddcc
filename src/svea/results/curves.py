"""Curves over training, averaged over seeds: against decisions, and against wall time."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from svea.results import stats
from svea.results.groups import Group
from svea.results.run import Curve, Run


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
