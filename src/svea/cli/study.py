"""How `svea sweep` and `svea paper` run a study: engine flags, what it costs, its progress."""

from __future__ import annotations

import errno
import importlib
import math
import os
import shlex
import shutil
import signal
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.live import Live
from rich.table import Table

from svea.cli.arguments import brief_help
from svea.core.errors import UserError
from svea.core.files import make_folder
from svea.core.machine import activation, can_redraw, console, usable_cores
from svea.core.process import interrupt, on_signals
from svea.core.words import duration, listed, plural
from svea.evaluation.episodes import episodes_in
from svea.studies import RunState, Study, as_flags, read_states
from svea.studies.cost import Cost, estimate_cost, require_space, unfinished, updates_made
from svea.studies.engines import Resources
from svea.studies.engines.local import find_slots
from svea.studies.folder import is_cancelled
from svea.studies.state import export_is_taken, worker
from svea.studies.supervise import LOCK_SECONDS
from svea.studies.watch import MOST_ROWS, active, headline, reached, table, what_continues

FAILED = 1  # exit code of a study in which runs failed
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
    flags.check()
    states = read_states(study)
    cost = _cost(states, flags)
    engine = importlib.import_module(f"svea.studies.engines.{flags.on}")
    if flags.dry_run:
        print("\n".join(dry_run_lines(study, states, cost)))
    print("\n".join(cost_lines(cost, flags)))
    if flags.dry_run:
        _warn_about_space(study, states, cost)
        engine.require(study, flags)
        return 0
    require_space(study, states, cost)
    due = active(states)
    due += [state for state in states if state.is_tried_again]
    runs = [state.run for state in due]
    _print_spent(states)
    _print_others(study, states)
    if not runs:
        study.save()
        return _print_end(study, states, flags)
    engine.require(study, flags)
    _require_exports(study, due)
    if confirm:
        _ask(f"start {plural(len(runs), 'run')}?")
    study.save()
    display = StudyDisplay(study)
    with _sigterm_as_interrupt(study), display.show():
        submitted = engine.run_study(study, runs, flags, display.refresh)
    if flags.on == "slurm":
        if len(submitted) < len(runs):
            print(f"{plural(len(runs) - len(submitted), 'run')} already in SLURM's queue")
        print(f"submitted; `svea sweep status {study.folder}` shows its progress")
        return 0
    return _print_end(study, read_states(study), flags)


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


def dry_run_lines(study: Study, states: Sequence[RunState], cost: Cost | None = None) -> list[str]:
    """The command of every run; options that all share are listed once, at the end.

    With a cost whose speed is known, each with the time that it will take.
    """
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
        seconds = cost.run_seconds.get(state.run.name) if cost else None
        left = "" if not seconds else f"  # about {duration(seconds)}"
        lines.append(f"{state.state:<8} {shlex.join(command)}{left}")
    out = study.folder / "runs" / "NAME"
    lines.append(f"each with {shlex.join([*as_flags(shared), '--out', str(out)])}")
    lines += _what_follows(states)
    return [_folded(line) for line in lines]


def _require_exports(study: Study, states: Sequence[RunState]) -> None:
    """Refuse a folder that no agent can be exported to, before hours of training and not after."""
    waiting = [state for state in states if state.progress.missing_export]
    for folder in {state.run.export for state in waiting}:
        if Path(folder).resolve() == (study.folder / "runs").resolve():
            raise UserError(
                f"export is {folder!r}, where this study keeps its runs; name another folder"
            )
        try:
            make_folder(Path(folder))
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            raise UserError(
                f"export is {folder!r}, which cannot be written: {error.strerror}; name another "
                "place, or fix the permissions"
            ) from error
    if taken := [state.run for state in waiting if export_is_taken(study.folder, state)]:
        raise UserError(
            f"{taken[0].export_folder} holds something other than the agent of that run, and is "
            f"never overwritten ({len(taken)} such in all); move it away, or name another folder "
            "to export to"
        )


def _what_follows(states: Sequence[RunState]) -> list[str]:
    """Where runs are exported to and what they are evaluated in, as the plan of them says."""
    run = states[0].run
    lines = [f"then exported to {run.export}/NAME"] if run.export else []
    modes = dict.fromkeys(mode for state in states for mode in state.run.modes)
    if modes:
        played = ", ".join(f"{mode} ({episodes_in(run.episodes, mode)})" for mode in modes)
        lines.append(f"then evaluated; episodes in brackets: {played}")
    return lines


def cost_lines(cost: Cost, flags: EngineFlags = DEFAULT_ENGINE) -> list[str]:
    """What is left of a study, in words."""
    left, runs = cost.runs - cost.done - cost.stopped, plural(cost.runs, "run")
    if cost.done == cost.runs:
        return [f"{runs}, all of them done"]
    runs += f", {cost.done} of them done" if cost.done else ""
    runs += f", {cost.stopped} of them stopped for good" if cost.stopped else ""
    if not left:
        return [runs]
    if cost.wall_seconds == 0:
        what = "no training; evaluations and exports take a time that is not estimated"
        return [runs, f"left ({plural(left, 'run')}): {what}"]
    time = "unknown" if cost.wall_seconds is None else f"about {duration(cost.wall_seconds)}"
    limit = flags.seconds("none") if flags.on == "local" else math.inf
    if cost.wall_seconds is not None and limit < cost.wall_seconds:
        calls = math.ceil(cost.wall_seconds / limit)
        time += f", at least {calls:,} calls with --time-limit {flags.time_limit}"
    gpu = "unknown" if cost.gpu_hours is None else f"about {cost.gpu_hours:,.1f}"
    gpu = "none, all runs compute on CPU cores" if cost.gpu_hours == 0 else gpu
    return [
        f"{runs}, {cost.updates:,} updates left",
        f"time left ({plural(left, 'run')}): {time} ({cost.basis})",
        f"GPU hours: {gpu}",
        f"disk: up to {cost.disk_bytes / 1e9:,.1f} GB",
    ]


