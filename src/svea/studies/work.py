"""Running a study: what is left of it, what cannot be done here, and the engine for the rest."""

from __future__ import annotations

import errno
import functools
import importlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from svea.core.errors import UserError, unknown_name
from svea.core.files import make_folder
from svea.core.machine import usable_cores
from svea.evaluation.episodes import Episodes
from svea.studies.cost import Cost, estimate_cost, require_space, unfinished
from svea.studies.engines import ENGINES, Resources
from svea.studies.engines.local import find_slots
from svea.studies.folder import ATTEMPTS, Study, open_study
from svea.studies.plan import Grid, plan_runs
from svea.studies.state import RunState, export_is_taken, read_states


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
    work = Work.left_of(open_study(Path(out), runs, attempts=attempts), on, resources)
    work.require()
    work.run(refresh)
    return read_states(work.study)


@dataclass(frozen=True)
class Work:
    """What is left of a study, and what does it."""

    study: Study
    on: str
    resources: Resources
    states: list[RunState]
    cost: Cost

    @classmethod
    def left_of(cls, study: Study, on: str = "local", resources: Resources | None = None) -> Work:
        """Read the study's folders, and estimate."""
        resources = resources or Resources()
        if on not in ENGINES:
            raise unknown_name("engine", on, ENGINES)
        resources.check()
        states = read_states(study)
        return cls(study, on, resources, states, _cost(states, on, resources))

    @functools.cached_property
    def due(self) -> list[RunState]:
        """The runs to work on: also failed ones that the same command tries again."""
        going = [state for state in self.states if state.state in ("queued", "running")]
        return going + [state for state in self.states if state.is_tried_again]

    def require(self) -> None:
        """Refuse, before anything starts, what this machine, engine or disk cannot do."""
        require_space(self.study, self.states, self.cost)
        if self.due:
            self.require_engine()
            _require_exports(self.study, self.due)

    def require_engine(self) -> None:
        """Refuse what the engine cannot run."""
        self._engine.require(self.study, self.resources)

    def run(self, refresh: Callable[[], None] = lambda: None) -> list[str] | None:
        """Write the plan and do what is due; returns the ids of jobs that are only submitted."""
        self.study.save()
        runs = [state.run for state in self.due]
        if not runs:
            return []
        submitted: list[str] | None = self._engine.run_study(
            self.study, runs, self.resources, refresh
        )
        return submitted

    @property
    def _engine(self) -> Any:
        return importlib.import_module(f"svea.studies.engines.{self.on}")


def _cost(states: list[RunState], on: str, resources: Resources) -> Cost:
    """The estimate for an engine."""
    at_once = resources.jobs or len(states)
    gpus: float | None = max(resources.gpus, 0.0)
    if on == "local":
        slots = find_slots([state.run.config for state in unfinished(states)], resources)
        at_once, used = len(slots), {slot.gpu for slot in slots if slot.gpu}
        gpus = len(used) / at_once
    elif on == "ray":
        gpus = None if resources.gpus < 0 else gpus  # one, if the cluster has GPUs
        at_once = resources.jobs or max(int(usable_cores() // (resources.cpus or 1)), 1)
    return estimate_cost(states, at_once, gpus, resources.together)


def _require_exports(study: Study, states: list[RunState]) -> None:
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
    if taken := [state.run for state in waiting if export_is_taken(state)]:
        raise UserError(
            f"{taken[0].export_folder} holds something other than the agent of that run, and is "
            f"never overwritten ({len(taken)} such in all); move it away, or name another folder "
            "to export to"
        )
