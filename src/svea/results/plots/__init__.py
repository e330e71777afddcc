"""Figures as matplotlib objects, and as files."""

from svea.results.plots.charts import (
    DECISIONS,
    HOURS,
    Bar,
    Series,
    grouped_bars,
    intensity_curves,
    learning_curves,
)
from svea.results.plots.layout import PALETTE, color_of, looks
from svea.results.plots.save import to_pdf, to_png, to_svg

__all__ = [
    "DECISIONS",
    "HOURS",
    "PALETTE",
    "Bar",
    "Series",
    "color_of",
    "grouped_bars",
    "intensity_curves",
    "learning_curves",
    "looks",
    "to_pdf",
    "to_png",
    "to_svg",
]
