"""Engines run a study: on this machine, on a Ray cluster, or under SLURM.

They decide where and when `svea.studies.supervise.supervise_run` works on which run, and nothing
else: it writes everything that matters into the study's folder. Each engine is a module with

    require(study, resources)                   refuses what it cannot run, before anything starts
    run_study(study, runs, resources, refresh)  runs the runs, and calls `refresh` meanwhile
"""

from __future__ import annotations

from dataclasses import dataclass

from svea.errors import UserError, between

MOST_JOBS, MOST_CORES, MOST_GPUS = 10_000, 10_000, 1_000


@dataclass(frozen=True)
class Resources:
    """What one run may use, and how many run at once; the flags of `svea sweep`."""

    jobs: int = 0
    """Runs at once; 0: as many as there is room for."""
    cpus: float = 0.0
    """Cores for one run; 0: one to learn and one per environment (local), 1 (ray), 2 (slurm)."""
    gpus: float = -1.0
    """Share of a GPU, e.g. 0.25; below 0: as memory allows (local), 1 if any (ray), 0 (slurm)."""
    address: str = ""
    """HOST:PORT of a Ray cluster, or auto; default: one is started on this machine."""
    time_limit: str = "24h"
    """Wall time of one SLURM job; its run saves before the end and resumes in the next job."""
    slurm: tuple[str, ...] = ()
    """Further options of sbatch as name=value, e.g. partition=gpu account=me."""

    def slurm_options(self) -> dict[str, str]:
        """Options of sbatch by name."""
        pairs = [word.partition("=") for word in self.slurm]
        if bad := [name for name, equals, _ in pairs if not equals]:
            raise UserError(f"--slurm is {bad[0]!r}; allowed: name=value, e.g. partition=gpu")
        return {name.lstrip("-"): value for name, _, value in pairs}

    def check(self) -> None:
        """Refuse values that no engine accepts."""
        between(0, MOST_JOBS).check("jobs", self.jobs)
        between(0, MOST_CORES).check("cpus", self.cpus)
        between(-1, MOST_GPUS).check("gpus", self.gpus)
        self.slurm_options()
