"""The supervisor of one run: what every engine does with it, on any machine.

`supervise_run` holds the run's lock, starts `svea train` and the commands that follow it as
processes, writes the journal, retries what failed, and stops cleanly when the study is cancelled.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from svea.config.names import own_modules
from svea.core import files, process
from svea.core.errors import StorageError, UserError
from svea.evaluation.episodes import as_words
from svea.studies.folder import ATTEMPTS, is_cancelled, journal_path, log_path, run_folder
from svea.studies.plan import PlannedRun
from svea.studies.state import Progress, missing_end, read_journal, read_progress, read_state

LOCK_SECONDS = 120.0  # an orphaned run may still be saving
GRACE_SECONDS = 600.0  # to save before it is killed: ten gigabytes of replay on slow storage
POLL_SECONDS = 0.5
APPEND = os.O_RDWR | os.O_CREAT | os.O_APPEND

MustStop = Callable[[], bool]
"""Whether the study was cancelled; or, for training, whether its time is up."""
Execute = Callable[[list[str], Path, MustStop], int]
"""Runs a `svea` command given as a list, with its output into a file, until told to stop."""

_children: list[process.Child] = []


def supervise_run(
    study: Path,
    run: PlannedRun,
    attempts: int = ATTEMPTS,
    environment: dict[str, str] | None = None,
    execute: Execute | None = None,
    must_stop: MustStop | None = None,
    time_is_up: MustStop = lambda: False,
) -> str:
    """Bring a run to its end, and return its state then.

    Args:
        study: the study's folder.
        run: which run.
        attempts: failed attempts at training it may have, earlier ones included; and at what
            follows it, in this call.
        environment: variables for its processes, in addition to those of this one.
        execute: what runs a command; default: a process.
        must_stop: default: whether the study was cancelled.
        time_is_up: whether training must stop; what follows it is still done for a run that has
            ended.

    Returns:
        done, stopped (for good), failed, queued (it had to stop), or running (by another process).
    """
    with locked_journal(study, run) as journal:
        if journal is None:
            return "running"
        execute = execute or Process(environment or {}, journal)
        must_stop = must_stop or functools.partial(is_cancelled, study)
        earlier = read_state(study, run).failures_after
        return bring_to_end(study, run, journal, attempts, execute, must_stop, time_is_up, earlier)


def bring_to_end(
    study: Path,
    run: PlannedRun,
    journal: int,
    attempts: int,
    execute: Execute,
    must_stop: MustStop,
    time_is_up: MustStop,
    earlier: int,
) -> str:
    """As `supervise_run`, with the run's journal open and locked.

    `earlier` attempts at what follows training failed before this call: they do not count, because
    a failed export or evaluation costs little to try again, and training is done.
    """
    tried = False
    while not must_stop():
        state = read_state(study, run, attempts)
        if state.progress.over:
            return "done" if state.progress.trained else "stopped"
        ended = state.progress.ended
        failures = state.failures_after - earlier if ended else state.failures
        if failures >= attempts or (state.refused and tried):
            return "failed"
        if time_is_up() and not ended:
            break
        _attempt(study, run, journal, execute, must_stop, time_is_up)
        tried = True
    return "queued"


def stop_children() -> None:
    """Let every process started here save and end, before a batch system ends them."""
    for child in _children:
        child.stop(GRACE_SECONDS)


def _attempt(
    study: Path,
    run: PlannedRun,
    journal: int,
    execute: Execute,
    must_stop: MustStop,
    time_is_up: MustStop,
) -> None:
    """Train, export, evaluate and analyse what is not done yet, and record how it ended.

    What fails after training does not keep the rest from being done: the first failure is recorded.
    """
    log, code, reason, stop = log_path(study, run), 0, "", must_stop
    attempt = Attempt(journal, read_progress(study, run))
    for command in _commands(study, run):
        trains = command[0] == "train"
        stop = either(must_stop, time_is_up) if trains else must_stop
        failed = execute(command, log, stop)
        if failed and not code:
            code, reason = failed, _reason(failed, log)
        if failed and (trains or stop()):
            break
    after = read_progress(study, run)
    attempt.end(code, after, after.over, stop(), log, reason)


def either(one: MustStop, other: MustStop) -> MustStop:
    """Both reasons to stop as one."""
    return lambda: one() or other()


class Attempt:
    """An attempt at a run, as its journal tells it."""

    def __init__(self, journal: int, before: Progress, **about: Any) -> None:
        """Record that it begins."""
        self.journal, self.before, self.began = journal, before, time.time()
        write_entry(
            journal, event="start", host=socket.gethostname(), pid=os.getpid(),
            at=before.decision, saved=before.saved, **about,
        )  # fmt: skip

    def end(
        self, code: int, after: Progress, done: bool, stopped: bool, log: Path, reason: str = ""
    ) -> None:
        """Record how it ended.

        Args:
            code: exit code of its last command.
            after: how far the run is.
            done: whether it did all that it was to do.
            stopped: whether it had to stop.
            log: what it printed.
            reason: why it failed; default: the last line of the log.
        """
        outcome = _outcome(code, done, self.before != after, stopped)
        failed = outcome not in ("done", "stopped")
        write_entry(
            self.journal, event="end", outcome=outcome, code=code, at=after.decision,
            saved=after.saved, ended=after.ended, seconds=round(time.time() - self.began, 3),
            reason=(reason or _reason(code, log)) if failed else "",
        )  # fmt: skip


def _commands(study: Path, run: PlannedRun) -> Iterator[list[str]]:
    """The commands still to run, one after the other."""
    folder = run_folder(study, run)
    if not read_progress(study, run).ended:
        yield run.train_command(folder)
    progress = read_progress(study, run)
    if not progress.ended:
        return
    if progress.missing_export:
        yield ["export", str(folder), str(run.export_folder), "--small", *trusting(run)]
    if progress.missing_modes:
        yield evaluation_command([folder], run, progress.missing_modes)
    for name in progress.missing_analyses:
        yield ["analyze", name, str(folder), *_device(run), *trusting(run)]


def evaluation_command(
    folders: Sequence[Path], run: PlannedRun, modes: Sequence[str], jobs: int = 1
) -> list[str]:
    """The arguments of `svea` that evaluate runs in some modes, as the plan of one of them says."""
    data = run.values.get("data_dir")
    return [
        "eval", *map(str, folders), "--modes", *modes, "--episodes", *as_words(run.episodes, modes),
        *_device(run), *(["--data-dir", data] if data else []),
        *(["--jobs", str(jobs)] if jobs > 1 else []), *trusting(run),
    ]  # fmt: skip


def trusting(*runs: PlannedRun) -> list[str]:
    """The flag that lets other verbs import what the plan names."""
    return ["--trust"] if any(own_modules(run.values) for run in runs) else []


def _device(run: PlannedRun) -> list[str]:
    """The flag that lets other verbs compute where the run was trained."""
    return ["--device", run.values.get("device", "auto")]


def _outcome(code: int, done: bool, advanced: bool, stopped: bool) -> str:
    """How an attempt ended. Stopping without progress is a failure: retrying would never end."""
    if code == 0 and done:
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


class Process:
    """Runs commands as processes that inherit the runs' locks and end with this process."""

    def __init__(self, environment: dict[str, str], *locks: int) -> None:
        """Take further variables, and the descriptors that hold the locks."""
        self.environment, self.locks = environment, locks

    def __call__(self, command: list[str], log: Path, must_stop: MustStop) -> int:
        """Wait for the command's exit code; when it must stop, let it save first."""
        with os.fdopen(files.descriptor(log, APPEND), "ab") as output:
            child = process.start(
                "svea.cli.child:main", *command, with_parent=signal.SIGTERM, output=output,
                variables=self.environment, pass_fds=self.locks,
            )  # fmt: skip
        _children.append(child)
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    return child.wait(POLL_SECONDS)
                if must_stop():
                    return child.stop(GRACE_SECONDS)
        finally:
            _children.remove(child)
            child.stop(GRACE_SECONDS)


@contextlib.contextmanager
def locked_journal(study: Path, run: PlannedRun) -> Iterator[int | None]:
    """The run's journal, open and locked; None where another process keeps it locked.

    What is missing at its end, because the last supervisor was killed, is written first.
    """
    path = journal_path(study, run)
    with files.writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        journal = files.descriptor(path, APPEND)
    try:
        is_ours = files.lock(journal, LOCK_SECONDS)
        entries = read_journal(path) if is_ours else []
        if entries or (is_ours and not run.config.save_replay):  # of others no end is asked for
            progress = read_progress(study, run, is_over=True)
            for end in missing_end(entries, progress.saved):
                write_entry(journal, **end, ended=progress.ended)
        yield journal if is_ours else None
    finally:
        os.close(journal)


def write_entry(journal: int, **entry: Any) -> None:
    """Append one line to a journal."""
    line = json.dumps({"time": round(time.time(), 3), **entry})
    files.append(journal, f"{line}\n".encode())
