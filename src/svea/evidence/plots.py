"""Figures: lines over decisions or intensity, and bars, as matplotlib objects, SVG, PNG or PDF.

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

from svea.evidence.run import Curve
from svea.words import tick

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
SIZE = (5.8, 3.8)  # inches; small enough that 11-point text stays readable on a phone
LEAST_HEIGHT = 130  # of the axes, in points
DECISIONS, HOURS = "decisions", "hours of wall time"  # what an x axis shows
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

_TICKS = FuncFormatter(lambda value, _: tick(value))


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
    dashed: bool = False
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
    paper: Sequence[float] = field(default=())
    """The paper's figure per category; nan where it has none."""


def learning_curves(
    series: Sequence[Series],
    *,
    title: str,
    action_repeat: int | None,
    random: float = math.nan,
    height: str = "episode return",
    width: str = DECISIONS,
    log: bool = False,
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
    """
    with matplotlib.rc_context(_STYLE):
        figure, axes = _figure(title)
        points = sum(curve.decisions.size for one in series for curve in one.episodes)
        for number, one in enumerate(series):
            _draw_series(axes, one, f"series-{number}", rasterized=points > MANY_POINTS)
        if math.isfinite(random):
            axes.axhline(random, color=INK, linewidth=1, linestyle=":", label="random policy")
        axes.set_xlabel(width)
        axes.set_ylabel(height)
        axes.xaxis.set_major_formatter(_TICKS)
        axes.xaxis.set_major_locator(MaxNLocator(6))
        _fit_heights(axes, log=log)
        legend = _add_legend(axes)
        _lay_out(figure, top=56 if action_repeat else 26, bottom=38 + legend)
        if action_repeat:
            _add_frame_axis(axes, action_repeat)
    return figure


def intensity_curves(series: Sequence[Series], *, title: str) -> Figure:
    """Return against the intensity of the distractions, the paper's curves as open diamonds."""
    with matplotlib.rc_context(_STYLE):
        figure, axes = _figure(title)
        for number, one in enumerate(series):
            _draw_series(axes, one, f"series-{number}", rasterized=False)
        axes.set_xlabel("intensity of the distractions")
        axes.set_ylabel("mean episode return")
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(6, prune="lower"))  # 0 stands at the y axis
        _fit_heights(axes)
        _lay_out(figure, top=26, bottom=38 + _add_legend(axes))
    return figure


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
    with matplotlib.rc_context(_STYLE):
        figure, axes = _figure(title)
        centres = np.arange(len(categories), dtype=float)
        width = min(0.8 / max(len(bars), 1), 0.5)
        for index, bar in enumerate(bars):
            x = centres + (index - (len(bars) - 1) / 2) * width
            _draw_bar(axes, bar, x, width, f"series-{index}")
        for centre, level in zip(centres, random, strict=False):
            if math.isfinite(level):
                label = None if _has_label(axes, "random policy") else "random policy"
                span = [centre - 0.44, centre + 0.44]
                axes.plot(span, [level, level], color=INK, linestyle=":", linewidth=1, label=label)
        crowded = len(categories) > 6  # long names then collide, unless they lean
        lean: dict[str, Any] = {"rotation": 35, "ha": "right", "fontsize": 10} if crowded else {}
        names = [_plain(name) if crowded else _wrapped(name) for name in categories]
        axes.set_xticks(centres, names, **lean)
        axes.set_xlim(-0.6, len(categories) - 0.4)
        axes.set_ylabel(height)
        _fit_heights(axes)
        if top is not None:
            axes.set_ylim(top=top)
        labels = 60 if crowded else 36 if any("\n" in name for name in names) else 24
        _lay_out(figure, top=26, bottom=labels + _add_legend(axes))
    return figure


def to_png(figure: Figure, dpi: int = 150) -> bytes:
    """The figure as a PNG."""
    return _saved(figure, format="png", dpi=dpi, facecolor="white", metadata={"Software": None})


def to_pdf(figure: Figure) -> bytes:
    """The figure as a PDF; equal figures give equal bytes."""
    nameless = dict.fromkeys(("Creator", "Producer", "CreationDate"))
    return _saved(figure, format="pdf", facecolor="white", metadata=nameless)


