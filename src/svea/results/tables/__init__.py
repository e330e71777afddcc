"""A table of results: one object, however it is shown.

`results` makes tables from results, `writers` writes them for a terminal, Markdown, LaTeX and CSV,
and `report/templates/table.html.j2` for a page. All of them show the same texts, marks and notes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Record = dict[str, Any]
"""One line of a CSV file."""


@dataclass(frozen=True)
class Cell:
    """What stands at a place of the table."""

    text: str
    note: str = ""
    """In small print after it: an interval, a ratio, a source."""
    paper: str = ""
    """The paper's value for the same setting."""
    value: float = math.nan
    """What the text rounds: a page sorts by it."""

    @property
    def line(self) -> str:
        """All of it in one line."""
        return " ".join(filter(None, [self.text, self.note, self.paper and f"({self.paper})"]))


@dataclass(frozen=True)
class Column:
    """The head of a column."""

    title: str
    method: str = ""
    """Whose results stand below: a page filters by it."""
    kind: Literal["number", "main", "text", "paper"] = "number"
    """What stands below: numbers, the most important of them, words, or the paper's numbers."""


@dataclass(frozen=True)
class Row:
    """A row, with what a page filters by."""

    cells: tuple[Cell, ...]
    task: str = ""
    method: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of cells, with how to read them and the numbers behind them."""

    name: str
    """For a file."""
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    """How to read it, a sentence each."""
    records: tuple[Record, ...] = ()
    """The unrounded numbers behind it."""

    @classmethod
    def of(cls, name: str, rows: Sequence[Mapping[str, Cell]], notes: Sequence[str] = ()) -> Table:
        """A table whose rows name their columns; the first row's are shown."""
        titles = list(rows[0]) if rows else []
        cells = [Row(tuple(row[title] for title in titles)) for row in rows]
        columns = [Column(title) for title in titles]
        return cls(name, "", tuple(columns), tuple(cells), tuple(notes))
