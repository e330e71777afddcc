"""The table of `svea compare`: both sides, their difference, and the chance that ours is better."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from svea.core.words import interval, number, rate
from svea.results.compare import Comparison
from svea.results.stats import Interval
from svea.results.tables import Cell, Table
from svea.results.tables.results import show


def comparison_table(
    found: Sequence[Comparison], ours: str, theirs: str, verbose: bool = True
) -> Table:
    """For each comparison a row per match, and a last one over all.

    Args:
        found: One comparison per mode.
        ours: What the columns call our side.
        theirs: What they call the other.
        verbose: Also with the seeds and the probability.
    """
    rows = [row for comparison in found for row in _rows(comparison, ours, theirs)]
    if not verbose:
        rows = [{k: v for k, v in row.items() if k != "seeds" and k[:2] != "P("} for row in rows]
    return Table.of("comparison", rows)


def _rows(found: Comparison, ours: str, theirs: str) -> Iterator[dict[str, Cell]]:
    """The rows of one mode."""
    form = show(found.measure)

    def row(
        name: str, a: float, b: float, seeds: str, gain: Interval | None, chance: Interval
    ) -> dict[str, Cell]:
        return {
            "task": Cell(name),
            "mode": Cell(found.mode),
            f"{found.measure} of {ours}": Cell(form(a), value=a),
            f"of {theirs}": Cell(form(b), value=b),
            "seeds": Cell(seeds),
            "difference [95 %]": _interval(gain, form) if gain else Cell("–"),
            f"P({ours} > {theirs}) [95 %]": _interval(chance, rate),
        }

    shown, alone = found.shown, found.single_pairs
    chances = [_of_one_pair(c) if one else c for c, one in zip(shown.chances, alone, strict=True)]
    each = zip(found.names, found.ours, found.theirs, shown.differences, chances, strict=True)
    for name, x, y, gain, chance in each:
        yield row(name, x.mean(), y.mean(), f"{x.size}, {y.size}", gain, chance)
    if len(found.names) > 1:
        a, b = (float(np.mean([x.mean() for x in side])) for side in (found.ours, found.theirs))
        if shown.difference is None:  # returns of several suites have no common scale
            a = b = math.nan
        n, m = (sum(x.size for x in side) for side in (found.ours, found.theirs))
        name = f"all {len(found.names)}"
        chance = _of_one_pair(shown.chance) if any(alone) else shown.chance
        yield row(name, a, b, f"{n}, {m}", shown.difference, chance)


def _of_one_pair(chance: Interval) -> Interval:
    """Without its ends: over worlds alone they would make one pair of seeds look certain."""
    return replace(chance, low=math.nan, high=math.nan)


def _interval(one: Interval, form: Callable[[float], str] = number) -> Cell:
    """A value with the ends of its interval."""
    return Cell(form(one.point), interval(one.low, one.high, form), value=one.point)