def to_svg(figure: Figure, name: str) -> str:
    """The figure as an `<svg>` element to put into a page; equal figures give equal text.

    It has no size of its own, so it fills its container. What belongs to series n of a
    figure carries `data-series="n"`, by which a page can show or hide it. `data-box` (left, top,
    right, bottom of the axes) and `data-limits` (what is there in data) let a page read values off.

    Args:
        figure: The figure.
        name: Unique within the page: it prefixes every id, so that figures do not mix.
    """
    svg = _saved(figure, format="svg", metadata={"Date": None, "Creator": None}).decode()
    svg = svg[svg.index("<svg") :]  # a page has no use for the XML prologue
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\b(id="|href="#|url\(#)', rf"\g<1>{name}-", svg)
    svg = re.sub(r'(id="[^"]*-series-(\d+)-\w+")', r'\1 data-series="\2"', svg)
    svg = re.sub(r' (?:width|height)="[\d.]+pt"', "", svg, count=2)
    svg = svg.replace("<svg ", f"<svg {_scales(figure)} ", 1)
    for color, variable in CSS_VARIABLES.items():
        svg = svg.replace(color, f"var({variable}, {color})")
    return svg


def _saved(figure: Figure, **how: Any) -> bytes:
    """The figure as a file's bytes."""
    buffer = io.BytesIO()
    with matplotlib.rc_context(_STYLE):
        figure.savefig(buffer, **how)
    return buffer.getvalue()


def _scales(figure: Figure) -> str:
    """Attributes that tie the axes' box, in SVG units, to the data's limits."""
    axes = figure.axes[0]
    box = axes.get_position()
    width, height = (72 * inches for inches in figure.get_size_inches())  # SVG units are points
    edges = (box.x0 * width, (1 - box.y1) * height, box.x1 * width, (1 - box.y0) * height)
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    scale = ' data-scale="log"' if axes.get_yscale() == "log" else ""
    numbers = (" ".join(f"{x:.6g}" for x in row) for row in (edges, (left, top, right, bottom)))
    return 'data-box="{}" data-limits="{}"'.format(*numbers) + scale


def _figure(title: str) -> tuple[Figure, Axes]:
    """An empty figure with the house style: horizontal grid, no box, transparent ground."""
    figure = Figure(figsize=SIZE)
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
    if one.band is not None and np.isfinite(one.band[0]).any():
        axes.fill_between(x, *one.band, color=color, alpha=0.18, linewidth=0, gid=f"{gid}-band")
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
    if one.paper is not None:
        _draw_paper(axes, one.paper.decisions, one.paper.returns, f"{gid}-paper", color, "--")


def _draw_paper(
    axes: Axes, x: Any, y: Any, gid: str, edge: str = INK, linestyle: str = "none"
) -> None:
    """The paper's figures as open diamonds; the legend names them once."""
    label = None if _has_label(axes, "paper") else "paper"
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
        _draw_paper(axes, x, bar.paper, f"{gid}-paper")


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
    frames.xaxis.set_major_formatter(_TICKS)
    frames.xaxis.set_major_locator(MaxNLocator(5))
    frames.tick_params(length=0, labelsize=10)
    frames.spines["top"].set_visible(False)


def _lay_out(figure: Figure, *, top: float, bottom: float) -> None:
    """Set the margins, in points. A layout engine would find them, at four times the cost."""
    width, height = (72 * inches for inches in figure.get_size_inches())
    height = max(height, top + LEAST_HEIGHT + bottom)  # a long legend adds to a figure
    figure.set_size_inches(width / 72, height / 72)
    longest = max(len(tick(value)) for value in figure.axes[0].get_yticks())
    left = max(54, 28 + 6.8 * longest)  # the axis' name, and a digit's width for each of a tick
    figure.subplots_adjust(
        left=left / width, right=1 - 10 / width, top=1 - top / height, bottom=bottom / height
    )


def _fit_heights(axes: Axes, *, log: bool = False) -> None:
    """Start the y axis at zero unless heights are negative: they then compare honestly."""
    if log:
        axes.set_yscale("log")
        return
    axes.yaxis.set_major_formatter(_TICKS)
    axes.yaxis.set_major_locator(MaxNLocator(6))
    low, high = axes.get_ylim()
    if low > 0 or abs(low) < 0.1 * abs(high):
        axes.set_ylim(bottom=0)


def _add_legend(axes: Axes) -> float:
    """A frameless legend below, in as many columns as fit; returns its height in points."""
    handles, labels = axes.get_legend_handles_labels()
    references = ("random policy", "paper")  # after our own
    order = sorted(range(len(labels)), key=lambda i: labels[i] in references)
    handles, labels = [handles[i] for i in order], [labels[i] for i in order]
    if not handles:
        return 0
    widest = 34 + 5.4 * max(map(len, labels))  # points, about: the key and its text
    columns = max(1, min(len(labels), int(72 * SIZE[0] / widest)))
    legend = axes.figure.legend(  # type: ignore[union-attr]
        handles,
        labels,
        loc="lower center",
        ncols=columns,
        frameon=False,
        fontsize=10,
        borderaxespad=0.1,
        columnspacing=1.4,
        handlelength=1.6,
    )
    shown = zip(handles, legend.legend_handles, legend.get_texts(), strict=True)
    for handle, key, text in shown:
        # A series' key hides with it; that of the paper's figures belongs to several.
        if number := re.match(r"series-\d+(?!-paper)\b", _identity(handle)):
            key.set_gid(f"{number[0]}-key")  # type: ignore[union-attr]
            text.set_gid(f"{number[0]}-text")
    return 6 + 15 * math.ceil(len(labels) / columns)


def _identity(handle: Any) -> str:
    """The gid of a line, or of the first of a group of bars."""
    first = handle[0] if isinstance(handle, Sequence) and len(handle) else handle
    return first.get_gid() or ""


def _plain(text: str) -> str:
    """A label that matplotlib takes literally: no mathematics, no hidden legend entries."""
    return text.replace("$", r"\$").lstrip("_") or "unnamed"


def _wrapped(mode: str) -> str:
    """A mode's name in two lines where it is long."""
    return _plain(mode.replace("_", "_\n", 1) if len(mode) > 9 else mode)
