"""Charts as matplotlib objects and as files: lines over decisions, hours or intensity, and bars.

Nothing here touches pyplot's global state, so figures can be made in any thread and need no
display.
"""

import io
import math
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.offsetbox import AnnotationBbox, OffsetImage, TextArea, VPacker
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray

from svea.core.words import tick
from svea.results.read import Curve

PALETTE = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8a6d3b", "#6a51a3")
METHOD_COLORS = {
    "svea": 3, "drq": 0, "sac": 6, "rad": 5, "curl": 2, "pad": 4, "soda": 1, "sada": 7,
    "simgrl": 2, "madi": 4, "sgqn": 1, "drq+aug": 0, "rad+aug": 5, "svea-rad": 5,
}  # fmt: skip
"""A method has one colour in every figure of every report; others take one by their name.

There are more methods than colours that can be told apart: those that share one stand in different
tables of the field. Settings of one method, or methods of one colour, differ by their line.
"""

LINES: tuple[Any, ...] = (
    *("-", "--", ":", "-."),
    *((0, dashes) for dashes in ((8, 3), (6, 2, 1, 2, 1, 2), (2, 2), (3, 1, 3, 4))),
)
HATCHES = ("", "////", "....", "xxxx", "----", "\\\\\\\\", "||||", "oo")
INK, GRID, PAPER = "#333a45", "#d9dde3", "#fefefe"
CSS_VARIABLES = {
    INK: "--ink-soft",
    GRID: "--line",
    PAPER: "--surface",
    **{color: f"--c{index}" for index, color in enumerate(PALETTE)},
}
SIZE = (5.8, 3.8)  # inches; small enough that 11-point text stays readable on a phone
FEW_ROWS = 3  # of a legend: each more adds its height to the figure
STYLE: dict[Any, Any] = {
    "font.size": 11,
    "font.family": "sans-serif",
    "svg.fonttype": "none",
    "svg.hashsalt": "svea",
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": GRID,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "legend.borderaxespad": 0.1,
    "legend.columnspacing": 1.4,
    "legend.handlelength": 1.6,
}

TICKS = FuncFormatter(lambda value, _: tick(value))


def color_of(method: str) -> int:
    """A method's place in the palette: the same today, tomorrow and in every report."""
    return METHOD_COLORS.get(method, zlib.crc32(method.encode()) % len(PALETTE))


def looks(methods: Sequence[str]) -> list[tuple[int, int]]:
    """Colour and kind of line of each setting, given its method.

    No two look the same, up to 64: where a colour has no kind of line left, the next one serves.
    """
    chosen: list[tuple[int, int]] = []
    for method in methods:
        own = color_of(method)
        colors = ((own + step) % len(PALETTE) for step in range(len(PALETTE)))
        free = ((c, line) for c in colors for line in range(len(LINES)) if (c, line) not in chosen)
        chosen.append(next(free, (own, 0)))
    return chosen


