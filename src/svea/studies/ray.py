"""The engine of a Ray cluster: runs as tasks that survive the loss of nodes and of the driver.

When a task's node dies, Ray starts it again elsewhere and it resumes from the run's folder; when
the driver dies, Ray ends its tasks (their runs save), and the same command continues. A cluster
started here opens ports on the loopback interface only, shows no dashboard and reports no usage.
"""

import contextlib
import os
import socket
from collections import Counter, deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import cloudpickle

from svea.core.errors import SveaError, UserError
from svea.core.machine import usable_cores
from svea.studies.engines import Resources, Runs, require_package
from svea.studies.folder import Study, is_cancelled
from svea.studies.plan import PlannedRun
from svea.studies.supervise import GRACE_SECONDS, Execute, supervise

CONNECT_SECONDS = 10.0
IN_FLIGHT = 4  # tasks submitted per run that fits at once: enough to keep Ray's workers warm
LOST_TASKS = 10  # how often Ray may lose one run's task


def require(resources: Resources) -> None:
    """Refuse, before anything starts, where Ray is not installed or its cluster not reachable."""
    if resources.time_limit != "auto":
        raise UserError(f"time_limit is {resources.time_limit!r}; --on ray has none: leave it out")
    require_package("ray", "ray")
    address = _address(resources)
    if address in ("", "auto", "local"):
        return
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        raise UserError(f"address is {address!r}; allowed: HOST:PORT of a Ray head node, or auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise UserError(
            f"no Ray cluster answers at {address}: {error}. `ray start --head` prints the address"
        ) from error


def run_study(study: Study, runs: Runs, resources: Resources, refresh: Callable[[], None]) -> None:
    """Supervise runs until each is done or failed, or the study is cancelled."""
    with connection(resources) as ray:
        run_on(ray, study, runs, resources, refresh)


def run_on(
    ray: Any,
    study: Study,
    runs: Runs,
    resources: Resources,
    refresh: Callable[[], None],
    execute: Execute | None = None,
) -> None:
    """Keep a cluster that is connected already supplied with tasks, and collect what ends."""
    cpus, gpus, at_once = _room(ray.cluster_resources(), resources)
    task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=-1)(as_task(os.getcwd()))
    most = resources.jobs or IN_FLIGHT * at_once
    waiting, in_flight, lost = deque(runs), dict[Any, PlannedRun](), Counter[str]()
    try:
        while in_flight or (waiting and not is_cancelled(study.folder)):
            while waiting and len(in_flight) < most and not is_cancelled(study.folder):
                run = waiting.popleft()
                call = partial(supervise, study.folder, [run], study.attempts, execute=execute)
                in_flight[task.remote(cloudpickle.dumps(call))] = run
            ready, _ = ray.wait(list(in_flight), num_returns=1, timeout=1.0)
            if ready:
                ready, _ = ray.wait(list(in_flight), num_returns=len(in_flight), timeout=0)
            for reference in ready:
                run = in_flight.pop(reference)
                if _is_to_be_tried_again(ray, reference, run, lost):
                    waiting.append(run)
            refresh()
    except BaseException:
        study.cancel()  # tasks see it in the folder, on any machine, save, and return
        if in_flight:
            ray.wait(list(in_flight), num_returns=len(in_flight), timeout=GRACE_SECONDS)
        raise


def _is_to_be_tried_again(ray: Any, task: Any, run: PlannedRun, lost: Counter[str]) -> bool:
    """Whether a task ended before its run: another process holds it, or Ray has lost the task."""
    try:
        return bool(ray.get(task) == ["running"])
    except ray.exceptions.RayTaskError as error:
        cause = getattr(error, "cause", None)
        raise (cause if isinstance(cause, SveaError) else error) from error
    except ray.exceptions.RayError:
        lost[run.name] += 1
        if lost[run.name] > LOST_TASKS:
            raise
        return True


def as_task(folder: str) -> Callable[[bytes], Any]:
    """A task that puts a folder, which Ray puts first, last on the path, and makes a pickled call.

    It is itself pickled by value: the path is right before anything of svea is imported.
    """

    def task(pickled: bytes) -> Any:
        import pickle
        import sys

        if folder in sys.path:
            sys.path.remove(folder)
            sys.path.append(folder)
        return pickle.loads(pickled)()

    return task


@contextlib.contextmanager
def connection(resources: Resources) -> Iterator[Any]:
    """Ray, connected to a cluster."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    address = _address(resources)
    options: dict[str, Any] = {"address": address}
    if not address:
        options = {"include_dashboard": False, "num_cpus": usable_cores()}
        # Ray's switch for "no cluster beyond this machine": it binds every port to loopback. Read
        # when ray is imported.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    import ray

    try:
        ray.init(log_to_driver=False, logging_level="error", **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UserError(f"no Ray cluster at {address or 'this machine'}: {error}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _address(resources: Resources) -> str:
    """The cluster's address; empty: one is started on this machine."""
    return resources.address or os.environ.get("RAY_ADDRESS", "")


def _room(total: dict[str, float], resources: Resources) -> tuple[float, float, int]:
    """CPUs and GPUs of one run, and how many the cluster has room for now; nodes come and go.

    A run has the share of a GPU asked for, else a whole one if there is any: Ray hides them from
    others.
    """
    cpus, gpus = resources.cpus or 1.0, resources.gpus
    gpus = float(bool(total.get("GPU"))) if gpus < 0 else gpus
    fits = [total.get("CPU", 1.0) / cpus] + ([total.get("GPU", 0.0) / gpus] if gpus else [])
    if min(fits) < 1:
        raise UserError(
            f"one run asks for {cpus:g} CPUs and {gpus:g} GPUs, but the cluster has "
            f"{total.get('CPU', 0):g} and {total.get('GPU', 0):g}; use smaller --cpus or --gpus"
        )
    return cpus, gpus, int(min(fits))
