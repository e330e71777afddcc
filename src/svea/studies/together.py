"""The supervisor of several runs that train side by side in one process.

Their process is `svea sweep train STUDY RUN ...`. It names in each run's journal the error that
ended that run, because it has one exit code for all. Those that are trained are exported by one
process and evaluated by another. What remains, such as a run that is to be tried again alone, is
left to the supervisor of one run.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from svea.core import files
from svea.core.errors import Stopped, SveaError
from svea.studies.folder import ATTEMPTS, is_cancelled, journal_path, log_path, run_folder
from svea.studies.plan import PlannedRun
from svea.studies.state import Progress, read_journal, read_progress, read_state
from svea.studies.supervise import (
    APPEND,
    Attempt,
    Execute,
    MustStop,
    Process,
    bring_to_end,
    either,
    evaluation_command,
    locked_journal,
    trusting,
    write_entry,
)

Item = TypeVar("Item")


def groups(runs: Sequence[Item], size: int) -> list[Sequence[Item]]:
    """The runs that share a process, in the order of the plan.

    >>> groups("abcde", 2)
    ['ab', 'cd', 'e']
    """
    return [runs[start : start + size] for start in range(0, len(runs), size)]


FINISHED: dict[str, Callable[[Progress], bool]] = {
    "trained": lambda progress: progress.ended,
    "exported": lambda progress: not progress.missing_export,
    "evaluated": lambda progress: not progress.missing_modes,
}
"""What a process does for several runs, and when it is finished for one of them."""

Locked = list[tuple[PlannedRun, int]]
"""Runs, each with its journal, open and locked."""


def supervise_together(
    study: Path,
    runs: Sequence[PlannedRun],
    attempts: int = ATTEMPTS,
    environment: dict[str, str] | None = None,
    execute: Execute | None = None,
    must_stop: MustStop | None = None,
    time_is_up: MustStop = lambda: False,
    at_once: int = 1,
) -> None:
    """Bring several runs to their end. Most arguments are those of `supervise_run`.

    Args:
        study: the study's folder.
        runs: which runs.
        attempts: failed attempts each may have.
        environment: further variables for their processes.
        execute: what runs a command.
        must_stop: whether the study was cancelled.
        time_is_up: whether training must stop.
        at_once: agents, or modes of them, that are played at the same time.
    """
    must_stop = must_stop or functools.partial(is_cancelled, study)
    with contextlib.ExitStack() as stack:
        opened = [(run, stack.enter_context(locked_journal(study, run))) for run in runs]
        mine = [(run, journal) for run, journal in opened if journal is not None]
        execute = execute or Process(environment or {}, *(journal for _, journal in mine))
        group = _Group(study, attempts, execute, must_stop, time_is_up)
        earlier = {run.name: read_state(study, run).failures_after for run, _ in mine}
        mine = group.train(mine)
        group.export(mine)
        group.evaluate(mine, at_once)
        for run, journal in mine:
            bring_to_end(
                study, run, journal, attempts, execute, must_stop, time_is_up, earlier[run.name]
            )


def record_error(study: Path, run: PlannedRun, error: BaseException) -> None:
    """Say in a run's journal what ended it, from the process that trained it."""
    code = error.exit_code if isinstance(error, SveaError | Stopped) else 1
    journal = files.descriptor(journal_path(study, run), APPEND)
    try:
        write_entry(journal, event="error", code=code, reason=str(error))
    finally:
        os.close(journal)


@dataclass(frozen=True)
class _Group:
    """Does for several runs in one process what each would need a process for."""

    study: Path
    attempts: int
    execute: Execute
    must_stop: MustStop
    time_is_up: MustStop

    def train(self, runs: Locked) -> Locked:
        """Train them, as long as two are left to train; returns them without refused ones."""
        while len(waiting := self._waiting(runs, "trained")) > 1:
            names, trust = [run.name for run, _ in waiting], trusting(*(run for run, _ in waiting))
            self._share("trained", waiting, ["sweep", "train", *trust, str(self.study), *names])
            states = {run.name: read_state(self.study, run, self.attempts) for run, _ in waiting}
            refused = {name for name, state in states.items() if state.refused}
            runs = [one for one in runs if one[0].name not in refused]  # again would not help
        return runs

    def export(self, runs: Locked) -> None:
        """Export those that have ended: importing torch takes longer than an export."""
        if len(waiting := self._waiting(runs, "exported")) > 1:
            names, trust = [run.name for run, _ in waiting], trusting(*(run for run, _ in waiting))
            self._share("exported", waiting, ["sweep", "export", *trust, str(self.study), *names])

    def evaluate(self, runs: Locked, at_once: int) -> None:
        """Evaluate those that have ended, in one process for all that are evaluated alike."""
        alike: dict[str, Locked] = {}
        for run, journal in self._waiting(runs, "evaluated"):
            asked = shlex.join(evaluation_command([], run, run.modes))
            alike.setdefault(asked, []).append((run, journal))
        for group in alike.values():
            if len(waiting := self._waiting(group, "evaluated")) > 1:
                folders = [run_folder(self.study, run) for run, _ in waiting]
                first = waiting[0][0]
                jobs = min(at_once, len(waiting) * len(first.modes))
                command = evaluation_command(folders, first, first.modes, jobs)
                self._share("evaluated", waiting, command)

    def _waiting(self, runs: Locked, what: str) -> Locked:
        """The runs for which something is to be done; none where it must not be begun."""
        if self._stop(what)():
            return []
        states = [(one, read_state(self.study, one[0], self.attempts)) for one in runs]
        return [
            one
            for one, state in states
            if not FINISHED[what](state.progress)
            and (state.failures < self.attempts if what == "trained" else state.progress.ended)
        ]

    def _stop(self, what: str) -> MustStop:
        """When to stop: the study's time is for training, and what follows it is still done."""
        return either(self.must_stop, self.time_is_up) if what == "trained" else self.must_stop

    def _share(self, what: str, runs: Locked, command: list[str]) -> None:
        """Run a command for several runs, and record in each journal how it ended for that run."""
        names, log = [run.name for run, _ in runs], log_path(self.study, runs[0][0])
        begun = []
        for run, journal in runs:
            about = {"together": names, "training": what == "trained"}
            begun.append((run, Attempt(journal, self._progress(run), **about)))
            if log_path(self.study, run) != log:
                other = files.descriptor(log_path(self.study, run), APPEND)
                line = f"{what} together with {names[0]}: its lines are in {log.name}\n"
                os.write(other, line.encode())
                os.close(other)
        code = self.execute(command, log, stop := self._stop(what))
        for run, attempt in begun:
            after, error = self._progress(run), _error(self.study, run)
            finished = FINISHED[what](after)
            own = error.get("code", 0 if finished else code)
            reason = f"exit code {own}: {error['reason']}" if error else ""
            attempt.end(own, after, finished, stop(), log, reason)

    def _progress(self, run: PlannedRun) -> Progress:
        return read_progress(self.study, run)


def _error(study: Path, run: PlannedRun) -> dict[str, Any]:
    """What the process said about a run in the attempt that has just ended."""
    last: dict[str, Any] = {}
    for entry in read_journal(journal_path(study, run)):
        if entry.get("event") == "start":
            last = {}
        elif entry.get("event") == "error":
            last = entry
    return last
