"""The supervisor of runs: what every engine does with them, on any machine.

`supervise` holds the runs' locks, starts a process for each thing that is to be done (to train, to
export, to evaluate, to analyse), counts attempts in the journals, tries again what failed, and
stops cleanly when the study is cancelled. Several runs share each process.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import signal
import socket
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from svea.core import files, process
from svea.core.errors import StorageError, UserError
from svea.studies import child
from svea.studies.folder import (
    APPEND,
    ATTEMPTS,
    is_cancelled,
    journal_path,
    log_path,
    write_entry,
)
from svea.studies.plan import PlannedRun
from svea.studies.state import Progress, read_journal, read_progress, read_state

LOCK_SECONDS = 120.0  # an orphaned run may still be saving

MustStop = Callable[[], bool]
"""Whether the study was cancelled; or, for training, whether its time is up."""
Call = Callable[[], int | None]
"""A function of `child` with its arguments; returns an exit code, None is 0."""
Execute = Callable[[Call, Path, MustStop], int]
"""Calls something in a process, with its output into a file, until it has to stop."""


def supervise(
    study: Path,
    runs: Sequence[PlannedRun],
    attempts: int = ATTEMPTS,
    environment: dict[str, str] | None = None,
    execute: Execute | None = None,
    must_stop: MustStop | None = None,
    time_is_up: MustStop = lambda: False,
    at_once: int = 1,
) -> list[str]:
    """Bring runs to their end, side by side, and return the state of each.

    Args:
        study: the study's folder.
        runs: which runs.
        attempts: failed attempts at training each may have, earlier ones included; and at each
            thing that follows it, in this call.
        environment: variables for their processes, in addition to those of this one.
        execute: what calls a function; default: a process.
        must_stop: default: whether the study was cancelled.
        time_is_up: whether training must stop; what follows it is still done for runs that are
            trained.
        at_once: agents, or modes of them, that are played at the same time.

    Returns:
        done, failed, queued (it had to stop), or running (by another process).
    """
    must_stop = must_stop or functools.partial(is_cancelled, study)
    with contextlib.ExitStack() as stack:
        journals = {run.name: stack.enter_context(_locked_journal(study, run)) for run in runs}
        mine = {name: journal for name, journal in journals.items() if journal is not None}
        execute = execute or Process(environment or {}, *mine.values())
        group = _Group(study, mine, attempts, execute, must_stop, time_is_up, at_once)
        for step in STEPS:
            group.bring_through(step, [run for run in runs if run.name in mine])
    return [
        read_state(study, run, attempts).state if run.name in mine else "running" for run in runs
    ]


def groups(runs: Sequence[Any], size: int) -> list[Sequence[Any]]:
    """The runs that share a process, in the order of the plan.

    >>> groups("abcde", 2)
    ['ab', 'cd', 'e']
    """
    return [runs[start : start + size] for start in range(0, len(runs), size)]


def either(one: MustStop, other: MustStop) -> MustStop:
    """Both reasons to stop as one."""
    return lambda: one() or other()


STEPS = ("trained", "exported", "evaluated", "analysed")
"""What is done for a run, one after the other."""


def is_left(step: str, progress: Progress) -> bool:
    """Whether a step is still to be done, and can be."""
    missing = {
        "exported": progress.missing_export,
        "evaluated": progress.missing_modes,
        "analysed": progress.missing_analyses,
    }
    return progress.trained and bool(missing[step]) if step in missing else not progress.trained


def _call(
    step: str, study: Path, runs: Sequence[PlannedRun], progress: Progress, at_once: int
) -> Call:
    """What does a step for runs that lack the same."""
    if step == "evaluated":
        jobs = min(at_once, len(runs) * len(progress.missing_modes)) if len(runs) > 1 else 1
        return functools.partial(child.evaluate, study, runs, progress.missing_modes, jobs)
    if step == "analysed":
        return functools.partial(child.analyse, study, runs, progress.missing_analyses)
    return functools.partial(child.train if step == "trained" else child.export, study, runs)


def _alike(step: str, run: PlannedRun, progress: Progress) -> str:
    """What is the same for runs that one process does a step for."""
    if step == "evaluated":
        where = [run.values.get(name) for name in ("device", "data_dir")]
        return repr((progress.missing_modes, run.episodes, where))
    return run.name if step == "analysed" else ""


@dataclass
class _Group:
    """Runs that share processes: what is done for them in one call."""

    study: Path
    journals: dict[str, int]
    """By the runs' names, open and locked."""
    attempts: int
    execute: Execute
    must_stop: MustStop
    time_is_up: MustStop
    at_once: int
    failed: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often a step failed in this call, by step and run."""

    def bring_through(self, step: str, runs: Sequence[PlannedRun]) -> None:
        """Do a step for all runs that lack it, and again for those in which it failed."""
        while waiting := self._waiting(step, runs):
            alike: dict[str, list[tuple[PlannedRun, Progress]]] = {}
            for run, progress in waiting:
                alike.setdefault(_alike(step, run, progress), []).append((run, progress))
            for members in alike.values():
                if not self._stop(step)():
                    self._attempt(step, members)

    def _waiting(self, step: str, runs: Sequence[PlannedRun]) -> list[tuple[PlannedRun, Progress]]:
        """The runs for which a step is to be tried; none where it must not be begun."""
        if self._stop(step)():
            return []
        progress = [(run, read_progress(self.study, run)) for run in runs]
        return [
            (run, now)
            for run, now in progress
            if is_left(step, now) and self._failures(step, run) < self.attempts
        ]

    def _failures(self, step: str, run: PlannedRun) -> int:
        """Failed attempts that count: at training those of earlier calls, too."""
        here = self.failed[step, run.name]
        if step != "trained":
            return here
        return max(here, read_state(self.study, run).failures)

    def _stop(self, step: str) -> MustStop:
        """When to stop: the study's time is for training, and what follows it is still done."""
        return either(self.must_stop, self.time_is_up) if step == "trained" else self.must_stop

    def _attempt(self, step: str, runs: Sequence[tuple[PlannedRun, Progress]]) -> None:
        """Do a step for runs in one process, and record in each journal how it ended."""
        names = [run.name for run, _ in runs]
        log = log_path(self.study, runs[0][0])
        for run, _ in runs:
            about = {"host": socket.gethostname(), "pid": os.getpid(), "together": names}
            write_entry(self.journals[run.name], event="start", **about)
            if run.name != names[0]:
                _note_log(log_path(self.study, run), f"{step} together with {names[0]}", log)
        call = _call(step, self.study, [run for run, _ in runs], runs[0][1], self.at_once)
        code = self.execute(call, log, stop := self._stop(step))
        for run, before in runs:
            self._conclude(step, run, before, code, stop(), log)

    def _conclude(
        self, step: str, run: PlannedRun, before: Progress, code: int, stopped: bool, log: Path
    ) -> None:
        """Record how an attempt ended for a run, and count it if it failed."""
        after = read_progress(self.study, run)
        error = _error(self.study, run)
        if error:
            code, reason = error["code"], f"exit code {error['code']}: {error['reason']}"
        else:
            reason = _reason(code, log)
        outcome = _outcome(code, not is_left(step, after), before != after, stopped)
        failed = outcome in ("failed", "refused")
        write_entry(
            self.journals[run.name], event="end", step=step, outcome=outcome, code=code,
            ended=after.trained, reason=reason if failed else "",
        )  # fmt: skip
        self.failed[step, run.name] += {"failed": 1, "refused": self.attempts}.get(outcome, 0)


