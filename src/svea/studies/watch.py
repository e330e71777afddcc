"""The live table of a study: how many runs are queued, running, done, failed; returns; ETA."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from svea.studies import STATES, RunState, Study
from svea.words import duration

MOST_ROWS = 30
SECONDS = 2.0  # between looks at the folders; ten times what a look takes, if that is longer


class Watch:
    """Shows a study while it is worked at: a table on a terminal, a line per change elsewhere."""

    def __init__(self, study: Study) -> None:
        self.study, self.console = study, Console(highlight=False)
        self.states: list[RunState] = []
        self._live: Live | None = None
        self._next, self._said = 0.0, ""
        self._began, self._first_done = time.monotonic(), -1

    @contextmanager
    def show(self) -> Iterator[Watch]:
        """Show the table for as long as the study is worked at."""
        if not self.console.is_terminal:
            yield self
            return
        with Live(console=self.console, auto_refresh=False) as self._live:
            yield self
            self.look(now=True)
        self._live = None

    def look(self, *, now: bool = False) -> None:
        """Read the folders again, if it is time to."""
        began = time.monotonic()
        if began < self._next and not now:
            return
        self.states = self.study.states()
        self._next = time.monotonic() + max(SECONDS, 10 * (time.monotonic() - began))
        text = headline(self.states, self._rate())
        if self._live is not None:
            self._live.update(_rich_table(self.states, text), refresh=True)
        elif text.partition(";")[0] != self._said.partition(";")[0]:
            self.console.print(text, markup=False, soft_wrap=True)
        self._said = text

    def _rate(self) -> float:
        """Decisions per second of the whole study since it is watched."""
        done = sum(state.progress.decision for state in self.states)
        if self._first_done < 0:
            self._first_done = done
        return (done - self._first_done) / max(time.monotonic() - self._began, 1e-9)


def headline(states: Sequence[RunState], rate: float = 0.0) -> str:
    """Counts and ETA in a line."""
    counts = Counter(state.state for state in states)
    text = f"{len(states)} runs: " + ", ".join(f"{counts[name]} {name}" for name in STATES)
    if (left := decisions_left(states)) and rate > 0:
        text += f"; ETA {duration(left / rate)}"
    return text


def decisions_left(states: Sequence[RunState]) -> int:
    """Of the runs that are queued or running."""
    open_ones = [state for state in states if state.state in ("queued", "running")]
    return sum(max(one.run.decisions - one.progress.decision, 0) for one in open_ones)


def rows(states: Sequence[RunState]) -> list[dict[str, Any]]:
    """One row per run: the table's, and `--json`'s."""
    return [
        {
            "run": state.run.name,
            "state": state.state,
            "decision": state.progress.decision,
            "decisions": state.run.decisions,
            "seconds": state.progress.seconds,
            "returns": state.progress.returns,
            "failures": state.failures,
            "reason": state.reason,
        }
        for state in states
    ]


def table(states: Sequence[RunState]) -> list[dict[str, str]]:
    """Rows of text: one per run, or, of many, one per setting with its seeds together."""
    if len(states) <= MOST_ROWS:
        return [_row(state) for state in _by_interest(states)]
    groups: dict[str, list[RunState]] = {}
    for state in states:
        groups.setdefault(state.run.name.rpartition("-s")[0], []).append(state)
    return [_group_row(name, members) for name, members in groups.items()]


def _rich_table(states: Sequence[RunState], title: str) -> Table:
    """The table on a terminal."""
    lines = table(states)
    shown = Table(title=title, title_justify="left")
    for name in lines[0]:
        shown.add_column(name, overflow="fold")  # a name cut short could be any run's
    for line in lines[:MOST_ROWS]:
        shown.add_row(*line.values())
    if len(lines) > MOST_ROWS:
        shown.add_row(f"... and {len(lines) - MOST_ROWS} more")
    return shown


def _by_interest(states: Sequence[RunState]) -> list[RunState]:
    """Running ones first, then what failed, then the rest."""
    order = {"running": 0, "failed": 1, "queued": 2, "done": 3}
    return sorted(states, key=lambda state: order[state.state])


def _row(state: RunState) -> dict[str, str]:
    """One run."""
    done, planned = state.progress.decision, state.run.decisions
    note = state.reason or (f"failed {state.failures}x" if state.failures else "")
    return {
        "run": state.run.name,
        "state": state.state,
        "decisions": f"{done:,}/{planned:,}",
        "last returns": _returns(state.progress.returns),
        "note": note,
    }


def _group_row(name: str, members: Sequence[RunState]) -> dict[str, str]:
    """The seeds of one setting."""
    counts = Counter(state.state for state in members)
    modes = dict.fromkeys(mode for state in members for mode in state.progress.returns)
    returns = {mode: [s.progress.returns[mode] for s in members if mode in s.progress.returns]
               for mode in modes}  # fmt: skip
    done = sum(state.progress.decision for state in members)
    planned = sum(state.run.decisions for state in members)
    return {
        "run": name,
        "state": ", ".join(f"{counts[s]} {s}" for s in STATES if counts[s]),
        "decisions": f"{done:,}/{planned:,}",
        "last returns": _returns({m: sum(v) / len(v) for m, v in returns.items()}),
        "note": next((state.reason for state in members if state.reason), ""),
    }


def _returns(returns: dict[str, float]) -> str:
    """Mean returns by mode."""
    return "  ".join(f"{mode} {value:.0f}" for mode, value in returns.items())
