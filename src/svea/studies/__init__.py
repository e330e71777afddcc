"""Studies: many runs planned at once, supervised on an engine, described by a folder.

`plan` says which runs, `folder` where they lie and how far each is, `supervise` brings runs to
their end in processes, and `engines`, `ray` and `slurm` decide where and when that happens. Here it
is put together: what is left of a study, what that costs, what cannot be done here, and the rest.
Planning needs no torch.
"""

from __future__ import annotations

import functools
import importlib
import math
import statistics
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from svea.core import files
from svea.core.errors import StorageError, UserError, unknown_name
from svea.core.files import make_folder
from svea.core.machine import usable_cores
from svea.core.words import duration, plural
from svea.evaluation import Episodes
from svea.runs import layout
from svea.studies.engines import ENGINES, GPU, Resources, find_slots
from svea.studies.folder import ATTEMPTS, RunState, Study, export_is_taken, open_study, read_states
from svea.studies.folder import STATES as STATES
from svea.studies.folder import read_progress as read_progress
from svea.studies.folder import read_study as read_study
from svea.studies.plan import Grid, plan_runs
from svea.studies.plan import PlannedRun as PlannedRun
from svea.studies.plan import parse_seeds as parse_seeds
from svea.studies.plan import read_study_file as read_study_file
from svea.studies.supervise import groups


def sweep(
    grids: Grid | Iterable[Grid],
    out: str | Path = "runs/sweep",
    *,
    modes: Iterable[str] = (),
    episodes: Episodes = 30,
    export: str | Path = "",
    on: str = "local",
    resources: Resources | None = None,
    attempts: int = ATTEMPTS,
    refresh: Callable[[], None] = lambda: None,
    **options: Any,
) -> list[RunState]:
    """Train every run of some grids, or continue where the same call stopped.

    Args:
        grids: what to combine.
        out: the study's folder.
        modes: to evaluate in after training: modes, or groups of them.
        episodes: of that evaluation, per mode, or by mode; `all`: each of a mode's worlds once.
        export: folder for a small export of each agent once it is trained.
        on: local, ray or slurm, which returns when all runs are in its queue.
        resources: what a run may use, and how many run at once.
        attempts: failed attempts at training after which a run counts as failed.
        refresh: called every second or so while runs are at work.
        **options: of training, for all runs, as `configure` takes them.

    Returns:
        The state of each run: done, failed with a reason, or queued, and its folder.

    Example:
        >>> from svea.studies import Grid
        >>> grid = Grid(["walker_walk"], ["svea", "drq"], seeds="0-4")
        >>> states = sweep(grid, "runs/first", preset="quick")  # doctest: +SKIP
        >>> runs = [one.folder for one in states if one.state == "done"]  # doctest: +SKIP
    """
    chosen = [grids] if isinstance(grids, Grid) else grids
    runs = plan_runs(chosen, options, modes=[*modes], episodes=episodes, export=export)
    study = open_study(Path(out), runs, attempts=attempts)
    work = Work(study, on, resources or Resources())
    work.require()
    work.run(refresh)
    return read_states(study)


