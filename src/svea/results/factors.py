"""How far each factor of the world may go before an agent breaks.

An agent's *tolerance* is the range around the training value in which it keeps a share of its
training return, by linear interpolation between the values that were evaluated; its ends have 95 %
bootstrap intervals over episodes, which are the same at every value, and over seeds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from svea.config.factors import FACTORS, Factor, at, read_mode, share_of_range
from svea.core.words import interval, number, rate
from svea.results.groups import Group
from svea.results.read import values
from svea.results.stats import BOOTSTRAP_SEED, TAIL, Interval
from svea.results.tables import Cell, Table

RESAMPLES = 1000
MOST, HALF = 0.9, 0.5
"""Shares of the training return that a tolerance is given for."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Response:
    """What an agent returns while one factor changes."""

    group: Group
    factor: Factor
    values: Floats
    """Where it was evaluated; the training value is among them."""
    means: Floats
    """The mean return at each."""
    drawn: Floats
    """The same of bootstrap resamples, `(RESAMPLES, values)`; without any for a single episode."""
    success: Floats
    """The share of successes at each; nan where the task knows none."""

    @property
    def train(self) -> int:
        """The place of the training value."""
        return int(np.flatnonzero(self.values == self.factor.training)[0])

    @cached_property
    def band(self) -> tuple[Floats, Floats]:
        """Lower and upper edge of the 95 % interval of the mean at each value."""
        if not len(self.drawn):
            return (np.full(len(self.values), np.nan),) * 2
        low, high = np.quantile(self.drawn, [TAIL, 1 - TAIL], axis=0)
        return low, high

    def ends(self, share: float) -> tuple[Interval, Interval]:
        """Both ends of the range in which this share of the training return is kept."""
        found = []
        for side in (-1, 1):
            point = reach(self.values, self.means[None], self.train, share, side)
            ends = reach(self.values, self.drawn, self.train, share, side)
            known = ends[np.isfinite(ends)]
            low, high = np.quantile(known, [TAIL, 1 - TAIL]) if known.size else (math.nan,) * 2
            found.append(Interval(float(point[0]), float(low), float(high)))
        return found[0], found[1]

    def room(self, share: float) -> float:
        """How much of the way to the nearer end of the factor's range this share is kept: 0 to 1.

        1 is all the way; nan without a training return.
        """
        ends = [end.point for end in self.ends(share)]
        if any(map(math.isnan, ends)):
            return math.nan
        ways = map(self._way, ends, self.values[[0, -1]])
        return min(filter(math.isfinite, ways), default=1.0)

    def _way(self, end: float, limit: float) -> float:
        """How far an end is; nan on a side that was not evaluated."""
        if limit == self.factor.training:
            return math.nan
        return 1.0 if end == limit else share_of_range(self.factor.name, end)

    @property
    def order(self) -> tuple[float, float, float]:
        """What breaks sooner comes first."""
        kept = float(self.means.min() / max(self.means[self.train], 1e-9))
        return self.room(HALF), self.room(MOST), kept

    @property
    def breaks_at(self) -> float | None:
        """The nearer end of where half is kept; None where it is kept everywhere."""
        if not self.room(HALF) < 1:
            return None
        ends = [end.point for end in self.ends(HALF)]
        inside = [e for e, v in zip(ends, self.values[[0, -1]], strict=True) if e != v]
        return min(inside, key=lambda end: share_of_range(self.factor.name, end))


def reach(x: Floats, means: Floats, train: int, share: float, side: int) -> Floats:
    """Where means `(n, values)` fall below a share of those at the place of training, to a side.

    The last value where they never do; nan where there is no training return to keep.

    >>> reach(np.arange(3.0), np.array([[10.0, 8.0, 0.0]]), 0, 0.5, 1)
    array([1.375])
    """
    places = np.arange(train, len(x) if side > 0 else -1, side)
    x, above = x[places], means[:, places] - share * means[:, [train]]
    below = above < 0
    first = np.where(below.any(axis=1), below.argmax(axis=1), len(places))
    last = np.clip(first - 1, 0, len(places) - 1)
    following, rows = np.minimum(last + 1, len(places) - 1), np.arange(len(means))
    fall = above[rows, last] - above[rows, following]
    way = np.divide(above[rows, last], fall, out=np.zeros(len(means)), where=fall > 0)
    found = x[last] + (x[following] - x[last]) * way
    found = np.where(first == len(places), x[-1], found)
    return np.where(means[:, train] > 0, found, np.nan)


def responses(groups: Sequence[Group], modes: Sequence[str] | None = None) -> list[Response]:
    """Every factor of every group that was evaluated at several values, task by task.

    What breaks a group sooner comes first.
    """
    found = [one for group in groups for one in _of_group(group, modes)]
    return sorted(found, key=lambda one: (one.group.task, one.group.label, one.order))


def _of_group(group: Group, modes: Sequence[str] | None) -> Iterator[Response]:
    by_factor: dict[str, set[float]] = {}
    for mode in group.modes:
        if (found := read_mode(mode)) and (modes is None or mode in modes):
            by_factor.setdefault(found[0], set()).add(found[1])
    for name, others in by_factor.items():
        x = np.array(sorted({*others, FACTORS[name].training}))
        returns = episodes(group, name, x, "return")
        if np.isfinite(returns).any(axis=(0, 2)).all():
            success = episodes(group, name, x, "success")
            rates = np.array([np.nanmean(s) if np.isfinite(s).any() else math.nan
                              for s in success.transpose(1, 0, 2)])  # fmt: skip
            drawn, means = resampled(returns), np.nanmean(returns, axis=(0, 2))
            yield Response(group, FACTORS[name], x, means, drawn, rates)


