"""What verbs print: tables on a terminal, plain lines elsewhere; problems on stderr."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table

from svea.core.errors import SveaError
from svea.core.terminal import console, note

if TYPE_CHECKING:
    from svea.results.tables import Table as Results

Rows = Sequence[dict[str, Any]]


@contextmanager
def collected() -> Iterator[list[SveaError]]:
    """Collect problems; they are printed, too, if an error ends the work."""
    problems: list[SveaError] = []
    try:
        yield problems
    except SveaError:
        print_problems(problems)
        raise


def print_problems(problems: Sequence[SveaError]) -> int:
    """What did not work, on stderr; the exit code of the first problem."""
    for problem in problems:
        note(f"svea: {problem}")
    return problems[0].exit_code if problems else 0


def say(text: str) -> None:
    """Print prose: lines that end between words on a terminal, one long line elsewhere."""
    shown = console()
    if shown.is_terminal:
        shown.print(text, markup=False, emoji=False)
    else:
        print(text)


def print_json(value: Any) -> None:
    """What a program reads."""
    print(json.dumps(value, indent=1))


def print_list(rows: Rows, as_json: bool, notes: Iterable[str] = ()) -> int:
    """A list, as JSON or as a table with what to know about it."""
    if as_json:
        print_json(rows)
        return 0
    print_table(rows)
    for text in notes:
        say(text)
    return 0


def print_table(rows: Rows) -> None:
    """A table on a terminal; one plain, unwrapped line per row elsewhere."""
    shown = console()
    if shown.is_terminal:
        shown.print(drawn(rows, shown.width))
        return
    rows = _filled(rows)
    names = list(rows[0]) if rows else []
    widths = {k: max(len(k), *(len(row[k]) for row in rows)) for k in names}
    for row in [{k: k for k in names}, *rows] if rows else ():
        print("  ".join(row[k].ljust(width) for k, width in widths.items()).rstrip())


def drawn(rows: Rows, room: int) -> RenderableType:
    """A table that fits; each row is a paragraph where a name, to be copied, would be broken."""
    rows = _filled(rows)
    if not rows:
        return ""
    if 1 + sum(_narrowest(name, rows) + 2 for name in rows[0]) > room:
        return Group(*(part for row in rows for part in (_paragraph(row), "")))
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name, width in _widths(rows, room).items():
        table.add_column(name, width=width)
    for row in rows:
        table.add_row(*row.values())
    return table


def _filled(rows: Rows) -> list[dict[str, str]]:
    """Rows as text, without the columns that have no entry."""
    names = [name for name in rows[0] if any(str(row[name]) for row in rows)] if rows else []
    return [{name: str(row[name]) for name in names} for row in rows]


def _widths(rows: list[dict[str, str]], room: int) -> dict[str, int]:
    """How wide each column is: the widest that can be narrower gives way until all fit.

    rich narrows columns that must not be, and then cuts off the last one.
    """
    widths = {k: max(len(k), *(len(row[k]) for row in rows)) for k in rows[0]}
    slack = {name: width - _narrowest(name, rows) for name, width in widths.items()}
    for _ in range(sum(width + 2 for width in widths.values()) - room):
        widest = max(widths, key=lambda name: (slack[name] > 0, widths[name]))
        widths[widest] -= 1
        slack[widest] -= 1
    return widths


def _narrowest(name: str, rows: list[dict[str, str]]) -> int:
    """The width of a column in which no word of its head or its entries is broken."""
    return max(len(word) for row in [{name: name}, *rows] for word in row[name].split() or [""])


def _paragraph(row: dict[str, str]) -> Table:
    """A row as lines of name and entry."""
    lines = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), show_header=False)
    for name, entry in row.items():
        if entry:
            lines.add_row(name, entry)
    return lines


def print_results(
    results: Results, notes: Sequence[str] = (), problems: Sequence[SveaError] = ()
) -> int:
    """A table, notes below it, problems on stderr; the exit code of the first problem."""
    from svea.results.tables import to_rows  # not at the top: lists need no results

    print_table(to_rows(results))
    for text in [*results.notes, *notes] if results.rows else ():  # they are about the table
        say(text)
    return print_problems(problems)