class StudyDisplay:
    """The progress of a study: a live table on a terminal, a line per change elsewhere."""

    def __init__(self, study: Study) -> None:
        """Show this study."""
        self.study, self.console = study, console()
        self._live: Live | None = None
        self._next_read, self._last_text = 0.0, ""
        self._began, self._first_updates = time.monotonic(), -1

    @contextmanager
    def show(self) -> Iterator[None]:
        """Show the table while the study runs."""
        if not can_redraw(self.console):
            yield
            return
        with Live(console=self.console, auto_refresh=False) as self._live:
            yield
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
        """Updates per second of the whole study since the display began."""
        done = updates_made(states)
        if self._first_updates < 0:
            self._first_updates = done
        return (done - self._first_updates) / max(time.monotonic() - self._began, 1e-9)


def _warn_about_space(study: Study, states: Sequence[RunState], cost: Cost) -> None:
    """A plan is a plan on any disk: what would be refused is only said."""
    try:
        require_space(study, states, cost)
    except UserError as error:
        print(f"warning: the study would be refused here: {error}", file=sys.stderr)


def _cost(states: Sequence[RunState], flags: EngineFlags) -> Cost:
    """The estimate for an engine."""
    at_once = flags.jobs or len(states)
    gpus: float | None = max(flags.gpus, 0.0)
    if flags.on == "local":
        slots = find_slots([s.run.config for s in unfinished(states)], flags)
        at_once, used = len(slots), {slot.gpu for slot in slots if slot.gpu}
        gpus = len(used) / at_once
    elif flags.on == "ray":
        gpus = None if flags.gpus < 0 else gpus  # one, if the cluster has GPUs
        at_once = flags.jobs or max(int(usable_cores() // (flags.cpus or 1)), 1)
    return estimate_cost(states, at_once, gpus, flags.together)


def _folded(line: str) -> str:
    """A line no wider than the terminal; unchanged where the output is not a terminal."""
    if not sys.stdout.isatty():
        return line
    width = shutil.get_terminal_size().columns
    return textwrap.fill(
        line, width, subsequent_indent=" " * 9, break_on_hyphens=False, break_long_words=False
    )


def _rich_table(states: Sequence[RunState], title: str) -> Table:
    """The table on a terminal."""
    rows = table(states)
    shown = Table(title=title, title_justify="left")
    for name in rows[0]:
        shown.add_column(name, overflow="fold")  # a name cut short would be ambiguous
    for row in rows[:MOST_ROWS]:
        shown.add_row(*row.values())
    if len(rows) > MOST_ROWS:
        shown.add_row(f"... and {len(rows) - MOST_ROWS} more")
    return shown


@contextmanager
def _sigterm_as_interrupt(study: Study) -> Iterator[None]:
    """Let SIGTERM end a study as Ctrl-C does: every run saves first."""
    try:
        with on_signals((signal.SIGTERM,), interrupt):
            yield
    except KeyboardInterrupt:
        then = what_continues(read_states(study))
        print(f"every run has been asked to save; {then}", file=sys.stderr)
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


def _print_end(study: Study, states: Sequence[RunState], flags: EngineFlags) -> int:
    """Print the final state; returns the exit code."""
    print(headline(states))
    failed = [state for state in states if state.state == "failed"]
    for state in failed[:5]:
        print(f"failed: {state.run.name}: {state.reason}")
    if failed:
        print(f"their output is in {study.folder / 'journal'}/NAME.log")
    if trained := sum(state.progress.ended for state in failed):
        print(f"training of {trained} of them is over; the same command tries the rest again")
    for state in [state for state in states if state.progress.stopped][:10]:
        print(f"stopped: {state.run.name}: {reached(state)}")
    if to_export := [state for state in states if state.run.export]:
        there = sum(not state.progress.missing_export for state in to_export)
        print(f"exported: {there} of {len(to_export)} agents, to {to_export[0].run.export}")
    if any(state.progress.ended for state in states):
        print(_next_commands(study, states))
    if is_cancelled(study.folder):
        print(f"cancelled; {what_continues(states)}")
        return 128 + signal.SIGINT
    if (waiting := active(states)) and flags.seconds("none") < math.inf:
        print(f"time limit: {plural(len(waiting), 'run')} not done; {what_continues(waiting)}")
    return FAILED if failed else 0


def _next_commands(study: Study, states: Sequence[RunState]) -> str:
    """What one does with runs that are trained, as commands."""
    folder = shlex.quote(str(study.folder))
    evaluate = "" if any(state.run.modes for state in states) else f"`svea eval {folder}`, "
    return f"next: {activation()}{evaluate}`svea report {folder}`"
