"""The engine of one machine: a process per run, several on a GPU where its memory allows."""

from __future__ import annotations

import os
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

from svea.config import Config
from svea.machine import HEADROOM, available_bytes, nvidia_gpus, usable_cores
from svea.runs.footprint import replay_bytes
from svea.studies.engines import Resources
from svea.studies.folder import Study
from svea.studies.plan import PlannedRun
from svea.studies.supervise import supervise_run

# Generous allowances for what a run needs in addition to its replay; --jobs and --gpus override.
RUN_BYTES = 2_000_000_000  # main memory: torch, environments
GPU_BYTES = 4_000_000_000  # GPU memory: context, networks, activations


@dataclass(frozen=True)
class Slot:
    """Room for one run at a time: the variables that its processes see."""

    environment: dict[str, str]
    gpu: str = ""


def require(study: Study, resources: Resources) -> None:
    """Nothing is needed beyond this machine."""


def run_study(
    study: Study, runs: Sequence[PlannedRun], resources: Resources, refresh: Callable[[], None]
) -> None:
    """Supervise runs until each is done or failed, or the study is cancelled."""
    free: queue.SimpleQueue[Slot] = queue.SimpleQueue()
    slots = find_slots([run.config for run in runs], resources)
    for slot in slots:
        free.put(slot)

    def supervise(run: PlannedRun) -> str:
        slot = free.get()
        try:
            return supervise_run(study.folder, run, study.attempts, slot.environment)
        finally:
            free.put(slot)

    with ThreadPoolExecutor(len(slots)) as pool:
        pending = {pool.submit(supervise, run) for run in runs}
        try:
            while pending:
                finished, pending = wait(pending, timeout=1.0)
                for future in finished:
                    future.result()
                refresh()
        except BaseException:
            study.cancel()  # every thread lets its run save and returns
            pool.shutdown(cancel_futures=True)
            raise


def find_slots(configs: Sequence[Config], resources: Resources) -> list[Slot]:
    """How many runs this machine takes at once, and what each may use.

    By default as many as GPUs (by memory), cores and main memory all have room for, at least one.
    """
    cores, gpus = usable_cores(), nvidia_gpus() if resources.gpus else []
    per_run = resources.cpus or 1 + max((config.envs for config in configs), default=1)
    by_cores = max(int(cores // per_run), 1)
    replay = max((replay_bytes(config) for config in configs), default=0)
    memory = available_bytes()
    if gpus and any(config.device in ("auto", "cuda") for config in configs):
        names = [
            name for name, free in gpus for _ in range(_runs_on(free, replay, resources.gpus))
        ] or [gpus[0][0]]
        count = resources.jobs or min(len(names), by_cores)
        # Adjacent names share a GPU; reorder them, so that few runs are spread over many GPUs.
        spread = sorted(range(len(names)), key=lambda i: names[:i].count(names[i]))
        chosen = [names[spread[i % len(names)]] for i in range(count)]
        return [Slot(_threads(cores, count) | {"CUDA_VISIBLE_DEVICES": g}, g) for g in chosen]
    by_memory = int(HEADROOM * memory // (replay + RUN_BYTES)) if memory else by_cores
    count = resources.jobs or max(min(by_cores, by_memory), 1)
    return [Slot(_threads(cores, count)) for _ in range(count)]


def _runs_on(free: int, replay: int, share: float) -> int:
    """How many runs a GPU takes: by the share asked for, else by its free memory."""
    return int(1 / share) if share > 0 else int(HEADROOM * free // (replay + GPU_BYTES))


def _threads(cores: int, count: int) -> dict[str, str]:
    """Threads per process, so that runs do not compete for cores; a user's own setting stays."""
    if "OMP_NUM_THREADS" in os.environ:
        return {}
    if count == 1:
        return {}  # as in `svea train`, which leaves a core to the environments
    return {"OMP_NUM_THREADS": str(max(cores // count, 1))}
