"""The engine of a SLURM cluster: array jobs by submitit, one element per run.

SLURM warns a job that is preempted or about to reach its time limit; the job lets its run save, and
submitit puts it back into the queue, from where it resumes from the run's folder.
"""

import os
import shlex
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from svea.core import process
from svea.core.errors import UserError
from svea.core.files import read_json, replace_json
from svea.core.machine import ANSWER_SECONDS
from svea.studies.engines import Resources, Runs, require_package
from svea.studies.folder import STUDY_BYTES, Study
from svea.studies.plan import PlannedRun
from svea.studies.supervise import stop_children, supervise

TIME_LIMIT = "24h"  # of one job, unless --time-limit says otherwise
ARRAY = 1000  # elements of an array job; SLURM's MaxArraySize is 1001 unless set otherwise
WARNING_SECONDS = 300  # before the end of a job's time: enough to save ten gigabytes of replay
REQUEUES = 10_000  # resumes after a time limit that submitit allows: each makes progress


@dataclass
class Job:
    """What an array element does, and how it continues after a warning; it is pickled."""

    study: Path
    run: PlannedRun
    attempts: int

    def __call__(self) -> list[str]:
        """Supervise the run."""
        os.environ.pop("PYTHONSAFEPATH", None)  # of this process, not of a user's programs
        return supervise(self.study, [self.run], self.attempts)

    def checkpoint(self) -> Any:
        """Called by submitit on SLURM's warning: let the run save, then requeue this job."""
        from submitit.helpers import DelayedSubmission

        stop_children()
        return DelayedSubmission(self)


def require(resources: Resources) -> None:
    """Refuse, before anything starts, where SLURM or submitit is missing."""
    require_package("submitit", "slurm")
    if not shutil.which("sbatch"):
        raise UserError("no SLURM here: sbatch is not found. Start the study on a login node")
    seconds = resources.seconds(TIME_LIMIT)
    if seconds == float("inf") or seconds < 60:
        raise UserError(f"time_limit is {resources.time_limit!r}; allowed for SLURM: 1m or more")
    if resources.gpus > 0 and resources.gpus != int(resources.gpus):
        raise UserError(f"gpus is {resources.gpus:g}; allowed for SLURM: whole ones, 0, 1, ...")
    _queued()


def run_study(
    study: Study,
    runs: Runs,
    resources: Resources,
    refresh: Callable[[], None],
    cluster: str = "slurm",
) -> list[str]:
    """Submit runs that are not in SLURM's queue yet, and return their job ids at once.

    In tests the cluster is `local`, submitit's executor on this machine.
    """
    executor = make_executor(study, resources, cluster)
    submitted = read_jobs(study.folder)
    queued = _queued() if cluster == "slurm" and submitted else set()
    new = [run for run in runs if submitted.get(run.name) not in queued]
    for start in range(0, len(new), ARRAY):
        part = new[start : start + ARRAY]
        with executor.batch():
            jobs = [executor.submit(Job(study.folder, run, study.attempts)) for run in part]
        submitted |= {run.name: job.job_id for run, job in zip(part, jobs, strict=True)}
        replace_json(study.folder / "slurm" / "jobs.json", submitted)
    refresh()
    return [submitted[run.name] for run in new]


def make_executor(study: Study, resources: Resources, cluster: str = "slurm") -> Any:
    """A submitit executor with a run's resources."""
    import submitit

    seconds, gpus = resources.seconds(TIME_LIMIT), int(max(resources.gpus, 0))
    folder = study.folder / "slurm"
    folder.mkdir(parents=True, exist_ok=True)
    executor = submitit.AutoExecutor(
        folder=folder / "%j", cluster=cluster, slurm_max_num_timeout=REQUEUES
    )
    options: dict[str, Any] = {
        "name": f"svea-{study.folder.name}",
        "gpus_per_node": gpus,
        "timeout_min": max(int(seconds // 60), 1),
        "cpus_per_task": int(resources.cpus) or 2,
    }
    if cluster == "slurm":
        # With these a job imports nothing from the folder it was submitted in.
        path = {"PYTHONPATH": process.environment()["PYTHONPATH"], "PYTHONSAFEPATH": "1"}
        options |= {
            "slurm_array_parallelism": resources.jobs or ARRAY,
            "slurm_signal_delay_s": min(WARNING_SECONDS, int(seconds // 3)),
            "slurm_use_srun": True,
            "slurm_setup": [f"export {k}={shlex.quote(v)}" for k, v in path.items()],
            "slurm_additional_parameters": {"requeue": True, **resources.slurm_options()},
        }
    executor.update_parameters(**options)
    return executor


def read_jobs(study: Path) -> dict[str, str]:
    """The job that each run was last submitted as."""
    path = study / "slurm" / "jobs.json"
    try:
        return dict(read_json(path, STUDY_BYTES))
    except (OSError, ValueError, TypeError):  # lost: the runs' locks still keep jobs apart
        return {}


def cancel(study: Path) -> None:
    """Remove a study's pending jobs from SLURM's queue; running ones see the file `cancel`."""
    mine = set(read_jobs(study).values())
    jobs = sorted(mine & _queued("PENDING")) if mine and shutil.which("squeue") else []
    if jobs:
        subprocess.run(["scancel", *jobs], check=False)


def _queued(states: str = "all") -> set[str]:
    """Ids of pending and running jobs, one per array element."""
    asked = ["squeue", "--noheader", "--array", "--format=%i"]
    asked += [] if states == "all" else [f"--states={states}"]
    done = process.run(asked, ANSWER_SECONDS)
    if done is None or done.returncode:
        late = f"squeue took more than {ANSWER_SECONDS} s. Try again later"
        raise UserError(f"SLURM does not answer: {done.stderr.strip() if done else late}")
    return set(done.stdout.split())
