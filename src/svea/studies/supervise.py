"""The supervisor of runs: what every engine does with them, on any machine.

`supervise` holds the runs' locks, starts a process for each step that is left (`train`, `export`,
`evaluate`, `analyse`), counts attempts in the journals, tries again what failed, and stops cleanly
when the study is cancelled. Several runs share each process.
"""

import contextlib
import dataclasses
import functools
import itertools
import os
import pickle
import signal
import socket
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from svea.config.names import own_modules
from svea.config.presets import as_command
from svea.core import files, importing, process
from svea.core.errors import Stopped, SveaError, UserError
from svea.core.process import exit_code, one_line_warning
from svea.core.terminal import note
from svea.studies.folder import (
    APPEND,
    ATTEMPTS,
    STEPS,
    Progress,
    is_cancelled,
    journal_path,
    read_journal,
    read_progress,
    read_state,
    run_folder,
    write_entry,
)
from svea.studies.plan import PlannedRun

LOCK_SECONDS = 120.0  # an orphaned run may still be saving

MustStop = Callable[[], bool]
"""Whether the study was cancelled; or, for training, whether its time is up."""
Call = Callable[[], int | None]
"""What a process does; returns an exit code, None is 0."""
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
    """Bring runs to their end, side by side; their states, of which queued is one that had to stop.

    Each may have some failed attempts at training, those of earlier calls included, and as many at
    each step that follows, in this call. When the time is up, training stops, and trained runs have
    their further steps still. So many agents, or modes of them, are played `at_once`. `execute` and
    `must_stop` are by default a process, with variables of its `environment`, and `is_cancelled`.
    """
    with contextlib.ExitStack() as stack:
        locks = {run.name: stack.enter_context(_locked_journal(study, run)) for run in runs}
        held = {name: lock for name, lock in locks.items() if lock is not None}
        mine = [run for run in runs if run.name in held]
        execute = execute or functools.partial(
            call_in_process, environment=environment, locks=[*held.values()]
        )
        must_stop = must_stop or functools.partial(is_cancelled, study)
        group = _Group(study, attempts, execute, must_stop, time_is_up, at_once)
        for step in STEPS:
            group.bring_through(step, mine)
    return [read_state(study, run, attempts).state if run in mine else "running" for run in runs]


def groups(runs: Sequence[Any], size: int) -> list[Sequence[Any]]:
    """The runs that share a process, in the order of the plan."""
    return [runs[start : start + size] for start in range(0, len(runs), size)]


def _alike(step: str, run: PlannedRun, progress: Progress) -> str:
    """What is the same for runs that one process does a step for."""
    if step == "evaluated":
        return repr((progress.left[step], run.episodes, run.config.device, run.config.data_dir))
    return run.name if step == "analysed" else ""


