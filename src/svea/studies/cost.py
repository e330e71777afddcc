"""What is left of a study: time, GPU hours and disk.

Time comes from the speed of the study's own runs. Before any has been timed it is unknown: a speed
measured on another machine would only look like an estimate.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from svea.config import Config
from svea.core import files
from svea.core.errors import StorageError, UserError
from svea.core.words import plural
from svea.runs import layout
from svea.runs.footprint import agent_bytes, folder_bytes, replay_bytes
from svea.studies.folder import Study
from svea.studies.state import RunState
from svea.studies.together import groups


@dataclass(frozen=True)
class Cost:
    """Estimates for the runs of a study that are not done."""

    runs: int
    done: int
    stopped: int
    """For good, before their last decision."""
    updates: int
    """That the others still have to make."""
    seconds: float | None
    """Of their processes, one after the other; None where no speed is known."""
    wall_seconds: float | None
    gpu_hours: float | None
    file_bytes: int
    """Of the files in their folders, once all are trained."""
    basis: str
    """Where the speed comes from."""
    run_seconds: Mapping[str, float] = field(default_factory=dict)
    """How long each of the runs will still take, by its name; empty where no speed is known."""

    @property
    def disk_bytes(self) -> int:
        """What the files take on a disk, at most."""
        return files.at_most(self.file_bytes)


def estimate_cost(
    states: Sequence[RunState],
    at_once: int,
    gpus: float | None = 0.0,
    together: int = 1,
) -> Cost:
    """Estimate what is left of a study.

    Args:
        states: of its runs.
        at_once: how many processes run at the same time.
        gpus: share of a GPU that one process takes; None: unknown before it starts.
        together: runs in one process, which end together: the longer have more turns.
    """
    left = unfinished(states)
    measured = measured_speeds(states)
    updates_per_second = statistics.fmean(measured) if measured else 0.0
    basis = f"mean speed of {plural(len(measured), 'run')} of this study"
    if not measured:
        basis = "no run of this study has been timed yet"
    # Updates take nearly all of the time.
    processes = groups(left, together)
    updates = [updates_left(group) / len(group) for group in processes]
    seconds = sum(updates) / updates_per_second if updates_per_second else None
    return Cost(
        runs=len(states),
        done=sum(state.state == "done" for state in states),
        stopped=sum(state.state == "stopped" for state in states),
        updates=updates_left(left),
        seconds=seconds,
        wall_seconds=None if seconds is None else seconds / max(min(at_once, len(processes)), 1),
        gpu_hours=_gpu_hours(seconds, gpus),
        file_bytes=_file_bytes(left),
        basis=basis,
        run_seconds={
            state.run.name: each / updates_per_second
            for group, each in zip(processes, updates, strict=True)
            for state in group
            if updates_per_second
        },
    )


def require_space(study: Study, states: Sequence[RunState], cost: Cost) -> None:
    """Refuse a study that the disk cannot hold, before it starts."""
    folders = [study.run_folder(state.run) for state in unfinished(states)]
    large = (layout.REPLAY, layout.CHECKPOINTS)
    written = sum(files.size_of(folder / part) for folder in folders for part in large)
    cure = "Name another --out, or make runs smaller with --set replay=... or save_replay=false"
    try:
        files.require_space(study.folder, cost.file_bytes - written, "the study", cure)
    except StorageError as error:
        raise UserError(str(error)) from error


def measured_speeds(states: Sequence[RunState]) -> list[float]:
    """Updates per second of the study's own runs, evaluations included."""
    timed = [(updates_made([state]), state.progress.seconds) for state in states]
    return [updates / seconds for updates, seconds in timed if updates and seconds]


def unfinished(states: Sequence[RunState]) -> list[RunState]:
    """The runs for which something is left to do."""
    return [state for state in states if state.state not in ("done", "stopped")]


def updates_made(states: Sequence[RunState]) -> int:
    """Updates that these runs have made."""
    return sum(_updates_by(s.run.config, s.progress.decision) for s in states)


def updates_left(states: Sequence[RunState]) -> int:
    """Updates that these runs still have to make."""
    going = [(s, s.run.config) for s in states if not s.progress.stopped]
    left = [_updates_by(c, s.run.decisions) - _updates_by(c, s.progress.decision) for s, c in going]
    return sum(max(updates, 0) for updates in left)


def _updates_by(config: Config, decision: int) -> int:
    """Updates by a decision; those of the warm-up follow at its end, and its speed is another's.

    A run that is all warm-up is timed by its decisions: it has nothing else.
    """
    is_warming_up = decision <= config.warmup < config.decisions
    return 0 if is_warming_up else decision


def _file_bytes(left: Sequence[RunState]) -> int:
    """Bytes of all files of these runs."""
    configs = [state.run.config for state in left]
    replays = [replay_bytes(config) if config.save_replay else 0 for config in configs]
    return sum(
        folder_bytes(config, replay, agent_bytes(config)) + files.SMALL_FILES
        for config, replay in zip(configs, replays, strict=True)
    )


def _gpu_hours(seconds: float | None, gpus: float | None) -> float | None:
    """GPU hours; None where the time or the share is unknown."""
    if gpus == 0:
        return 0.0
    return None if gpus is None or seconds is None else seconds * gpus / 3600
