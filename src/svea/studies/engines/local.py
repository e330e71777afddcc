"""The engine of one machine: a process per run, or per group of runs that train side by side.

Several processes share a GPU where its memory allows.
"""

from __future__ import annotations

import functools
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

from svea.config import Config
from svea.core.machine import HEADROOM, available_bytes, nvidia_gpus, usable_cores
from svea.runs.layout import replay_bytes
from svea.studies.engines import Resources
from svea.studies.folder import Study, is_cancelled
from svea.studies.plan import PlannedRun
from svea.studies.supervise import either, groups, supervise

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
    """Supervise runs until each is done or failed, the study is cancelled, or its time is up."""
    end = time.monotonic() + resources.seconds("none")
    stopping = threading.Event()  # this driver's own: another may work on the same study
    must_stop = either(functools.partial(is_cancelled, study.folder), stopping.is_set)
    free: queue.SimpleQueue[Slot] = queue.SimpleQueue()
    slots = find_slots([run.config for run in runs], resources)
    for slot in slots:
        free.put(slot)

    def work_on(group: Sequence[PlannedRun]) -> None:
        slot = free.get()
        try:
            supervise(
                study.folder,
                group,
                study.attempts,
                slot.environment,
                must_stop=must_stop,
                time_is_up=lambda: time.monotonic() >= end,
                at_once=_played_at_once(group, len(slots)) if slot.gpu else 1,  # on a CPU: one
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
    cores, gpus = usable_cores(), nvidia_gpus() if resources.gpus else []
    together = resources.together
    environments = together * max((config.envs for config in configs), default=1)
    by_cores = max(int(cores // (resources.cpus * together or 1 + environments)), 1)
    replay = together * max((replay_bytes(config) for config in configs), default=0)
    memory = available_bytes()
    if gpus and any(config.device in ("auto", "cuda") for config in configs):
        names = [
            name
            for name, free in gpus
            for _ in range(_processes_on(free, replay, resources.gpus, together))
        ] or [gpus[0][0]]
        count = resources.jobs or min(len(names), by_cores)
        # Adjacent names share a GPU; reorder them, so that few runs are spread over many GPUs.
        spread = sorted(range(len(names)), key=lambda i: names[:i].count(names[i]))
        chosen = [names[spread[i % len(names)]] for i in range(count)]
        return [Slot(_threads(cores, count) | {"CUDA_VISIBLE_DEVICES": g}, g) for g in chosen]
    by_memory = int(HEADROOM * memory // (replay + RUN_BYTES)) if memory else by_cores
    count = resources.jobs or max(min(by_cores, by_memory), 1)
    return [Slot(_threads(cores, count)) for _ in range(count)]


def _processes_on(free: int, replay: int, share: float, together: int) -> int:
    """How many processes a GPU takes: by the share asked for, else by its free memory."""
    if share > 0:
        return int(1 / (share * together))
    return int(HEADROOM * free // (replay + together * GPU_BYTES))


def _played_at_once(group: Sequence[PlannedRun], slots: int) -> int:
    """How many agents, or modes of them, a group on a GPU has played at once.

    Twelve kept 16 cores busy; groups that run at the same time share them.
    """
    return max(len(group), 3 * usable_cores() // 4 // slots)


def _threads(cores: int, count: int) -> dict[str, str]:
    """Threads per process, so that runs do not compete for cores; a user's own setting stays."""
    if "OMP_NUM_THREADS" in os.environ:
        return {}
    if count == 1:
        return {}  # as in `svea train`, which leaves a core to the environments
    return {"OMP_NUM_THREADS": str(max(cores // count, 1))}
