"""What a study's child processes do: train, export, evaluate, analyse.

`supervise.Process` starts a process that calls one of these functions. It records in a run's
journal what ended that run, since several runs share its exit code.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import pickle
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from svea.config.names import own_modules
from svea.core import files, importing
from svea.core.errors import Stopped, SveaError, unknown_name
from svea.core.outcome import exit_code, one_line_warning
from svea.core.terminal import note
from svea.studies.folder import APPEND, journal_path, run_folder, write_entry
from svea.studies.plan import PlannedRun, as_flags

Ends = list[tuple[PlannedRun, Exception | Stopped | None]]
"""Runs, each with the error that ended it."""


def train(study: Path, runs: Sequence[PlannedRun]) -> None:
    """Train runs side by side, or continue them."""
    _trust_plan(runs)
    from svea.training import train, train_each

    configs = [dataclasses.replace(run.config, out=str(run_folder(study, run))) for run in runs]
    sys.argv = ["svea", *_by_hand(study, runs)]  # for config.json
    if len(configs) > 1:
        _conclude(study, [*zip(runs, train_each(configs), strict=True)])
    else:
        train(configs[0])


def _by_hand(study: Path, runs: Sequence[PlannedRun]) -> list[str]:
    """What a user types to train the same."""
    if len(runs) > 1:
        return ["sweep", "train", str(study), *(run.name for run in runs)]
    values = dict(runs[0].values)
    task, out = values.pop("task"), str(run_folder(study, runs[0]))
    return ["train", task, *as_flags(values), "--out", out]


def export(study: Path, runs: Sequence[PlannedRun]) -> None:
    """Export the acting parts of runs to where the plan says."""
    _trust_plan(runs)
    from svea.runs.load import export

    ends: Ends = []
    for run in runs:
        try:
            export(run_folder(study, run), run.export_folder, small=True)
            ends.append((run, None))
        except SveaError as error:
            ends.append((run, error))
    _conclude(study, ends)


def evaluate(study: Path, runs: Sequence[PlannedRun], modes: Sequence[str], jobs: int = 1) -> int:
    """Evaluate runs in some modes, as the plan of the first of them says; returns the exit code."""
    _trust_plan(runs)
    from svea.evaluation.requests import Request, Scoring

    first = runs[0]
    data = first.values.get("data_dir") or None
    request = Request(tuple(modes), first.episodes, device=_device(first), data_dir=data, jobs=jobs)
    scoring = Scoring([run_folder(study, run) for run in runs], request)
    scoring.play()
    for problem in scoring.problems:
        note(f"svea: {problem}")
    return scoring.exit_code


def analyse(study: Path, runs: Sequence[PlannedRun], names: Sequence[str]) -> None:
    """Analyse the replay of each run."""
    _trust_plan(runs)
    from svea.evaluation.analysis import Sample, q_gap, q_variance

    analyses: dict[str, tuple[Callable[[Sample], object], int]] = {
        "q-gap": (partial(q_gap, names=["all"]), 4),
        "q-variance": (q_variance, 16),
    }
    for run, name in itertools.product(runs, names):
        if name not in analyses:
            raise unknown_name("analysis", name, analyses)
        function, draws = analyses[name]
        folder, gap = run_folder(study, run), name == "q-gap"
        function(Sample.of(folder, 256, draws, seed=0, device=_device(run), gap=gap))


def record_error(study: Path, run: PlannedRun, error: BaseException) -> None:
    """Write to a run's journal what ended it."""
    code = error.exit_code if isinstance(error, SveaError | Stopped) else 1
    journal = files.descriptor(journal_path(study, run), APPEND)
    try:
        write_entry(journal, event="error", code=code, reason=str(error))
    finally:
        os.close(journal)


def _conclude(study: Path, ends: Ends) -> None:
    """Record what ended each run, and raise the first error."""
    errors = [(run, error) for run, error in ends if error is not None]
    for run, error in errors:
        record_error(study, run, error)
    for _, error in errors:
        raise error


def _trust_plan(runs: Sequence[PlannedRun]) -> None:
    """Import what the plan names: the user gave that to whoever started this process."""
    if any(own_modules(run.values) for run in runs):
        importing.trust(importing.EVERYTHING)


def _device(run: PlannedRun) -> str:
    """Where a run is trained, and then evaluated and analysed."""
    return str(run.values.get("device", "auto"))


def main(call: str, name: str) -> int:
    """Make a call in a process of its own (`supervise.Process`).

    Args:
        call: the descriptor of a file that has it pickled.
        name: of the first run, for lists of processes.
    """
    for number in (signal.SIGUSR1, signal.SIGUSR2):  # by which batch systems warn a whole job
        signal.signal(number, signal.SIG_IGN)  # inherited by the environments' processes too
    importing.count_typed_alone()
    warnings.formatwarning = one_line_warning
    with os.fdopen(int(call), "rb") as file:
        work = pickle.load(file)
    return exit_code(work, name, ends=True)