def _outcome(code: int, done: bool, advanced: bool, stopped: bool) -> str:
    """How an attempt ended. Stopping without progress is a failure: retrying would never end."""
    if done:
        return "done"
    if code == UserError.exit_code:
        return "refused"
    asked = code in (0, 128 + signal.SIGINT, 128 + signal.SIGTERM)
    return "stopped" if stopped or (asked and advanced) else "failed"


def _reason(code: int, log: Path) -> str:
    """Why an attempt failed: the last line it printed, or what ended it."""
    if code < 0:
        return f"ended by {process.how_it_ended(code)}"
    with contextlib.suppress(OSError, StorageError):
        lines = files.read_tail(log, 2000).decode(errors="replace").strip().splitlines()
        return f"exit code {code}: {lines[-1] if lines else ''}"
    return f"exit code {code}"


def _error(study: Path, run: PlannedRun) -> dict[str, Any]:
    """What the process recorded about a run in the attempt that has just ended."""
    last = read_journal(journal_path(study, run))[-1:]
    return last[0] if last and last[0].get("event") == "error" else {}


def _note_log(path: Path, what: str, log: Path) -> None:
    """Say in a run's log whose log has its lines."""
    note = files.descriptor(path, APPEND)
    os.write(note, f"{what}: its lines are in {log.name}\n".encode())
    os.close(note)


@contextlib.contextmanager
def _locked_journal(study: Path, run: PlannedRun) -> Iterator[int | None]:
    """The run's journal, open and locked; None where another process keeps it locked."""
    path = journal_path(study, run)
    with files.writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        journal = files.descriptor(path, APPEND)
    try:
        yield journal if files.lock(journal, LOCK_SECONDS) else None
    finally:
        os.close(journal)


# Processes ----------------------------------------------------------------------------------------

GRACE_SECONDS = 600.0  # to save before it is killed: ten gigabytes of replay on slow storage
POLL_SECONDS = 0.5
_children: list[process.Child] = []


def stop_children() -> None:
    """Let every process started here save and end, before a batch system ends them."""
    for started in _children:
        started.stop(GRACE_SECONDS)


class Process:
    """Calls functions in processes that inherit the runs' locks and end with this process."""

    def __init__(self, environment: dict[str, str], *locks: int) -> None:
        """Take further variables, and the descriptors that hold the locks."""
        self.environment, self.locks = environment, locks

    def __call__(self, call: Call, log: Path, must_stop: MustStop) -> int:
        """Wait for the exit code of a call; when it must stop, let it save first."""
        opened = os.fdopen(files.descriptor(log, APPEND), "ab")
        with opened as output, tempfile.TemporaryFile() as sent:
            pickle.dump(call, sent)
            sent.seek(0)
            started = process.start(
                "svea.studies.child:main", sent.fileno(), log.stem, with_parent=signal.SIGTERM,
                output=output, variables=self.environment,
                pass_fds=[*self.locks, sent.fileno()],
            )  # fmt: skip
        _children.append(started)
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return started.wait(POLL_SECONDS)
                if must_stop():
                    return started.stop(GRACE_SECONDS)
        finally:
            _children.remove(started)
            started.stop(GRACE_SECONDS)
