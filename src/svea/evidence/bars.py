"""Bars of groups over categories, with intervals and the paper's levels, and the same as rows."""

from __future__ import annotations

import math
from collections.abc import Sequence

from svea.evidence import plots, published, stats
from svea.evidence.results import Group
from svea.evidence.tables import Record

Height = tuple[float, stats.Interval, published.PaperResult | None]
Heights = dict[tuple[int, str], Height]
"""By the identity of a group, and a category."""


def owners_of(groups: Sequence[Group], cells: Heights) -> list[Group]:
    """The groups that have a bar at all."""
    having = {owner for owner, _ in cells}
    return [group for group in groups if id(group) in having]


def bars_of(
    groups: Sequence[Group],
    categories: Sequence[str],
    colors: dict[str, int],
    cells: Heights,
) -> tuple[list[plots.Bar], list[Record]]:
    """The bars of each group, and the same as rows."""
    nothing: Height = (math.nan, stats.Interval(math.nan, math.nan, math.nan), None)
    bars, rows = [], []
    for group in groups:
        heights = [cells.get((id(group), category), nothing) for category in categories]
        bar = plots.Bar(
            label=group.label,
            values=[value for value, _, _ in heights],
            lows=[interval.low for _, interval, _ in heights],
            highs=[interval.high for _, interval, _ in heights],
            color=colors[group.label],
            paper=[paper.mean if paper else math.nan for _, _, paper in heights],
        )
        bars.append(bar)
        names = ("category", "value", "low", "high", "paper")
        columns = zip(categories, bar.values, bar.lows, bar.highs, bar.paper, strict=True)
        who: Record = {"task": group.task, "setting": group.label}
        rows += [
            who | dict(zip(names, row, strict=True)) for row in columns if math.isfinite(row[1])
        ]
    return bars, rows
