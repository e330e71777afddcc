"""Engines run a study: on this machine, on a Ray cluster, or under SLURM.

They decide where and when `svea.studies.supervise.supervise_run` works on which run, and nothing
else: it writes everything that matters into the study's folder. Each engine is a module with

    require(study, resources)                   refuses what it cannot run, before anything starts
    run_study(study, runs, resources, refresh)  runs the runs, and calls `refresh` meanwhile
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Resources:
    """What one run may use, and how many run at once.

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
