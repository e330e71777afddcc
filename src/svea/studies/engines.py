"""Engines run a study: on this machine, on a Ray cluster, or under SLURM.

They decide where and when `svea.studies.supervise` works on which run. Each is a module with

    require(resources)                          refuses what it cannot run, before anything starts
    run_study(study, runs, resources, refresh)  runs the runs, and calls `refresh` meanwhile

The one of this machine is here: a process per run, or per group of runs that train side by side.
Several processes share a GPU where its memory allows.
"""

import importlib.util
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

from svea.config import Config, seconds
from svea.core.errors import UserError, between, install_hint
from svea.core.machine import HEADROOM, available_bytes, nvidia_gpus, usable_cores
from svea.runs.layout import replay_bytes
from svea.studies.folder import Study, is_cancelled
from svea.studies.plan import PlannedRun
from svea.studies.supervise import groups, supervise

ENGINES = {
    "local": "svea.studies.engines",
    "ray": "svea.studies.ray",
    "slurm": "svea.studies.slurm",
}
MOST = 10_000  # of what can be asked for
Runs = Sequence[PlannedRun]

# Generous allowances for what a run needs in addition to its replay; --jobs and --gpus override.
RUN_BYTES = 2_000_000_000  # main memory: torch, environments
GPU_BYTES = 4_000_000_000  # GPU memory: context, networks, activations


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

    def check(self, on: str) -> None:
        """Refuse values that no engine accepts, or not this one."""
        for name, least in {"jobs": 0, "cpus": 0, "gpus": -1, "together": 1}.items():
            between(least, MOST).check(name, getattr(self, name))
        if on != "local" and self.together > 1:
            raise UserError(f"together is {self.together}; allowed with --on {on}: 1")
        if not self.seconds("none"):
            raise UserError(f"time_limit is {self.time_limit!r}; allowed: auto, none, 90s, 1h30m")
        self.slurm_options()

    def seconds(self, usual: str) -> float:
        """The time limit, where `usual` is the engine's own."""
        return seconds(usual if self.time_limit == "auto" else self.time_limit)


def require_package(name: str, engine: str) -> None:
    """Refuse an engine whose package is not installed."""
    if importlib.util.find_spec(name) is None:
        raise UserError(f"--on {engine} needs the package {name}: {install_hint(engine)}")


# This machine -------------------------------------------------------------------------------------

Slot = dict[str, str]
"""Room for one process at a time: the variables that it sees."""
GPU = "CUDA_VISIBLE_DEVICES"


def require(resources: Resources) -> None:
    """Nothing is needed beyond this machine."""


def run_study(study: Study, runs: Runs, resources: Resources, refresh: Callable[[], None]) -> None:
    """Supervise runs until each is done or failed, the study is cancelled, or its time is up."""
    end = time.monotonic() + resources.seconds("none")
    stopping = threading.Event()  # this driver's own: another may work on the same study
    free: queue.SimpleQueue[Slot] = queue.SimpleQueue()
    slots = find_slots([run.config for run in runs], resources)
    for slot in slots:
        free.put(slot)

    def work_on(group: Runs) -> None:
        slot = free.get()
        # On a GPU agents are played at once: twelve kept 16 cores busy, which the groups share.
        at_once = max(len(group), 3 * usable_cores() // 4 // len(slots)) if GPU in slot else 1
        try:
            supervise(
                study.folder,
                group,
                study.attempts,
                slot,
                must_stop=lambda: is_cancelled(study.folder) or stopping.is_set(),
                time_is_up=lambda: time.monotonic() >= end,
                at_once=at_once,
            )
        finally:
            free.put(slot)

    with ThreadPoolExecutor(len(slots)) as pool:
        pending = {pool.submit(work_on, group) for group in groups(runs, resources.together)}
        try:
            while pending:
                finished, pending = wait(pending, timeout=1.0)
                for future in finished:
                    future.result()
                refresh()
        except BaseException:
            stopping.set()  # every thread lets its run save and returns
            pool.shutdown(cancel_futures=True)
            raise


def find_slots(configs: Sequence[Config], resources: Resources) -> list[Slot]:
    """How many processes this machine takes at once, and what each may use.

    By default as many as GPUs (by memory), cores and main memory all have room for, at least one.
    """
    cores, gpus, memory = usable_cores(), nvidia_gpus() if resources.gpus else [], available_bytes()
    together, names = resources.together, list[str]()
    environments = together * max((config.envs for config in configs), default=1)
    by_cores = max(int(cores // (resources.cpus * together or 1 + environments)), 1)
    replay = together * max((replay_bytes(config) for config in configs), default=0)
    if gpus and any(config.device in ("auto", "cuda") for config in configs):
        share, needed = resources.gpus * together, replay + together * GPU_BYTES
        fit = {name: int(1 / share if share > 0 else HEADROOM * b // needed) for name, b in gpus}
        # A run for each GPU, then the next: few runs are spread over many GPUs.
        names = [name for turn in range(max(fit.values())) for name in fit if turn < fit[name]]
        names = names or [gpus[0][0]]
        room = len(names)
    else:
        room = int(HEADROOM * memory // (replay + RUN_BYTES)) if memory else by_cores
    count = resources.jobs or max(min(by_cores, room), 1)
    # Runs do not compete for cores. One has them all, as in `svea train`; a user's setting stays.
    is_free = count == 1 or "OMP_NUM_THREADS" in os.environ
    threads = {} if is_free else {"OMP_NUM_THREADS": str(max(cores // count, 1))}
    devices = [{GPU: names[i % room]} if names else {} for i in range(count)]
    return [threads | device for device in devices]
