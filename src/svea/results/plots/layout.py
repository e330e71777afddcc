"""How figures look: colours, margins, legends and axes.

The palette is Okabe and Ito's, told apart by colour-blind readers.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import FuncFormatter, MaxNLocator

from svea.core.words import tick

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
    frames = axes.secondary_xaxis(
        "top",
        functions=(
            lambda decisions: np.asarray(decisions, dtype=float) * action_repeat,
            lambda frames: np.asarray(frames, dtype=float) / action_repeat,
        ),
    )
    frames.set_xlabel("frames", fontsize=10)
    frames.xaxis.set_major_formatter(TICKS)
    frames.xaxis.set_major_locator(MaxNLocator(5))
    frames.tick_params(length=0, labelsize=10)
    frames.spines["top"].set_visible(False)


def fit_heights(axes: Axes, *, log: bool = False, top: float | None = None) -> None:
    """Start the y axis at zero unless heights are negative: they then compare honestly.

    Args:
        axes: Whose heights.
        log: Whether the axis is logarithmic.
        top: Where the axis ends, so that figures next to each other have the same.
    """
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
    handles, labels = axes.get_legend_handles_labels()
    references = ("random policy", "paper")  # after our own
    order = sorted(range(len(labels)), key=lambda i: labels[i] in references)
    handles, labels = [handles[i] for i in order], [labels[i] for i in order]
    if not handles:
        return
    widest = 40 + 6 * max(map(len, labels))  # points, about: the key and its text
    columns = max(1, min(len(labels), int(72 * SIZE[0] / widest)))
    legend = figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=10,
        borderaxespad=0.1,
        columnspacing=1.4,
        handlelength=1.6,
    )
    shown = zip(handles, legend.legend_handles, legend.get_texts(), strict=True)
    for handle, key, text in shown:
        # A series' key hides with it; that of the paper's numbers belongs to several.
        if number := re.match(r"series-\d+(?!-paper)\b", _identity(handle)):
            key.set_gid(f"{number[0]}-key")  # type: ignore[union-attr]
            text.set_gid(f"{number[0]}-text")
    rows = math.ceil(len(labels) / columns)
    width, height = SIZE
    figure.set_size_inches(width, height + 15 / 72 * max(0, rows - FEW_ROWS))


def _identity(handle: Any) -> str:
    """The gid of a line, or of the first of a group of bars."""
    first = handle[0] if isinstance(handle, Sequence) and len(handle) else handle
    return first.get_gid() or ""


def has_label(axes: Axes, label: str) -> bool:
    """Whether the legend has an entry already."""
    return label in axes.get_legend_handles_labels()[1]


def plain(text: str) -> str:
    """A label that matplotlib takes literally: no mathematics, no hidden legend entries."""
    return text.replace("$", r"\$").lstrip("_") or "unnamed"
