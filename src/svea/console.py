"""What a terminal shows: the live panel of a run, tables, problems; plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from svea.errors import SveaError


class Display:
    """Progress of a training run."""

    def __init__(
        self, title: str, decisions: int, action_repeat: int, start: int = 0, prefix: str = ""
    ) -> None:
        """Show a run; the prefix tells its lines from those of others in the same process."""
        self.title, self.decisions, self.action_repeat = title, decisions, action_repeat
        self.prefix = prefix
        self.console = Console(highlight=False)
        self.values: dict[str, Any] = {}
        self.decision = self._first = start
        self._began = time.monotonic()
        self._live: Live | None = None
        self._doing = ""

    @contextmanager
    def show(self) -> Iterator[Display]:
        """Show the panel while the run works (on a terminal)."""
        if not self.console.is_terminal:
            yield self
            return
        with Live(self, console=self.console, refresh_per_second=4) as self._live:
            yield self
        self._live = None

    def say(self, text: str) -> None:
        """Print a line that stays."""
        self.console.print(text, markup=False, soft_wrap=True)

    def progress(
        self, decision: int, doing: str = "", values: dict[str, Any] | None = None
    ) -> None:
        """Take over the newest figures."""
        self.decision, self._doing = decision, doing
        self.values |= values or {}

    def line(self, text: str) -> None:
        """Print a progress line where there is no panel."""
        if self._live is None:
            self.say(f"{self.prefix}{self._where()}  {text}  {self._eta()}")

    def _where(self) -> str:
        frames = self.decision * self.action_repeat
        return f"decision {self.decision:,}/{self.decisions:,} (frame {frames:,})"

    def _eta(self) -> str:
        done = self.decision - self._first
        if not done:
            return ""
        left = (self.decisions - self.decision) * (time.monotonic() - self._began) / done
        return f"ETA {clock(left)}"

    def __rich__(self) -> Panel:
        """The panel."""
        table = Table.grid(padding=(0, 2))
        figures = list(self.values.items())
        for start in range(0, len(figures), 3):
            cells = []
            for name, value in figures[start : start + 3]:
                shown = f"{value:,.3g}" if isinstance(value, float) else str(value)
                cells.append(Text.assemble((name.replace("_", " ") + " ", "dim"), shown))
            table.add_row(*cells)
        head = Text(f"{self._where()}   {self._eta()}   {self._doing}")
        bar = ProgressBar(total=self.decisions, completed=self.decision)
        return Panel(Group(head, bar, table), title=self.title, title_align="left")


def clock(seconds: float) -> str:
    """A duration for people.

    >>> clock(3700)
    '1h01m'
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"


@contextmanager
def collected() -> Iterator[list[SveaError]]:
    """A list of problems that are printed, too, if nothing is left to go on with."""
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


def print_table(rows: list[dict[str, Any]]) -> None:
    """A table on a terminal; one plain, unwrapped line per row elsewhere."""
    console = Console()
    if not rows:
        return
    if not console.is_terminal:
        widths = {k: max(len(k), *(len(str(row[k])) for row in rows)) for k in rows[0]}
        for row in [{k: k for k in rows[0]}, *rows]:
            print("  ".join(str(row[k]).ljust(width) for k, width in widths.items()).rstrip())
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for name in rows[0]:
        table.add_column(name, overflow="fold")  # a name cut short could be any
    for row in rows:
        table.add_row(*map(str, row.values()))
    console.print(table)
