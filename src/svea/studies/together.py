"""The supervisor of several runs that train side by side in one process.

Their process is `svea sweep train STUDY RUN ...`. It names in each run's journal the error that
ended that run, because it has one exit code for all. What remains after training, and a run that
is to be tried again alone, is left to the supervisor of one run.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from svea.errors import SveaError
from svea.files import plain
from svea.studies.folder import ATTEMPTS, is_cancelled, journal_path, log_path, run_folder
from svea.studies.plan import PlannedRun
from svea.studies.state import read_journal, read_progress, read_state
from svea.studies.supervise import (
    APPEND,
    Attempt,
    Execute,
    MustStop,
    Process,
    bring_to_end,
    locked_journal,
    write_entry,
)

Item = TypeVar("Item")


def groups(runs: Sequence[Item], size: int) -> list[Sequence[Item]]:
    """The runs that share a process, in the order of the plan.

    >>> groups("abcde", 2)
    ['ab', 'cd', 'e']
    """
    return [runs[start : start + size] for start in range(0, len(runs), size)]


def supervise_together(
    study: Path,
    runs: Sequence[PlannedRun],
    attempts: int = ATTEMPTS,
    environment: dict[str, str] | None = None,
    execute: Execute | None = None,
    must_stop: MustStop | None = None,
) -> None:
    """Bring several runs to their end. The arguments are those of `supervise_run`."""
    must_stop = must_stop or functools.partial(is_cancelled, study)
    with contextlib.ExitStack() as stack:
        opened = [(run, stack.enter_context(locked_journal(study, run))) for run in runs]
        mine = [(run, journal) for run, journal in opened if journal is not None]
        execute = execute or Process(environment or {}, *(journal for _, journal in mine))
        while not must_stop():
            waiting = [one for one in mine if _is_to_train(study, one[0], attempts)]
            if len(waiting) < 2:
                break
            _train(study, waiting, execute, must_stop)
            refused = [run for run, _ in waiting if read_state(study, run, attempts).refused]
            mine = [one for one in mine if one[0] not in refused]  # another attempt would not help
        for run, journal in mine:
            bring_to_end(study, run, journal, attempts, execute, must_stop)


def record_error(study: Path, run: PlannedRun, error: BaseException) -> None:
    """Say in a run's journal what ended it, from the process that trained it."""
    code = error.exit_code if isinstance(error, SveaError) else 1
    journal = plain.descriptor(journal_path(study, run), APPEND)
    try:
        write_entry(journal, event="error", code=code, reason=str(error))
    finally:
        os.close(journal)


def _is_to_train(study: Path, run: PlannedRun, attempts: int) -> bool:
    state = read_state(study, run, attempts)
    return not state.progress.trained and state.failures < attempts


def _train(
    study: Path,
    runs: Sequence[tuple[PlannedRun, int]],
    execute: Execute,
    must_stop: MustStop,
) -> None:
    """Train runs in one process, and record in each journal how that run ended."""
    names, log = [run.name for run, _ in runs], log_path(study, runs[0][0])
    begun = []
    for run, journal in runs:
        before = read_progress(run_folder(study, run), run)
        begun.append((run, Attempt(journal, before, together=names)))
        if log_path(study, run) != log:
            other = plain.descriptor(log_path(study, run), APPEND)
            line = f"trained together with {names[0]}: its lines are in {log.name}\n"
            os.write(other, line.encode())
            os.close(other)
    code = execute(["sweep", "train", str(study), *names], log, must_stop)
    for run, attempt in begun:
        after, error = read_progress(run_folder(study, run), run), _error(study, run)
        own = error.get("code", 0 if after.trained else code)
        reason = f"exit code {own}: {error['reason']}" if error else ""
        attempt.end(own, after, after.trained, must_stop(), log, reason)


def _error(study: Path, run: PlannedRun) -> dict[str, Any]:
    """What the process said about a run in the attempt that has just ended."""
    last: dict[str, Any] = {}
    for entry in read_journal(journal_path(study, run)):
        if entry.get("event") == "start":
            last = {}
        elif entry.get("event") == "error":
            last = entry
    return last