@dataclass(frozen=True)
class Work:
    """What is left of a study, and what does it."""

    study: Study
    on: str
    resources: Resources

    def __post_init__(self) -> None:
        """Refuse what no engine can do."""
        if self.on not in ENGINES:
            raise unknown_name("engine", self.on, ENGINES)
        self.resources.check(self.on)

    @functools.cached_property
    def engine(self) -> Any:
        """The engine's module."""
        return importlib.import_module(ENGINES[self.on])

    @functools.cached_property
    def states(self) -> list[RunState]:
        """How far the runs are, by the study's folders."""
        return read_states(self.study)

    @functools.cached_property
    def cost(self) -> Cost:
        """What is left, on this engine."""
        states, asked = self.states, self.resources
        at_once, gpus = asked.jobs or len(states), max(asked.gpus, 0.0)
        if self.on == "local":
            slots = find_slots([state.run.config for state in unfinished(states)], asked)
            at_once, used = len(slots), {slot[GPU] for slot in slots if GPU in slot}
            gpus = len(used) / at_once
        elif self.on == "ray":
            at_once = asked.jobs or max(int(usable_cores() // (asked.cpus or 1)), 1)
        unknown = self.on == "ray" and asked.gpus < 0  # one, if the cluster has GPUs
        return estimate_cost(states, at_once, None if unknown else gpus, asked.together)

    @functools.cached_property
    def due(self) -> list[RunState]:
        """The runs to work on: also failed ones that the same command tries again."""
        going = [state for state in self.states if state.is_active]
        return going + [state for state in self.states if state.is_tried_again]

    def require(self) -> None:
        """Refuse, before anything starts, what this machine, engine or disk cannot do."""
        self.require_space()
        if self.due:
            self.engine.require(self.resources)
            _require_exports(self.study, self.due)

    def require_space(self) -> None:
        """Refuse a study that the disk cannot hold."""
        large = (layout.REPLAY, layout.CHECKPOINTS)
        folders = [state.folder / part for state in unfinished(self.states) for part in large]
        needed = self.cost.file_bytes - sum(map(files.size_of, folders))
        cure = "Name another --out, or make runs smaller with --set replay=... or save_replay=false"
        try:
            files.require_space(self.study.folder, needed, "the study", cure)
        except StorageError as error:
            raise UserError(str(error)) from error

    def run(self, refresh: Callable[[], None] = lambda: None) -> list[str] | None:
        """Write the plan and do what is due; returns the ids of jobs that are only submitted."""
        self.study.save()
        runs = [state.run for state in self.due]
        return self.engine.run_study(self.study, runs, self.resources, refresh) if runs else []


def _require_exports(study: Study, states: list[RunState]) -> None:
    """Refuse a folder that no agent can be exported to, before hours of training and not after."""
    waiting = [state for state in states if state.progress.left["exported"]]
    for folder in {state.run.export for state in waiting}:
        if Path(folder).resolve() == (study.folder / "runs").resolve():
            raise UserError(f"export is {folder!r}, where this study keeps its runs; name another")
        try:
            make_folder(Path(folder))
            tempfile.TemporaryFile(dir=folder).close()
        except OSError as error:
            raise UserError(f"export is {folder!r}, which cannot be written: {error}") from error
    if taken := [state.run for state in waiting if export_is_taken(state)]:
        raise UserError(
            f"{taken[0].export_folder} holds something other than the agent of that run "
            f"({len(taken)} such in all); move it away, or export to another folder"
        )


# What is left ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cost:
    """Estimates for the runs of a study that are not done.

    Time comes from the speed of the study's own runs. Before any has been timed it is unknown: a
    speed measured on another machine would only look like an estimate.
    """

    runs: int
    done: int
    decisions: int  # that the others still have to make
    timed: int  # runs whose speed is known
    seconds: float | None  # until all are done; None where no speed is known
    gpu_hours: float | None
    file_bytes: int  # in their folders, once all are trained

    def lines(self, limit: float = math.inf) -> list[str]:
        """The estimates in words, where each call of the study stops after `limit` seconds."""
        runs = f"{plural(self.runs, 'run')}, {self.done} done, {self.decisions:,} decisions left"
        if not self.decisions:
            return [runs]
        time, hours = "unknown until a run has been timed", "unknown"
        if self.seconds is not None:
            speed = f"the mean speed of {plural(self.timed, 'run')} of this study"
            calls = f", at least {math.ceil(self.seconds / limit):,} calls with this --time-limit"
            time = f"about {duration(self.seconds)} at {speed}"
            time += calls if self.seconds > limit else ""
        if self.gpu_hours is not None:
            hours = f"about {self.gpu_hours:,.1f}" if self.gpu_hours else "none"
        disk = f"up to {files.at_most(self.file_bytes) / 1e9:,.1f} GB"
        return [runs, f"time: {time}", f"GPU hours: {hours}", f"disk: {disk}"]


def estimate_cost(
    states: Sequence[RunState], at_once: int, gpus: float | None = 0.0, together: int = 1
) -> Cost:
    """Estimate what is left of a study with some processes at once.

    Each takes a share of the GPUs (None: unknown before it starts) and has several runs together,
    which end together: the longer have more turns.
    """
    left, speeds = unfinished(states), measured_speeds(states)
    processes = groups(left, together)
    seconds, gpu_hours = None, 0.0 if gpus == 0 else None
    if speeds:  # updates take nearly all of the time
        each = [statistics.fmean(state.to_make for state in group) for group in processes]
        total = sum(each) / statistics.fmean(speeds)
        seconds = total / max(min(at_once, len(processes)), 1)
        gpu_hours = None if gpus is None else total * gpus / 3600
    file_bytes = len(left) * files.SMALL_FILES
    for config in (state.run.config for state in left):
        replay, agent = layout.replay_bytes(config), layout.agent_bytes(config)
        file_bytes += layout.folder_bytes(config, replay, agent)
    done, decisions = len(states) - len(left), sum(state.to_make for state in left)
    return Cost(len(states), done, decisions, len(speeds), seconds, gpu_hours, file_bytes)


def measured_speeds(states: Sequence[RunState]) -> list[float]:
    """Decisions per second of the study's own runs, evaluations included."""
    timed = [(state.made, state.progress.seconds) for state in states]
    return [decisions / seconds for decisions, seconds in timed if decisions and seconds]


def unfinished(states: Sequence[RunState]) -> list[RunState]:
    """The runs for which something is left to do."""
    return [state for state in states if state.state != "done"]
