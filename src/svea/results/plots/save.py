"""Figures as files: PNG, PDF, or SVG for a page.

In SVG every colour becomes a CSS variable with the plain colour as its fallback, so a page can
switch to dark.
"""

from __future__ import annotations

import io
import re
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from svea.results.plots.layout import CSS_VARIABLES, STYLE


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