@dataclass
class _Group:
    """Runs that share processes: what is done for them in one call."""

    study: Path
    attempts: int
    execute: Execute
    must_stop: MustStop
    time_is_up: MustStop
    at_once: int
    failed: Counter[tuple[str, str]] = field(default_factory=Counter)  # in this call

    def bring_through(self, step: str, runs: Sequence[PlannedRun]) -> None:
        """Do a step for all runs that lack it, and again for those in which it failed."""
        while not self._must_stop(step) and (waiting := self._waiting(step, runs)):
            for members in waiting:
                if not self._must_stop(step):
                    self._attempt(step, members)

    def _waiting(
        self, step: str, runs: Sequence[PlannedRun]
    ) -> list[list[tuple[PlannedRun, Progress]]]:
        """The runs for which a step is to be tried, in groups that one process does it for."""
        alike: dict[str, list[tuple[PlannedRun, Progress]]] = {}
        for run in runs:
            now = read_progress(self.study, run)
            # Failed attempts count: at training those of earlier calls, too.
            earlier = read_state(self.study, run).failures if step == "trained" else 0
            failures = max(earlier, self.failed[step, run.name])
            if now.can(step) and failures < self.attempts:
                alike.setdefault(_alike(step, run, now), []).append((run, now))
        return list(alike.values())

    def _must_stop(self, step: str) -> bool:
        """The study's time is for training, and what follows it is still done."""
        return self.must_stop() or (step == "trained" and self.time_is_up())

    def _attempt(self, step: str, runs: Sequence[tuple[PlannedRun, Progress]]) -> None:
        """Do a step for runs in one process, and record in each journal how it ended."""
        names = [run.name for run, _ in runs]
        log = journal_path(self.study, runs[0][0], ".log")
        for run, _ in runs:
            about = {"host": socket.gethostname(), "pid": os.getpid(), "together": names}
            write_entry(self.study, run, event="start", **about)
            if run.name != names[0]:
                own = files.descriptor(journal_path(self.study, run, ".log"), APPEND)
                with os.fdopen(own, "a") as notes:
                    notes.write(f"{step} together with {names[0]}: its lines are in {log.name}\n")
        left = runs[0][1].left[step]  # by all of them
        jobs = min(self.at_once, len(runs) * len(left)) if len(runs) > 1 else 1
        further = {"evaluated": (left, jobs), "analysed": (left,)}.get(step, ())
        call = functools.partial(DO[step], self.study, [run for run, _ in runs], *further)
        code = self.execute(call, log, functools.partial(self._must_stop, step))
        stopped = self._must_stop(step)
        for run, before in runs:
            self._conclude(step, run, before, code, stopped, log)

    def _conclude(
        self, step: str, run: PlannedRun, before: Progress, code: int, stopped: bool, log: Path
    ) -> None:
        """Record how an attempt ended for a run, and count it if it failed."""
        after = read_progress(self.study, run)
        last = read_journal(journal_path(self.study, run))[-1]
        has_said = last["event"] == "error"  # the process has recorded it
        code = last["code"] if has_said else code
        asked = code in (0, 128 + signal.SIGINT, 128 + signal.SIGTERM)
        outcome, reason = "failed", ""
        if not after.can(step):
            outcome = "done"
        elif code == UserError.exit_code:
            outcome = "refused"
        elif stopped or (asked and before != after):  # without progress trying would never end
            outcome = "stopped"
        if outcome in ("failed", "refused"):
            why = f"exit code {code}: {last['reason'] if has_said else _last_words(log)}"
            reason = f"ended by {process.how_it_ended(code)}" if code < 0 else why
        end = {"step": step, "outcome": outcome, "code": code, "reason": reason}
        write_entry(self.study, run, event="end", **end)
        self.failed[step, run.name] += {"failed": 1, "refused": self.attempts}.get(outcome, 0)


def _last_words(log: Path) -> str:
    """The last line that a process printed."""
    lines = (line.decode(errors="replace").strip() for line in reversed(files.last_lines(log)))
    return next(filter(None, lines), "")


@contextlib.contextmanager
def _locked_journal(study: Path, run: PlannedRun) -> Iterator[int | None]:
    """The run's journal, open and locked; None where another process keeps it locked."""
    path = journal_path(study, run)
    with files.writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        opened = files.descriptor(path, APPEND)
    with files.closing(opened) as journal:
        yield journal if files.lock(journal, LOCK_SECONDS) else None


# Processes ----------------------------------------------------------------------------------------

GRACE_SECONDS = 600.0  # to save before it is killed: ten gigabytes of replay on slow storage
POLL_SECONDS = 0.5
_children: list[process.Child] = []


def stop_children() -> None:
    """Let every process started here save and end, before a batch system ends them."""
    for started in _children:
        started.stop(GRACE_SECONDS)


