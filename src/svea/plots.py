"""Figures: learning curves and generalisation bars, as matplotlib objects, SVG or PNG.

Nothing here touches pyplot's global state, so figures can be made in any thread and need no
display. The palette is Okabe and Ito's, told apart by colour-blind readers. In SVG every colour
becomes a CSS variable with the plain colour as its fallback, so a page can switch to dark.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from svea.runs import Curve

PALETTE = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8a6d3b", "#6a51a3")
INK = "#333a45"
GRID = "#d9dde3"
PAPER = "#fefefe"
CSS_VARIABLES = {
    INK: "--ink-soft",
    GRID: "--line",
    PAPER: "--surface",
    **{color: f"--c{index}" for index, color in enumerate(PALETTE)},
}
SIZE = (6.4, 3.9)  # inches; small enough that 11-point text stays readable on a phone
MANY_POINTS = 600  # beyond it episode dots are drawn as one picture: an SVG dot costs 80 bytes

_STYLE: dict[Any, Any] = {
    "font.size": 11,
    "font.family": "sans-serif",
    "svg.fonttype": "none",
    "svg.hashsalt": "svea",
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": GRID,
    "xtick.color": INK,
    "ytick.color": INK,
}


@dataclass(frozen=True, eq=False)
class Series:
    """One line of a learning-curve figure: a mean over seeds with its spread."""

    label: str
    curve: Curve
    std: NDArray[np.float64] | None = None
    episodes: Sequence[Curve] = ()
    """Training episodes of each seed, drawn faintly behind the line."""
    color: int = 0
    """Place in the palette."""
    dashed: bool = False


@dataclass(frozen=True)
class Bar:
    """One group's bars: a value and a 95 % interval per mode; nan where there is none."""

    label: str
    values: Sequence[float]
    lows: Sequence[float]
    highs: Sequence[float]
    color: int = 0
    paper: Sequence[float] = field(default=())
    """The paper's figure per mode; nan where it has none."""


def learning_curves(
    series: Sequence[Series], *, title: str, action_repeat: int | None, random: float = math.nan
) -> Figure:
    """Return against decisions (frames on the upper axis), with one line per series.

    Args:
        series: The lines. Bands are ± one standard deviation over seeds.
        title: Printed above the axes.
        action_repeat: Frames per decision; without it the upper axis is left out.
        random: The random policy's return, drawn as a dotted level; nan for none.
    """
    with matplotlib.rc_context(_STYLE):
        figure, axes = _figure(title)
        points = sum(curve.decisions.size for one in series for curve in one.episodes)
        for number, one in enumerate(series):
            _draw_series(axes, one, f"series-{number}", rasterized=points > MANY_POINTS)
        if math.isfinite(random):
            axes.axhline(random, color=INK, linewidth=1, linestyle=":", label="random policy")
        axes.set_xlabel("decisions")
        axes.set_ylabel("episode return")
        axes.xaxis.set_major_formatter(FuncFormatter(_thousands))
        axes.xaxis.set_major_locator(MaxNLocator(6))
        if action_repeat:
            _add_frame_axis(axes, action_repeat)
        _fit_returns(axes)
        _add_legend(axes)
    return figure


def generalisation_bars(
    bars: Sequence[Bar], modes: Sequence[str], *, title: str, random: Sequence[float] = ()
) -> Figure:
    """Mean return per mode, one bar per group, with 95 % intervals, random and paper levels."""
    with matplotlib.rc_context(_STYLE):
        figure, axes = _figure(title)
        centres = np.arange(len(modes), dtype=float)
        width = min(0.8 / max(len(bars), 1), 0.5)
        for index, bar in enumerate(bars):
            x = centres + (index - (len(bars) - 1) / 2) * width
            _draw_bar(axes, bar, x, width, f"series-{index}")
        for centre, level in zip(centres, random, strict=False):
            if math.isfinite(level):
                label = None if _has_label(axes, "random policy") else "random policy"
                span = [centre - 0.44, centre + 0.44]
                axes.plot(span, [level, level], color=INK, linestyle=":", linewidth=1, label=label)
        axes.set_xticks(centres, [_wrapped(mode) for mode in modes])
        axes.set_xlim(-0.6, len(modes) - 0.4)
        axes.set_ylabel("mean episode return")
        _fit_returns(axes)
        _add_legend(axes)
    return figure


def to_png(figure: Figure, dpi: int = 150) -> bytes:
    """The figure as a PNG."""
    buffer = io.BytesIO()
    with matplotlib.rc_context(_STYLE):
        figure.savefig(
            buffer, format="png", dpi=dpi, facecolor="white", metadata={"Software": None}
        )
    return buffer.getvalue()


