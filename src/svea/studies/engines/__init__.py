"""Engines run a study: on this machine, on a Ray cluster, or under SLURM.

They decide where and when `svea.studies.supervise.supervise` works on which run, and nothing else:
it writes everything that matters into the study's folder. Each engine is a module with

    require(study, resources)                   refuses what it cannot run, before anything starts
    run_study(study, runs, resources, refresh)  runs the runs, and calls `refresh` meanwhile
"""

from __future__ import annotations

from dataclasses import dataclass

from svea.config import seconds
from svea.core.errors import UserError, between

ENGINES = ("local", "ray", "slurm")
MOST_JOBS, MOST_CORES, MOST_GPUS = 10_000, 10_000, 1_000


@dataclass(frozen=True)
class Resources:
    """What one run may use, and how many run at once; the flags of `svea sweep`."""

    jobs: int = 0
    """Runs at once, or processes with --together; 0: as many as there is room for."""
    together: int = 1
    """Runs side by side in one process, which share a GPU best (local)."""
    cpus: float = 0.0
    """Cores for one run; 0: one to learn and one per environment (local), 1 (ray), 2 (slurm)."""
    gpus: float = -1.0
    """Share of a GPU, e.g. 0.25; below 0: as memory allows (local), 1 if any (ray), 0 (slurm)."""
    address: str = ""
    """HOST:PORT of a Ray cluster, or auto; default: one is started on this machine."""
    time_limit: str = "auto"
    """local: save and stop training this long after the start, e.g. 28m; runs that have ended by
    then are still exported and evaluated, the same command continues the others; auto is none.
    slurm: wall time of one job, whose run resumes in the next; auto is 24h."""
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
        between(1, MOST_JOBS).check("together", self.together)
        if not self.seconds("none"):
            raise UserError(
                f"time_limit is {self.time_limit!r}; allowed: auto, none, or a time of 1s or more, "
                "such as 90s, 9m, 1h30m"
            )
        self.slurm_options()

    def seconds(self, usual: str) -> float:
        """The time limit, where `usual` is the engine's own."""
        return seconds(usual if self.time_limit == "auto" else self.time_limit)

    def refuse_together(self, engine: str) -> None:
        """Say that an engine starts a process for every run."""
        if self.together > 1:
            raise UserError(
                f"together is {self.together}, but --on {engine} starts a process for every run; "
                "leave it out, or use --on local"
            )
