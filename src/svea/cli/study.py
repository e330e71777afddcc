"""How `svea sweep` and `svea paper` run a study: engine flags, what it costs, its progress."""

from __future__ import annotations

import math
import shlex
import shutil
import signal
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from rich.live import Live
from rich.table import Table

from svea.cli.arguments import brief_help
from svea.core.errors import UserError
from svea.core.machine import activation
from svea.core.process import interrupt, on_signals
from svea.core.terminal import console, redrawn
from svea.core.words import duration, listed, plural
from svea.evaluation.episodes import episodes_in
from svea.studies import STATES, RunState, Study, as_flags, read_states
from svea.studies.engines import Resources
from svea.studies.folder import is_cancelled, worker
from svea.studies.supervise import LOCK_SECONDS
from svea.studies.work import Work, decisions_left, decisions_made

FAILED = 1  # exit code of a study in which runs failed
MOST_ROWS = 30
REFRESH_SECONDS = 2.0  # between reads of the folders; ten times as long as a read, if that is more


@brief_help
@dataclass(frozen=True)
class EngineFlags(Resources):
    """Where and how a study runs, as flags."""

    on: Literal["local", "ray", "slurm"] = "local"
    """The engine."""
    attempts: int = 3
    """Failed attempts at training after which a run counts as failed; and in each call, failed
    attempts at its export and evaluation."""
    dry_run: bool = False
    """List the runs and what they cost; write nothing."""


DEFAULT_ENGINE = EngineFlags()


def run_study(study: Study, flags: EngineFlags, confirm: bool = False) -> int:
    """Run a study, or list what it would run; returns the exit code.

    Args:
        study: its runs.
        flags: where and how.
        confirm: ask before anything starts.
    """
    work = Work.left_of(study, flags.on, flags)
    limit = flags.seconds("none") if flags.on == "local" else math.inf
    if flags.dry_run:
        print("\n".join(dry_run_lines(study, work.states)))
    print("\n".join(work.cost.lines(limit)))
    if flags.dry_run:
        _warn_about_space(work)
        work.require_engine()
        return 0
    _print_spent(work.states)
    _print_others(study, work.states)
    work.require()
    if confirm and work.due:
        _ask(f"start {plural(len(work.due), 'run')}?")
    display = StudyDisplay(study)
    with _sigterm_as_interrupt(), display.show():
        submitted = work.run(display.refresh)
    if flags.on == "slurm" and work.due:
        if waiting := len(work.due) - len(submitted or ()):
            print(f"{plural(waiting, 'run')} already in SLURM's queue")
        print(f"submitted; `svea sweep status {study.folder}` shows its progress")
        return 0
    return _print_end(study, read_states(study), limit)