def to_svg(figure: Figure, name: str) -> str:
    """The figure as an `<svg>` element to put into a page; equal figures give equal text.

    It has no size of its own, so it fills its container. What belongs to series n of a
    figure carries `data-series="n"`, by which a page can show or hide it.

    Args:
        figure: The figure.
        name: Unique within the page: it prefixes every id, so that figures do not mix.
    """
    buffer = io.StringIO()
    with matplotlib.rc_context(_STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]  # a page has no use for the XML prologue
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r'(id="[^"]*-series-(\d+)-\w+")', r'\1 data-series="\2"', svg)
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)
    for color, variable in CSS_VARIABLES.items():
        svg = svg.replace(color, f"var({variable}, {color})")
    return svg


def _figure(title: str) -> tuple[Figure, Axes]:
    """An empty figure with the house style: horizontal grid, no box, transparent ground."""
    figure = Figure(figsize=SIZE, layout="constrained")
    figure.patch.set_alpha(0)
    axes = figure.add_subplot()
    axes.patch.set_alpha(0)
    axes.set_title(_plain(title), loc="left", fontsize=12, fontweight="bold", color=INK)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0)
    return figure, axes


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
    if one.std is not None and np.isfinite(one.std).any():
        axes.fill_between(
            x, y - one.std, y + one.std, color=color, alpha=0.18, linewidth=0, gid=f"{gid}-band"
        )
    axes.plot(
        x,
        y,
        linestyle="--" if one.dashed else "-",
        marker="o" if x.size <= 40 else None,
        markersize=3.5,
        color=color,
        linewidth=2,
        label=_plain(one.label),
        gid=f"{gid}-line",
    )


def _draw_bar(axes: Axes, bar: Bar, x: NDArray[np.float64], width: float, gid: str) -> None:
    """One group's bars with whiskers, and the paper's figures as open diamonds."""
    values = np.array(bar.values, dtype=float)
    color = PALETTE[bar.color % len(PALETTE)]
    drawn = axes.bar(x, values, width * 0.9, color=color, label=_plain(bar.label))
    for place, patch in enumerate(drawn):
        patch.set_gid(f"{gid}-bar{place}")
    below, above = values - np.array(bar.lows), np.array(bar.highs) - values
    whiskers = np.nan_to_num(np.clip([below, above], 0, None))
    _, caps, stems = axes.errorbar(x, values, whiskers, fmt="none", ecolor=INK, capsize=3)
    for place, mark in enumerate((*caps, *stems)):
        mark.set_gid(f"{gid}-whisker{place}")
    if np.isfinite(np.array(bar.paper, dtype=float)).any():
        label = None if _has_label(axes, "paper") else "paper"
        axes.plot(
            x,
            bar.paper,
            "D",
            color=PAPER,
            markeredgecolor=INK,
            markersize=6,
            label=label,
            gid=f"{gid}-paper",
        )


def _has_label(axes: Axes, label: str) -> bool:
    """Whether the legend has an entry already."""
    return label in axes.get_legend_handles_labels()[1]


def _add_frame_axis(axes: Axes, action_repeat: int) -> None:
    """A second x axis on top that counts simulator frames."""
    frames = axes.secondary_xaxis(
        "top",
        functions=(
            lambda decisions: np.asarray(decisions, dtype=float) * action_repeat,
            lambda frames: np.asarray(frames, dtype=float) / action_repeat,
        ),
    )
    frames.set_xlabel("frames", fontsize=10)
    frames.xaxis.set_major_formatter(FuncFormatter(_thousands))
    frames.xaxis.set_major_locator(MaxNLocator(5))
    frames.tick_params(length=0, labelsize=10)
    frames.spines["top"].set_visible(False)


def _fit_returns(axes: Axes) -> None:
    """Start the y axis at zero unless returns are negative: heights then compare honestly."""
    low, high = axes.get_ylim()
    if low > 0 or abs(low) < 0.1 * abs(high):
        axes.set_ylim(bottom=0)


def _add_legend(axes: Axes) -> None:
    """A frameless legend below the axes, in as many columns as fit."""
    handles, labels = axes.get_legend_handles_labels()
    references = ("random policy", "paper")  # after our own
    order = sorted(range(len(labels)), key=lambda i: labels[i] in references)
    handles, labels = [handles[i] for i in order], [labels[i] for i in order]
    if handles:
        axes.figure.legend(  # type: ignore[union-attr]
            handles,
            labels,
            loc="outside lower center",
            ncols=min(len(labels), 3 if max(map(len, labels)) < 22 else 2),
            frameon=False,
            fontsize=10,
        )


def _plain(text: str) -> str:
    """A label that matplotlib takes literally: no mathematics, no hidden legend entries."""
    return text.replace("$", r"\$").lstrip("_") or "unnamed"


def _wrapped(mode: str) -> str:
    """A mode's name in two lines where it is long."""
    return _plain(mode.replace("_", "_\n", 1) if len(mode) > 12 else mode)


def _thousands(value: float, _position: int | None = None) -> str:
    """Tick labels: 500, 2.5k, 100k, 1M."""
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{unit}"
    return f"{value:g}"