def call_in_process(
    call: Call,
    log: Path,
    must_stop: MustStop,
    environment: dict[str, str] | None = None,
    locks: Sequence[int] = (),
) -> int:
    """Wait for the exit code of a call in a process of its own; when it must stop, it saves first.

    It has further variables of the environment, inherits the runs' locks, and ends with this one.
    """
    opened = os.fdopen(files.descriptor(log, APPEND), "ab")
    with opened as output, tempfile.TemporaryFile() as sent:
        pickle.dump(call, sent)
        sent.seek(0)
        started = process.start(
            "svea.studies.supervise:main", sent.fileno(), log.stem, with_parent=signal.SIGTERM,
            output=output, variables=environment, pass_fds=[*locks, sent.fileno()],
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


def main(call: str, name: str) -> int:
    """Its other end: the call lies pickled in this descriptor; lists of processes show the name."""
    for number in (signal.SIGUSR1, signal.SIGUSR2):  # by which batch systems warn a whole job
        signal.signal(number, signal.SIG_IGN)  # inherited by the environments' processes too
    importing.count_typed_alone()
    warnings.formatwarning = one_line_warning
    with os.fdopen(int(call), "rb") as file:
        work = pickle.load(file)
    return exit_code(work, name, ends=True)


# What they do -------------------------------------------------------------------------------------


def train(study: Path, runs: Sequence[PlannedRun]) -> None:
    """Train runs side by side, or continue them."""
    _trust_plan(runs)
    from svea.training import train, train_each

    configs = [dataclasses.replace(run.config, out=str(run_folder(study, run))) for run in runs]
    # What a user types to train the same is kept in config.json.
    pairs = zip(runs, configs, strict=True)
    commands = [as_command({**run.values, "out": config.out}) for run, config in pairs]
    if len(configs) > 1:
        return _conclude(study, zip(runs, train_each(configs, commands), strict=True))
    sys.argv = commands[0]
    try:
        train(configs[0])
    finally:
        write_entry(study, runs[0], event="used", processor_seconds=sum(os.times()[:4]))


def export(study: Path, runs: Sequence[PlannedRun]) -> None:
    """Export the acting parts of runs to where the plan says."""
    _trust_plan(runs)
    from svea.runs.load import export

    ends: list[tuple[PlannedRun, Exception]] = []
    for run in runs:
        try:
            export(run_folder(study, run), run.export_folder, small=True)
        except SveaError as error:
            ends.append((run, error))
    _conclude(study, ends)


def evaluate(study: Path, runs: Sequence[PlannedRun], modes: Sequence[str], jobs: int = 1) -> int:
    """Evaluate runs in some modes, as the plan of the first of them says; returns the exit code."""
    _trust_plan(runs)
    from svea.evaluation.requests import Request, Scoring

    config, data_dir = runs[0].config, runs[0].config.data_dir or None
    request = Request(
        tuple(modes), runs[0].episodes, device=config.device, data_dir=data_dir, jobs=jobs
    )
    scoring = Scoring([run_folder(study, run) for run in runs], request)
    scoring.play()
    for problem in scoring.problems:
        note(f"svea: {problem}")
    return scoring.exit_code


def analyse(study: Path, runs: Sequence[PlannedRun], names: Sequence[str]) -> None:
    """Analyse the replay of each run."""
    _trust_plan(runs)
    from svea.evaluation.analysis import Sample, q_gap, q_variance

    for run, name in itertools.product(runs, names):
        folder, device, gap = run_folder(study, run), run.config.device, name == "q-gap"
        sample = Sample.of(folder, 256, 4 if gap else 16, seed=0, device=device, gap=gap)
        q_gap(sample, names=["all"]) if gap else q_variance(sample)


def _conclude(study: Path, ends: Iterable[tuple[PlannedRun, Exception | Stopped | None]]) -> None:
    """Record in the journals what ended which run, as they share an exit code; raise the first."""
    errors = [(run, error) for run, error in ends if error is not None]
    for run, error in errors:
        code = error.exit_code if isinstance(error, SveaError | Stopped) else 1
        write_entry(study, run, event="error", code=code, reason=str(error))
    for _, error in errors:
        raise error


def _trust_plan(runs: Sequence[PlannedRun]) -> None:
    """Import what the plan names: the user gave that to whoever started this process."""
    if any(own_modules(run.values) for run in runs):
        importing.trust(importing.EVERYTHING)


DO: dict[str, Callable[..., int | None]] = {
    "trained": train,
    "exported": export,
    "evaluated": evaluate,
    "analysed": analyse,
}
"""What does each of `STEPS` for some runs of a study."""