def new_figure(title: str) -> tuple[Figure, Axes]:
    """An empty figure in the common style: horizontal grid, no box, transparent ground."""
    figure = Figure(figsize=SIZE, layout=ConstrainedLayoutEngine(w_pad=6 / 72, h_pad=5 / 72))
    figure.patch.set_alpha(0)
    axes = figure.add_subplot()
    axes.patch.set_alpha(0)
    axes.set_title(plain(title), loc="left", fontsize=12, fontweight="bold", color=INK)
    axes.grid(axis="y", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(length=0)
    return figure, axes


def add_frame_axis(axes: Axes, action_repeat: int) -> None:
    """A second x axis on top that counts simulator frames."""
    both_ways = (lambda decisions: decisions * action_repeat, lambda at: at / action_repeat)
    frames = axes.secondary_xaxis("top", functions=both_ways)
    frames.set_xlabel("frames", fontsize=10)
    frames.xaxis.set_major_formatter(TICKS)
    frames.xaxis.set_major_locator(MaxNLocator(5))
    frames.tick_params(length=0, labelsize=10)
    frames.spines["top"].set_visible(False)


def fit_heights(axes: Axes, *, log: bool = False, top: float | None = None) -> None:
    """Start the y axis at zero unless heights are negative: they then compare honestly."""
    if log:
        axes.set_yscale("log")
        return
    axes.yaxis.set_major_formatter(TICKS)
    axes.yaxis.set_major_locator(MaxNLocator(6))
    if top is not None:
        axes.set_ylim(top=top)
    low, high = axes.get_ylim()
    if low > 0 or abs(low) < 0.1 * abs(high):
        axes.set_ylim(bottom=0)


def add_legend(figure: Figure, axes: Axes) -> None:
    """A frameless legend below, in as many columns as fit; a long one adds to the figure."""
    entries = list(zip(*axes.get_legend_handles_labels(), strict=True))
    if not entries:
        return
    entries.sort(key=lambda entry: entry[1] in ("random policy", "paper"))  # after our own
    handles, labels = zip(*entries, strict=True)
    widest = 40 + 6 * max(map(len, labels))  # points, about: the key and its text
    columns = max(1, min(len(labels), int(72 * SIZE[0] / widest)))
    legend = figure.legend(handles, labels, loc="outside lower center", ncols=columns)
    shown = zip(handles, legend.legend_handles, legend.get_texts(), strict=True)
    for handle, key, text in shown:
        first = handle[0] if isinstance(handle, Sequence) and len(handle) else handle  # of bars
        # A series' key hides with it; that of the paper's numbers belongs to several.
        if number := re.match(r"series-\d+(?!-paper)\b", first.get_gid() or ""):
            key.set_gid(f"{number[0]}-key")  # type: ignore[union-attr]
            text.set_gid(f"{number[0]}-text")
    more = max(0, math.ceil(len(labels) / columns) - FEW_ROWS)
    figure.set_size_inches(SIZE[0], SIZE[1] + 15 / 72 * more)


def has_label(axes: Axes, label: str) -> bool:
    """Whether the legend has an entry already."""
    return label in axes.get_legend_handles_labels()[1]


def plain(text: str) -> str:
    """A label that matplotlib takes literally: no mathematics, no hidden legend entries."""
    return text.replace("$", r"\$").lstrip("_") or "unnamed"


DECISIONS, HOURS, INTENSITY = "decisions", "hours of wall time", "intensity of the distractions"
"""What an x axis shows."""
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
    """Place in the palette, and in `LINES`: what tells settings of one colour apart."""
    line: int = 0
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
    paper: Sequence[float] = ()
    """The paper's number per category; nan where it has none."""


def curves(
    series: Sequence[Series],
    *,
    title: str,
    width: str = DECISIONS,
    height: str = "episode return",
    action_repeat: int | None = None,
    random: float = math.nan,
    log: bool = False,
    top: float | None = None,
) -> Figure:
    """A quantity against decisions, hours or intensity, with one line per series.

    With `action_repeat`, an upper axis counts frames. `width` and `height` name the axes, `random`
    is the random policy's level, and the y axis ends at `top`: figures next to each other share it.
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
        if width == INTENSITY:  # 0 stands at the y axis
            axes.set_xlim(left=0)
            axes.xaxis.set_major_locator(MaxNLocator(6, prune="lower"))
        else:
            axes.xaxis.set_major_formatter(TICKS)
            axes.xaxis.set_major_locator(MaxNLocator(6))
        fit_heights(axes, log=log, top=top)
        add_legend(figure, axes)
        if action_repeat:
            add_frame_axis(axes, action_repeat)
    return figure


def add_worlds(
    figure: Figure, training: float, worlds: Sequence[tuple[float, NDArray[np.uint8]]]
) -> None:
    """Pictures above the axes, each where its value is, and a line at the training value."""
    axes = figure.axes[0]
    axes.axvline(training, color=INK, linewidth=1, linestyle=":")
    figure.set_figheight(SIZE[1] + 1)
    for value, picture in worlds:
        image = OffsetImage(picture, zoom=WORLD / len(picture), interpolation="nearest")
        words = TextArea(f"{value:.3g}", textprops={"fontsize": 9, "color": INK})
        packed = VPacker(children=[words, image], align="center", pad=0, sep=2)
        axes.add_artist(
            AnnotationBbox(packed, (value, 1), (0, 4), ("data", "axes fraction"), "offset points",
                           box_alignment=(0.5, 0), frameon=False, annotation_clip=False)
        )  # fmt: skip
    title = axes.get_title("left")
    axes.set_title(title, loc="left", fontsize=12, fontweight="bold", color=INK, pad=WORLD + 24)


WORLD = 72
"""Side of a world's picture in points."""

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
    """Bars by category, such as modes, one per group, with intervals, random and paper levels."""
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
        # On two lines where one would reach into its neighbours.
        names = [mode.replace("_", "_\n", 1) if len(mode) > room else mode for mode in categories]
        axes.set_xticks(centres, list(map(plain, names)), **lean)
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


def to_png(figure: Figure, dpi: int = 150) -> bytes:
    """The figure as a PNG."""
    return _saved(figure, format="png", dpi=dpi, facecolor="white", metadata={"Software": None})


def to_pdf(figure: Figure) -> bytes:
    """The figure as a PDF; equal figures give equal bytes."""
    nameless = dict.fromkeys(("Creator", "Producer", "CreationDate"))
    return _saved(figure, format="pdf", facecolor="white", metadata=nameless)


def to_svg(figure: Figure, name: str) -> str:
    """The figure as an `<svg>` element to put into a page; equal figures give equal text.

    It fills its container. Ids begin with `name`, so that the figures of a page do not mix. What
    belongs to series n carries `data-series="n"`, by which a page can show or hide it; `data-box`
    (of the axes: left, top, right, bottom) and `data-limits` (in data) let it read values off.
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
    buffer = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(buffer, **how)
    return buffer.getvalue()


def _scales(figure: Figure) -> str:
    """Attributes that tie the axes' box, in SVG units, to the data's limits."""
    axes = figure.axes[0]
    box = axes.get_position()  # as the layout engine left it when the figure was saved
    width, height = (72 * inches for inches in figure.get_size_inches())  # SVG units are points
    edges = (box.x0 * width, (1 - box.y1) * height, box.x1 * width, (1 - box.y0) * height)
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    scale = ' data-scale="log"' if axes.get_yscale() == "log" else ""
    numbers = (" ".join(f"{x:.6g}" for x in row) for row in (edges, (left, top, right, bottom)))
    return 'data-box="{}" data-limits="{}"'.format(*numbers) + scale
