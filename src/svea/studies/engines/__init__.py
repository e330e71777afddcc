"""Engines carry out a study: on this machine, on a Ray cluster, or under SLURM.

They decide where and when `svea.studies.supervise.carry_out` works at which run, and nothing
else: all that counts is written by it into the study's folder.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from svea.errors import UserError


@dataclass(frozen=True)
class Resources:
    """What one run may use, and how many work at once.

    Attributes:
        jobs: runs at once; 0: as many as the machine or the cluster has room for.
        cpus: cores for one run; 0: one to learn and one for each environment (local), 1 (ray),
            2 (slurm).
        gpus: share of a GPU for one run; below 0: as its memory allows (local), 1 where there are
            GPUs (ray), none (slurm).
        address: of a Ray cluster; empty: one is started on this machine.
        time_limit: wall time of one SLURM job.
        slurm: further options of SLURM, as sbatch names them.
    """

    jobs: int = 0
    cpus: float = 0.0
    gpus: float = -1.0
    address: str = ""
    time_limit: str = "24h"
    slurm: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class EngineFlags:
    """Where and how a study runs, as flags."""

    on: Literal["local", "ray", "slurm"] = "local"
    """The engine."""
    jobs: int = 0
    """Runs at once; 0: as many as there is room for."""
    cpus: float = 0.0
    """Cores for one run; 0: the engine's choice."""
    gpus: float = -1.0
    """Share of a GPU for one run, e.g. 0.25; 0: none; below 0: the engine's choice."""
    address: str = ""
    """HOST:PORT of a Ray cluster, or auto; default: one is started on this machine."""
    time_limit: str = "24h"
    """Wall time of one SLURM job; its run saves before and resumes in the next."""
    slurm: tuple[str, ...] = ()
    """Further options of sbatch as name=value, e.g. partition=gpu account=me."""
    attempts: int = 3
    """Failing attempts that a run gets."""
    drop_replay: bool = False
    """Remove a run's replay when it is done: less disk, but it can no longer be extended."""
    speed: float = 0.0
    """Decisions per second of one run, for estimates; 0: as measured."""
    dry_run: bool = False
    """List the runs and what they cost; write nothing."""

    def resources(self) -> Resources:
        """What the engines read."""
        if self.jobs < 0 or self.cpus < 0 or self.speed < 0:
            raise UserError("jobs, cpus and speed must not be negative")
        pairs = [word.partition("=") for word in self.slurm]
        if bad := [name for name, equals, _ in pairs if not equals]:
            raise UserError(f"--slurm is {bad[0]!r}; allowed: name=value, e.g. partition=gpu")
        options = {name.lstrip("-"): value for name, _, value in pairs}
        return Resources(self.jobs, self.cpus, self.gpus, self.address, self.time_limit, options)


HERE = EngineFlags()
"""The default: on this machine."""