def _ask(question: str) -> None:
    """Go on if the user says yes; where none can be asked, --yes has to."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UserError(
            f"{question} There is no terminal to ask on; allowed: --yes, or --dry-run, which lists "
            "the runs"
        )
    try:
        answer = input(f"{question} [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise UserError("nothing was started; --dry-run lists the runs, --scale makes them shorter")


def dry_run_lines(study: Study, states: Sequence[RunState]) -> list[str]:
    """The command of every run; options that all share are listed once, at the end."""
    first = states[0].run.values
    shared = {
        name: value
        for name, value in first.items()
        if name != "task" and len(states) > 1
        and all(state.run.values.get(name) == value for state in states)
    }  # fmt: skip
    lines = []
    for state in states:
        own = {k: v for k, v in state.run.values.items() if k != "task" and k not in shared}
        command = ["svea", "train", state.run.values["task"], *as_flags(own)]
        lines.append(f"{state.state:<8} {shlex.join(command)}")
    out = study.folder / "runs" / "NAME"
    lines.append(f"each with {shlex.join([*as_flags(shared), '--out', str(out)])}")
    lines += _what_follows(states)
    return [_folded(line) for line in lines]


def _what_follows(states: Sequence[RunState]) -> list[str]:
    """Where runs are exported to and what they are evaluated in, as the plan of them says."""
    run = states[0].run
    lines = [f"then exported to {run.export}/NAME"] if run.export else []
    modes = dict.fromkeys(mode for state in states for mode in state.run.modes)
    if modes:
        played = ", ".join(f"{mode} ({episodes_in(run.episodes, mode)})" for mode in modes)
        lines.append(f"then evaluated; episodes in brackets: {played}")
    return lines


def _folded(line: str) -> str:
    """A line no wider than the terminal; unchanged where the output is not a terminal."""
    if not sys.stdout.isatty():
        return line
    width = shutil.get_terminal_size().columns
    return textwrap.fill(
        line, width, subsequent_indent=" " * 9, break_on_hyphens=False, break_long_words=False
    )


# Progress -----------------------------------------------------------------------------------------


class StudyDisplay:
    """The progress of a study: a live table on a terminal, a line per change elsewhere."""

    def __init__(self, study: Study) -> None:
        """Show this study."""
        self.study, self.console = study, console()
        self._live: Live | None = None
        self._next_read, self._last_text = 0.0, ""
        self._began, self._made_before = time.monotonic(), -1

    @contextmanager
    def show(self) -> Iterator[None]:
        """Show the table while the study runs."""
        with redrawn(self.console, auto_refresh=False) as self._live:
            yield
            if self._live is not None:
                self.refresh(now=True)
        self._live = None

    def refresh(self, *, now: bool = False) -> None:
        """Read the folders again, if it is time to."""
        began = time.monotonic()
        if began < self._next_read and not now:
            return
        states = read_states(self.study)
        self._next_read = time.monotonic() + max(REFRESH_SECONDS, 10 * (time.monotonic() - began))
        text = headline(states, self._rate(states))
        if self._live is not None:
            self._live.update(_rich_table(states, text), refresh=True)
        elif text.partition(";")[0] != self._last_text.partition(";")[0]:
            self.console.print(text, markup=False, soft_wrap=True)
        self._last_text = text

    def _rate(self, states: Sequence[RunState]) -> float:
        """Decisions per second of the whole study since the display began."""
        made = decisions_made(states)
        if self._made_before < 0:
            self._made_before = made
        return (made - self._made_before) / max(time.monotonic() - self._began, 1e-9)


def headline(states: Sequence[RunState], rate: float = 0.0) -> str:
    """Counts by state, and the time left at a rate (decisions per second of all runs)."""
    counts = Counter(state.state for state in states)
    past = sum(state.state == "running" and state.progress.trained for state in states)
    shown = [
        f"{counts[name]} {name}"
        + (f" ({past} past training)" if name == "running" and past else "")
        for name in STATES
    ]
    text = f"{plural(len(states), 'run')}: {', '.join(shown)}"
    if (left := decisions_left(active(states))) and rate > 0:
        text += f"; ETA {duration(left / rate)}"
    return text


def active(states: Sequence[RunState]) -> list[RunState]:
    """The runs that are queued or running."""
    return [state for state in states if state.state in ("queued", "running")]


def rows(states: Sequence[RunState]) -> list[dict[str, Any]]:
    """One row per run, for `--json`."""
    return [
        {
            "run": state.run.name,
            "state": state.state,
            "decision": state.progress.known,
            "decisions": state.run.decisions,
            "seconds": state.progress.seconds,
            "returns": state.progress.returns,
            "failures": state.failures,
            "reason": state.reason,
        }
        for state in states
    ]


def table(states: Sequence[RunState]) -> list[dict[str, str]]:
    """Rows of text: running runs first; of many runs, one row per setting with its seeds."""
    if len(states) <= MOST_ROWS:
        order = {"running": 0, "failed": 1, "queued": 2, "done": 3}
        shown = sorted(states, key=lambda state: order[state.state])
        return [_row(state.run.name, [state]) for state in shown]
    groups: dict[str, list[RunState]] = {}
    for state in states:
        groups.setdefault(state.run.name.rpartition("-s")[0], []).append(state)
    return [_row(name, members) for name, members in groups.items()]


def _row(name: str, members: Sequence[RunState]) -> dict[str, str]:
    """A run, or the seeds of one setting."""
    counts = Counter(state.state for state in members)
    modes = dict.fromkeys(mode for state in members for mode in state.progress.returns)
    returns = {mode: [s.progress.returns[mode] for s in members if mode in s.progress.returns]
               for mode in modes}  # fmt: skip
    made = sum(state.progress.known for state in members)
    planned = sum(state.run.decisions for state in members)
    several = len(members) > 1
    return {
        "run": name,
        "state": ", ".join(f"{counts[s]} {s}" if several else s for s in STATES if counts[s]),
        "decisions": f"{made:,}/{planned:,}",
        "last returns": "  ".join(f"{m} {sum(v) / len(v):.0f}" for m, v in returns.items()),
        "note": next(filter(None, map(_note, members)), ""),
    }


def _note(state: RunState) -> str:
    """Why a run failed, or what is left of one that is past its training."""
    progress = state.progress
    if state.reason or state.failures:
        return state.reason or f"failed {state.failures}x"
    if state.state != "running" or not progress.trained:
        return ""
    left = ["export"] * progress.missing_export + [*progress.missing_modes]
    return f"trained; left: {', '.join([*left, *progress.missing_analyses])}"


def _rich_table(states: Sequence[RunState], title: str) -> Table:
    """The table on a terminal."""
    lines = table(states)
    shown = Table(title=title, title_justify="left")
    for name in lines[0]:
        shown.add_column(name, overflow="fold")  # a name cut short would be ambiguous
    for row in lines[:MOST_ROWS]:
        shown.add_row(*row.values())
    if len(lines) > MOST_ROWS:
        shown.add_row(f"... and {len(lines) - MOST_ROWS} more")
    return shown


# Before and after ---------------------------------------------------------------------------------


def _warn_about_space(work: Work) -> None:
    """A plan is a plan on any disk: what would be refused is only said."""
    try:
        work.require_space()
    except UserError as error:
        print(f"warning: the study would be refused here: {error}", file=sys.stderr)


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Let SIGTERM end a study as Ctrl-C does: every run saves first."""
    try:
        with on_signals([signal.SIGTERM], interrupt):
            yield
    except KeyboardInterrupt:
        print("every run has been asked to save; the same command continues", file=sys.stderr)
        raise