def episodes(group: Group, name: str, x: Floats, unit: str) -> Floats:
    """Returns, or successes, by run, value and episode's seed; nan where there is none."""
    played = [
        [{str(r.get("seed")): score for score, r in values(run.final_episodes(at(name, v)), unit)}
         for v in x]
        for run in group.runs
    ]  # fmt: skip
    seeds = sorted({seed for of_run in played for by_seed in of_run for seed in by_seed})
    shared = [s for s in seeds if all(s in one for run in played for one in run if one)]
    columns = shared or seeds  # the same episodes at every value, where there are any
    table = [[[one.get(s, math.nan) for s in columns] for one in of_run] for of_run in played]
    return np.array(table).reshape(len(group.runs), len(x), len(columns))


def resampled(returns: Floats) -> Floats:
    """Mean returns at each value of drawn runs and episodes, the same at all: (RESAMPLES, values).

    None where there is one run with one episode.
    """
    runs, count, columns = returns.shape
    if runs * columns < 2:
        return np.empty((0, count))
    random = np.random.default_rng(BOOTSTRAP_SEED)
    of_runs = random.multinomial(runs, np.full(runs, 1 / runs), size=RESAMPLES)
    of_seeds = random.multinomial(columns, np.full(columns, 1 / columns), size=RESAMPLES)
    known = np.isfinite(returns)
    totals, counts = (
        np.einsum("br,rvs,bs->bv", of_runs, table, of_seeds, optimize=True)
        for table in (np.where(known, returns, 0.0), known.astype(float))
    )
    return np.divide(totals, counts, out=np.full(totals.shape, np.nan), where=counts > 0)


# The table ----------------------------------------------------------------------------------------


def tolerances(found: Sequence[Response], *, brief: bool = False) -> Table:
    """A row per factor of a group, what breaks it first on top; `brief`: what fits a terminal."""
    told = {"task": {one.group.task for one in found}, "setting": {o.group.label for o in found}}
    rows: list[dict[str, Cell | str]] = []
    for one in found:
        own = {"task": one.group.task, "setting": one.group.label}
        who = {name: text for name, text in own.items() if len(told[name]) > 1}
        unit = {} if brief else {"unit": one.factor.unit}
        rows.append({**who, "factor": one.factor.name, **unit, **_cells(one, brief)})
    table = Table.of("tolerances", rows, () if brief else NOTES)
    texts = ("task", "setting", "factor", "unit")
    columns = (replace(c, kind="text") if c.title in texts else c for c in table.columns)
    return replace(table, title="Tolerance by factor", columns=tuple(columns))


NOTES = (
    "Keeps 90 %, 50 %: the range around the training value in which the agent keeps this share of "
    "its training return, interpolated between the values evaluated; [95 %] of each end, over "
    "episodes (and seeds). All: to both ends of what was evaluated.",
    "Lowest: the mean return where it is lowest. Factors stand in the order in which they break "
    "the agent: by how much of the way to the nearer end of a factor's range half is kept.",
)


def _cells(one: Response, brief: bool) -> dict[str, Cell | str]:
    worst = int(one.means.argmin())
    cells: dict[str, Cell | str] = {}
    for share in (MOST, HALF):
        cells[f"keeps {100 * share:.0f} %"] = as_range(one, share)
    if not brief:
        cells |= {f"[95 %] of {100 * s:.0f} %": _intervals(one, s) for s in (MOST, HALF)}
    lowest = f"{number(one.means[worst])} at {_short(one.values[worst])}"
    cells |= {"[95 %]": _intervals(one, HALF)} if brief else {}
    cells |= {"lowest": Cell(lowest, value=one.means[worst])}
    if np.isfinite(one.success).all():
        shown = f"{rate(one.success[one.train])}, lowest {rate(one.success.min())}"
        cells["success"] = Cell(shown, value=float(one.success.min()))
    return cells


def _short(value: float) -> str:
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def as_range(one: Response, share: float) -> Cell:
    """Where a share of the training return is kept."""
    low, high = (end.point for end in one.ends(share))
    if math.isnan(low):
        return Cell("–")
    if (low, high) == (one.values[0], one.values[-1]):
        return Cell("all", value=1.0)
    return Cell(f"{_short(low)} to {_short(high)}", value=one.room(share))


def _intervals(one: Response, share: float) -> Cell:
    """Those of the ends that are inside of what was evaluated, in any resample."""
    ends = [e for e in one.ends(share) if math.isfinite(e.low) and e.low != e.high]
    return Cell(" ".join(interval(e.low, e.high, _short) for e in ends) or "–")


def verdicts(found: Sequence[Response]) -> Iterator[str]:
    """A sentence for each group: the factor that breaks it first, or that none does."""
    for name, several in itertools.groupby(found, key=lambda one: one.group.name):
        of_group = list(several)
        first = min(of_group, key=lambda one: one.order)
        if math.isnan(first.room(HALF)):
            yield f"{name}: no return in training that could be kept"
        elif (value := first.breaks_at) is None:
            yield f"{name}: no factor takes half of its return in what was evaluated"
        else:
            yield (
                f"{name}: {first.factor.name} breaks it first, at {_short(value)} "
                f"{first.factor.unit} ({100 * first.room(HALF):.0f} % of the way to the end of "
                "its range)"
            )
