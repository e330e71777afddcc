"""The table of all results as `svea eval` prints it: the columns that fit a terminal."""

from __future__ import annotations

from dataclasses import replace

from svea.core.words import number
from svea.results.tables import Cell, Column, Table
from svea.results.tables.results import COLUMNS

BRIEF = {
    "task": "task",
    "setting": "setting",
    "mode": "mode",
    "mean ± std": "mean",
    "mean [95 %]": "[95 %]",
    "success [95 %]": "success",
    "episodes": "episodes",
}
"""Columns of the short table, and what they are called there."""


def brief(table: Table) -> Table:
    """The columns of `all_results` that fit a terminal, without notes."""
    places = {column.title: place for place, column in enumerate(table.columns)}
    shown = {title: places[title] for title in BRIEF if title in places}

    def short(title: str, cell: Cell) -> Cell:
        return Cell(number(cell.value)) if title == "mean ± std" else cell

    rows = [
        replace(row, cells=tuple(short(title, row.cells[n]) for title, n in shown.items()))
        for row in table.rows
    ]
    columns = [Column(BRIEF[title], kind=COLUMNS[title]) for title in shown]
    return replace(table, columns=tuple(columns), rows=tuple(rows), notes=())