def _print_spent(states: Sequence[RunState]) -> None:
    """Name runs that have used up their attempts."""
    failed = [state for state in states if state.state == "failed"]
    spent = [state for state in failed if not state.is_tried_again]
    if spent:
        print(
            f"{plural(len(spent), 'run')} failed {plural(spent[0].failures, 'time')} and will not "
            "be retried without a larger --attempts. The first: "
            f"{spent[0].run.name}: {spent[0].reason}"
        )


def _print_others(study: Study, states: Sequence[RunState]) -> None:
    """Name the processes that work on runs of this study already."""
    running = [state.run for state in states if state.state == "running"]
    if not running:
        return
    workers = listed(list(dict.fromkeys(worker(study.folder, run) for run in running)), most=3)
    names = listed([run.name for run in running], most=3)
    print(
        f"{plural(len(running), 'run')} already worked on by {workers} ({names}): not begun here "
        f"unless free within {duration(LOCK_SECONDS)}"
    )


def _print_end(study: Study, states: Sequence[RunState], limit: float) -> int:
    """Print the final state; returns the exit code."""
    print(headline(states))
    failed = [state for state in states if state.state == "failed"]
    for state in failed[:5]:
        print(f"failed: {state.run.name}: {state.reason}")
    if failed:
        print(f"their output is in {study.folder / 'journal'}/NAME.log")
    if trained := sum(state.progress.trained for state in failed):
        print(f"training of {trained} of them is over; the same command tries the rest again")
    if to_export := [state for state in states if state.run.export]:
        there = sum(not state.progress.missing_export for state in to_export)
        print(f"exported: {there} of {len(to_export)} agents, to {to_export[0].run.export}")
    if any(state.progress.trained for state in states):
        print(_next_commands(study, states))
    if is_cancelled(study.folder):
        print("cancelled; the same command continues")
        return 128 + signal.SIGINT
    if (waiting := active(states)) and limit < math.inf:
        print(f"time limit: {plural(len(waiting), 'run')} not done; the same command continues")
    return FAILED if failed else 0


def _next_commands(study: Study, states: Sequence[RunState]) -> str:
    """What one does with runs that are trained, as commands."""
    folder = shlex.quote(str(study.folder))
    evaluate = "" if any(state.run.modes for state in states) else f"`svea eval {folder}`, "
    return f"next: {activation()}{evaluate}`svea report {folder}`"
