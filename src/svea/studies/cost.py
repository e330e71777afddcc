"""What is left of a study: time, GPU hours and disk.

Time comes from the speed of the study's own runs. Before any has been timed it is unknown: a speed
measured on another machine would only look like an estimate.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from svea.core import files
from svea.core.errors import StorageError, UserError
from svea.core.words import duration, plural
from svea.runs import layout
from svea.runs.layout import agent_bytes, folder_bytes, replay_bytes
from svea.studies.folder import Study
from svea.studies.state import RunState
from svea.studies.supervise import groups


@dataclass(frozen=True)
class Cost:
    """Estimates for the runs of a study that are not done."""

    runs: int
    done: int
    decisions: int
    """That the others still have to make."""
    seconds: float | None
    """Until all are done; None where no speed is known."""
    gpu_hours: float | None
    file_bytes: int
    """Of the files in their folders, once all are trained."""
    basis: str
    """Where the speed comes from."""

    def lines(self, limit: float = math.inf) -> list[str]:
        """The estimates in words.

        Args:
            limit: seconds after which each call of the study stops.
        """
        runs, left = plural(self.runs, "run"), plural(self.runs - self.done, "run")
        if self.done == self.runs:
            return [f"{runs}, all of them done"]
        runs += f", {self.done} of them done" if self.done else ""
        if not self.decisions:
            return [runs, f"left ({left}): no training; evaluations and exports are not estimated"]
        time = "unknown" if self.seconds is None else f"about {duration(self.seconds)}"
        if self.seconds is not None and self.seconds > limit:
            time += f", at least {math.ceil(self.seconds / limit):,} calls with this --time-limit"
        hours = "unknown" if self.gpu_hours is None else f"about {self.gpu_hours:,.1f}"
        hours = "none, all runs compute on CPU cores" if self.gpu_hours == 0 else hours
        return [
            f"{runs}, {self.decisions:,} decisions left",
            f"time left ({left}): {time} ({self.basis})",
            f"GPU hours: {hours}",
            f"disk: up to {files.at_most(self.file_bytes) / 1e9:,.1f} GB",
        ]


def estimate_cost(
    states: Sequence[RunState], at_once: int, gpus: float | None = 0.0, together: int = 1
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
    processes = groups(left, together)
    total = None
    if measured:  # updates take nearly all of the time
        each = [decisions_left(group) / len(group) for group in processes]
        total = sum(each) / statistics.fmean(measured)
    hours = None if gpus is None or total is None else total * gpus / 3600
    return Cost(
        runs=len(states),
        done=sum(state.state == "done" for state in states),
        decisions=decisions_left(left),
        seconds=None if total is None else total / max(min(at_once, len(processes)), 1),
        gpu_hours=0.0 if gpus == 0 else hours,
        file_bytes=_file_bytes(left),
        basis=f"mean speed of {plural(len(measured), 'run')} of this study"
        if measured
        else "no run of this study has been timed yet",
    )


def require_space(study: Study, states: Sequence[RunState], cost: Cost) -> None:
    """Refuse a study that the disk cannot hold, before it starts."""
    large = (layout.REPLAY, layout.CHECKPOINTS)
    folders = [state.folder / part for state in unfinished(states) for part in large]
    written = sum(map(files.size_of, folders))
    cure = "Name another --out, or make runs smaller with --set replay=... or save_replay=false"
    try:
        files.require_space(study.folder, cost.file_bytes - written, "the study", cure)
    except StorageError as error:
        raise UserError(str(error)) from error


def measured_speeds(states: Sequence[RunState]) -> list[float]:
    """Decisions per second of the study's own runs, evaluations included."""
    timed = [(decisions_made([state]), state.progress.seconds) for state in states]
    return [decisions / seconds for decisions, seconds in timed if decisions and seconds]


def unfinished(states: Sequence[RunState]) -> list[RunState]:
    """The runs for which something is left to do."""
    return [state for state in states if state.state != "done"]


def decisions_made(states: Sequence[RunState]) -> int:
    """Decisions with an update that these runs have made.

    The updates of a warm-up follow at its end, so its speed is another's; a run that is all warm-up
    has nothing else to be timed by.
    """
    made = [(state.run.config, state.progress.decision) for state in states]
    return sum(at for config, at in made if not at <= config.warmup < config.decisions)


def decisions_left(states: Sequence[RunState]) -> int:
    """Decisions that these runs still have to make, those of a warm-up included."""
    return sum(max(s.run.decisions - decisions_made([s]), 0) for s in states)


def _file_bytes(left: Sequence[RunState]) -> int:
    """Bytes of all files of these runs."""
    configs = [state.run.config for state in left]
    replays = [replay_bytes(config) if config.save_replay else 0 for config in configs]
    return sum(
        folder_bytes(config, replay, agent_bytes(config)) + files.SMALL_FILES
        for config, replay in zip(configs, replays, strict=True)
    )
