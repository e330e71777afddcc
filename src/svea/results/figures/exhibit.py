"""A figure of a report, how settings look in all of them, and the bars and lines they share."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from svea.results import Group, MeanCurve, plots, published, stats
from svea.results.run import Curve
from svea.results.tables import Record

LEARNING, GENERALISATION, ROBOT, Q_VALUES = "learning", "generalisation", "robot", "q-values"
"""The topics, in the order of the page."""
OVER = "over worlds (train: episodes), and over seeds where there are several"


@dataclass(frozen=True, eq=False)
class Exhibit:
    """One figure, with all that a page or a folder says about it."""

    name: str
    """For a file, and unique once its characters are safe there."""
    topic: str
    task: str
    figure: Figure
    caption: str
    methods: tuple[str, ...]
    """The method that series n belongs to."""
    numbers: list[Record]


Looks = dict[str, tuple[int, int]]
"""By the label of a setting: its colour, which is its method's, and its kind of line."""


def looks_of(groups: Sequence[Group]) -> Looks:
    """A method has its colour in every report; what shares a colour differs by its line."""
    methods = {group.label: group.method for group in groups}
    return dict(zip(methods, plots.looks(list(methods.values())), strict=True))


def series(
    label: str, band: MeanCurve, look: tuple[int, int], episodes: Sequence[Curve] = ()
) -> plots.Series:
    """A line with its band."""
    return plots.Series(label, band.curve, band.interval(), episodes, *look)


def curve_caption(what: str, chosen: Sequence[tuple[Group, str, MeanCurve, plots.Series]]) -> str:
    """What lines, bands and dots are."""
    several = any(band.seeds > 1 for _, _, band, _ in chosen)
    spread = "bands: 95 % bootstrap interval over seeds" if several else "one seed, no band"
    dots = "; dots: training episodes" if any(len(s.episodes) for *_, s in chosen) else ""
    return f"Lines: {what}; {spread}{dots}."


def rows(group: Group, mode: str, band: MeanCurve) -> Iterator[Record]:
    """The points of a curve."""
    columns = (band.curve.decisions, band.curve.returns, band.std, *band.interval())
    names = ("decision", "mean", "std_over_seeds", "low", "high")
    who: Record = {"task": group.task, "setting": group.label, "mode": mode, "seeds": band.seeds}
    for values in zip(*(column.tolist() for column in columns), strict=True):
        yield who | dict(zip(names, values, strict=True))


Height = tuple[float, stats.Interval, published.PaperResult | None]
Heights = dict[tuple[int, str], Height]
"""By the identity of a group, and a category."""


def owners(groups: Sequence[Group], cells: Heights) -> list[Group]:
    """The groups that have a bar at all."""
    having = {owner for owner, _ in cells}
    return [group for group in groups if id(group) in having]


def bars(
    groups: Sequence[Group],
    categories: Sequence[str],
    looks: Looks,
    cells: Heights,
) -> tuple[list[plots.Bar], list[Record]]:
    """The bars of each group, and the same as rows."""
    nothing: Height = (math.nan, stats.Interval(math.nan, math.nan, math.nan), None)
    drawn, numbers = [], []
    for group in groups:
        heights = [cells.get((id(group), category), nothing) for category in categories]
        bar = plots.Bar(
            label=group.label,
            values=[value for value, _, _ in heights],
            lows=[interval.low for _, interval, _ in heights],
            highs=[interval.high for _, interval, _ in heights],
            color=looks[group.label][0],
            line=looks[group.label][1],
            paper=[paper.mean if paper else math.nan for _, _, paper in heights],
        )
        drawn.append(bar)
        names = ("category", "value", "low", "high", "paper")
        columns = zip(categories, bar.values, bar.lows, bar.highs, bar.paper, strict=True)
        who: Record = {"task": group.task, "setting": group.label}
        numbers += [
            who | dict(zip(names, row, strict=True)) for row in columns if math.isfinite(row[1])
        ]
    return drawn, numbers
