"""What verbs print: tables on a terminal, plain lines elsewhere; problems on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from svea.core.errors import SveaError
from svea.core.terminal import console
from svea.results.tables import Table as Results
from svea.results.tables import to_rows


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
        print(f"svea: {problem}", file=sys.stderr)
    return problems[0].exit_code if problems else 0


def say(text: str) -> None:
    """Print prose: lines that end between words on a terminal, one long line elsewhere."""
    shown = console()
    if shown.is_terminal:
        shown.print(text, markup=False, emoji=False)
    else:
        print(text)


def print_table(rows: list[dict[str, Any]]) -> None:
    """A table on a terminal; one plain, unwrapped line per row elsewhere.

    Columns without an entry are left out. Where a terminal is too narrow to keep names in one
    piece, so that they can be copied, each row is a paragraph.
    """
    shown = console()
    names = [name for name in rows[0] if any(str(row[name]) for row in rows)] if rows else []
    rows = [{name: str(row[name]) for name in names} for row in rows]
    if not rows:
        return
    if not shown.is_terminal:
        widths = {k: max(len(k), *(len(row[k]) for row in rows)) for k in names}
        for row in [{k: k for k in names}, *rows]:
            print("  ".join(row[k].ljust(width) for k, width in widths.items()).rstrip())
    elif 1 + sum(_narrowest(name, rows) + 2 for name in names) > shown.width:
        _print_paragraphs(shown, rows)
    else:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        for name, width in _widths(rows, shown.width).items():
            table.add_column(name, width=width)
        for row in rows:
            table.add_row(*row.values())
        shown.print(table)


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


def _print_paragraphs(shown: Console, rows: list[dict[str, str]]) -> None:
    """Each row as lines of name and entry."""
    for row in rows:
        lines = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), show_header=False)
        for name, entry in row.items():
            if entry:
                lines.add_row(name, entry)
        shown.print(lines)
        shown.print()


def print_results(
    results: Results, notes: Sequence[str] = (), problems: Sequence[SveaError] = ()
) -> int:
    """A table, notes below it, problems on stderr; the exit code of the first problem."""
    print_table(to_rows(results))
    for note in [*results.notes, *notes] if results.rows else ():  # they are about the table
        say(note)
    return print_problems(problems)
