"""Charts: lines over decisions, hours or intensity, and bars.

Nothing here touches pyplot's global state, so figures can be made in any thread and need no
display.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from svea.results.plots.layout import (
    HATCHES,
    INK,
    LINES,
    PALETTE,
    PAPER,
    STYLE,
    TICKS,
    add_frame_axis,
    add_legend,
    fit_heights,
    has_label,
    new_figure,
    plain,
)
from svea.results.run import Curve

DECISIONS, HOURS = "decisions", "hours of wall time"  # what an x axis shows
MANY_POINTS = 600  # beyond it episode dots are drawn as one picture: an SVG dot costs 80 bytes


@dataclass(frozen=True, eq=False)
class Series:
    """One line of a figure: a mean over seeds with its interval."""

    label: str
    curve: Curve
    band: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None
    """Its lower and upper edge; None, or nan, where there is none."""
    episodes: Sequence[Curve] = ()
    """Training episodes of each seed, drawn faintly behind the line."""
    color: int = 0
    """Place in the palette."""
    line: int = 0
    """Place in `LINES`: what tells settings of one colour apart."""
    paper: Curve | None = None
    """The same line as the paper has it, drawn as open diamonds."""


@dataclass(frozen=True)
class Bar:
    """One group's bars: a value and a 95 % interval per category; nan where there is none."""

    label: str
    values: Sequence[float]
    lows: Sequence[float]
    highs: Sequence[float]
    color: int = 0
    line: int = 0
    """Place in `HATCHES`: what tells settings of one colour apart."""
    paper: Sequence[float] = field(default=())
    """The paper's number per category; nan where it has none."""


def learning_curves(
    series: Sequence[Series],
    *,
    title: str,
    action_repeat: int | None,
    random: float = math.nan,
    height: str = "episode return",
    width: str = DECISIONS,
    log: bool = False,
    top: float | None = None,
) -> Figure:
    """A quantity against decisions (frames on the upper axis) or hours, with one line per series.

    Args:
        series: The lines.
        title: Printed above the axes.
        action_repeat: Frames per decision; without it the upper axis is left out.
        random: The random policy's level, drawn dotted; nan for none.
        height: What the y axis shows.
        width: What the x axis shows: `DECISIONS` or `HOURS`.
        log: Whether the y axis is logarithmic.
        top: Where the y axis ends, so that figures next to each other have the same.
    """
    with matplotlib.rc_context(STYLE):
        figure, axes = new_figure(title)
        points = sum(curve.decisions.size for one in series for curve in one.episodes)
        for number, one in enumerate(series):
            _draw_series(axes, one, f"series-{number}", rasterized=points > MANY_POINTS)
        if math.isfinite(random):
            axes.axhline(random, color=INK, linewidth=1, linestyle=":", label="random policy")
        axes.set_xlabel(width)
        axes.set_ylabel(height)
        axes.xaxis.set_major_formatter(TICKS)
        axes.xaxis.set_major_locator(MaxNLocator(6))
        fit_heights(axes, log=log, top=top)
        add_legend(figure, axes)
        if action_repeat:
            add_frame_axis(axes, action_repeat)
    return figure


def intensity_curves(series: Sequence[Series], *, title: str) -> Figure:
    """Return against the intensity of the distractions, the paper's curves as open diamonds."""
    with matplotlib.rc_context(STYLE):
        figure, axes = new_figure(title)
        for number, one in enumerate(series):
            _draw_series(axes, one, f"series-{number}", rasterized=False)
        axes.set_xlabel("intensity of the distractions")
        axes.set_ylabel("mean episode return")
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(6, prune="lower"))  # 0 stands at the y axis
        fit_heights(axes)
        add_legend(figure, axes)
    return figure


CHARACTERS = 58  # below the axes, on one line


