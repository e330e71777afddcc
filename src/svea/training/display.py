"""What a training run shows: a live panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from svea.words import duration


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
        """Show the newest values."""
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
        return f"ETA {duration(left)}"

    def __rich__(self) -> Panel:
        """The panel."""
        table = Table.grid(padding=(0, 2))
        values = list(self.values.items())
        for start in range(0, len(values), 3):
            cells = []
            for name, value in values[start : start + 3]:
                shown = f"{value:,.3g}" if isinstance(value, float) else str(value)
                cells.append(Text.assemble((name.replace("_", " ") + " ", "dim"), shown))
            table.add_row(*cells)
        head = Text(f"{self._where()}   {self._eta()}   {self._doing}")
        bar = ProgressBar(total=self.decisions, completed=self.decision)
        return Panel(Group(head, bar, table), title=self.title, title_align="left")