def grouped_bars(
    bars: Sequence[Bar],
    categories: Sequence[str],
    *,
    title: str,
    height: str = "mean episode return",
    random: Sequence[float] = (),
    top: float | None = None,
) -> Figure:
    """Bars by category, such as modes, one per group, with intervals, random and paper levels.

    Args:
        bars: One per group, with a value per category.
        categories: What stands below the bars.
        title: Printed above the axes.
        height: What the y axis shows.
        random: The random policy's level in each category, drawn dotted; nan for none.
        top: Where the y axis ends, for quantities that have an end.
    """
    with matplotlib.rc_context(STYLE):
        figure, axes = new_figure(title)
        centres = np.arange(len(categories), dtype=float)
        width = min(0.8 / max(len(bars), 1), 0.5)
        for index, bar in enumerate(bars):
            x = centres + (index - (len(bars) - 1) / 2) * width
            _draw_bar(axes, bar, x, width, f"series-{index}")
        for centre, level in zip(centres, random, strict=False):
            if math.isfinite(level):
                label = None if has_label(axes, "random policy") else "random policy"
                span = [centre - 0.44, centre + 0.44]
                axes.plot(span, [level, level], color=INK, linestyle=":", linewidth=1, label=label)
        crowded = len(categories) > 6  # long names then collide, unless they lean
        lean: dict[str, Any] = {"rotation": 35, "ha": "right", "fontsize": 10} if crowded else {}
        room = 100 if crowded else CHARACTERS // max(len(categories), 1)
        names = [_wrapped(name, room) for name in categories]
        axes.set_xticks(centres, names, **lean)
        axes.set_xlim(-0.6, len(categories) - 0.4)
        axes.set_ylabel(height)
        fit_heights(axes, top=top)
        add_legend(figure, axes)
    return figure


def _draw_series(axes: Axes, one: Series, gid: str, *, rasterized: bool) -> None:
    """A line, its band, and the episodes behind it; all share a gid that starts with `gid`."""
    color = PALETTE[one.color % len(PALETTE)]
    for curve in one.episodes:
        axes.plot(
            curve.decisions,
            curve.returns,
            ".",
            color=color,
            alpha=0.35,
            markersize=7,
            markeredgewidth=0,
            rasterized=rasterized,
            gid=f"{gid}-episodes",
        )
    x, y = one.curve.decisions, one.curve.returns
    if one.band is not None and np.isfinite(one.band[0]).any():
        axes.fill_between(x, *one.band, color=color, alpha=0.18, linewidth=0, gid=f"{gid}-band")
    axes.plot(
        x,
        y,
        linestyle=LINES[one.line % len(LINES)],
        marker="o" if x.size <= 40 else None,
        markersize=3.5,
        color=color,
        linewidth=2,
        label=plain(one.label),
        gid=f"{gid}-line",
    )
    if one.paper is not None:
        _draw_paper(axes, one.paper.decisions, one.paper.returns, f"{gid}-paper", color, "--")


def _draw_paper(
    axes: Axes, x: Any, y: Any, gid: str, edge: str = INK, linestyle: str = "none"
) -> None:
    """The paper's numbers as open diamonds; the legend names them once."""
    label = None if has_label(axes, "paper") else "paper"
    axes.plot(
        x,
        y,
        "D",
        linestyle=linestyle,
        linewidth=1,
        color=edge,
        markerfacecolor=PAPER,
        markeredgecolor=edge,
        markersize=6,
        label=label,
        gid=gid,
    )


def _draw_bar(axes: Axes, bar: Bar, x: NDArray[np.float64], width: float, gid: str) -> None:
    """One group's bars with whiskers, and the paper's numbers as open diamonds."""
    values = np.array(bar.values, dtype=float)
    color = PALETTE[bar.color % len(PALETTE)]
    hatch = HATCHES[bar.line % len(HATCHES)]
    drawn = axes.bar(
        x, values, width * 0.9, color=color, hatch=hatch, edgecolor=PAPER, linewidth=0,
        label=plain(bar.label),
    )  # fmt: skip
    for number, patch in enumerate(drawn):
        patch.set_gid(f"{gid}-bar{number}")
    below, above = values - np.array(bar.lows), np.array(bar.highs) - values
    whiskers = np.clip([below, above], 0, None)  # where they are nan, none is drawn
    _, caps, stems = axes.errorbar(x, values, whiskers, fmt="none", ecolor=INK, capsize=3)
    for number, whisker in enumerate((*caps, *stems)):
        whisker.set_gid(f"{gid}-whisker{number}")
    if np.isfinite(np.array(bar.paper, dtype=float)).any():
        _draw_paper(axes, x, bar.paper, f"{gid}-paper")


def _wrapped(mode: str, room: int) -> str:
    """A mode on two lines where one would reach into its neighbours."""
    return plain(mode.replace("_", "_\n", 1) if len(mode) > room else mode)
