"""The engine of a Ray cluster: runs as tasks that survive the loss of nodes and of the driver.

A task is `carry_out`. When its node dies, Ray starts it again elsewhere and it resumes from the
run's folder; when the driver dies, Ray ends its tasks (their runs save), and the same command goes
on. A cluster of its own opens ports on the loopback interface only; nothing shows a dashboard or
reports usage.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import socket
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from svea.errors import SveaError, UserError
from svea.machine import usable_cores
from svea.studies import PlannedRun, Study
from svea.studies.engines import Resources
from svea.studies.supervise import GRACE_SECONDS, Perform, carry_out

CONNECT_SECONDS = 10.0
IN_FLIGHT = 4  # tasks handed to Ray per run that can work at once: enough to keep workers warm
LOST_TASKS = 10  # how often Ray may lose one run's task for reasons of its own


def require(study: Study, resources: Resources) -> None:
    """Refuse, before anything starts, where Ray is not installed or its cluster not reachable."""
    if importlib.util.find_spec("ray") is None:
        raise UserError("--on ray needs the package ray: pip install 'svea[ray]'")
    if address := _address(resources):
        _require_reachable(address)


def run(
    study: Study, runs: Sequence[PlannedRun], resources: Resources, look: Callable[[], None]
) -> None:
    """Work at runs until each is done or failed, or the study is cancelled."""
    with connection(resources) as ray:
        run_on(ray, study, runs, resources, look)


def run_on(
    ray: Any,
    study: Study,
    runs: Sequence[PlannedRun],
    resources: Resources,
    look: Callable[[], None],
    perform: Perform | None = None,
) -> None:
    """Work at runs on a cluster that is connected already."""
    cpus, gpus = resources.cpus or 1.0, _gpus_of_a_run(ray, resources)
    task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=-1)(carry_out)
    flying: dict[Any, PlannedRun] = {}
    try:
        most = resources.jobs or IN_FLIGHT * _room(ray, cpus, gpus)
        _schedule(ray, task, study, runs, most, look, perform, flying)
    except BaseException:
        study.cancel()  # tasks see it in the folder, wherever they are, save, and return
        if flying:
            ray.wait(list(flying), num_returns=len(flying), timeout=GRACE_SECONDS)
        raise


def _schedule(
    ray: Any,
    task: Any,
    study: Study,
    runs: Sequence[PlannedRun],
    most: int,
    look: Callable[[], None],
    perform: Perform | None,
    flying: dict[Any, PlannedRun],
) -> None:
    """Keep the cluster supplied with tasks, and take back what ends."""
    waiting, lost = deque(runs), dict.fromkeys((one.name for one in runs), 0)
    cancelled = study.folder / "cancel"
    while flying or (waiting and not cancelled.exists()):
        while waiting and len(flying) < most and not cancelled.exists():
            one = waiting.popleft()
            flying[task.remote(study.folder, one, study.attempts, perform=perform)] = one
        ready, _ = ray.wait(list(flying), num_returns=1, timeout=1.0)
        if ready:
            ready, _ = ray.wait(list(flying), num_returns=len(flying), timeout=0)
        for reference in ready:
            one = flying.pop(reference)
            try:
                if ray.get(reference) == "running":  # somebody else is at it: look again later
                    waiting.append(one)
            except ray.exceptions.RayTaskError as error:
                raise _cause(error) from error
            except ray.exceptions.RayError:
                lost[one.name] += 1
                if lost[one.name] > LOST_TASKS:
                    raise
                waiting.append(one)
        look()


@contextlib.contextmanager
def connection(resources: Resources) -> Iterator[Any]:
    """Ray, connected to a cluster."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    address = _address(resources)
    if not address:
        # Ray's switch for "no cluster beyond this machine": it binds every port to loopback. Read
        # when ray is imported.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    import ray

    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "error"}
    if address:
        options["address"] = address
    else:
        options |= {"include_dashboard": False, "num_cpus": usable_cores()}
    try:
        ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise UserError(f"no Ray cluster at {address or 'this machine'}: {error}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _address(resources: Resources) -> str:
    """Where the cluster is; empty: one is to be started here."""
    return resources.address or os.environ.get("RAY_ADDRESS", "")


def _require_reachable(address: str) -> None:
    """Refuse an address that nobody answers at, within seconds."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if address in ("auto", "local"):
        return
    if not colon or not port.isdigit():
        raise UserError(f"address is {address!r}; allowed: HOST:PORT of a Ray head node, or auto")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        raise UserError(
            f"no Ray cluster answers at {address}: {error}. `ray start --head` on its first "
            "machine prints the address; without --address one is started here"
        ) from error


def _room(ray: Any, cpus: float, gpus: float) -> int:
    """How many runs the cluster has room for at once, now; nodes may come and go."""
    total = ray.cluster_resources()
    rooms = [total.get("CPU", 1.0) / cpus] + ([total.get("GPU", 0.0) / gpus] if gpus else [])
    if min(rooms) < 1:
        raise UserError(
            f"one run asks for {cpus:g} CPUs and {gpus:g} GPUs, but the cluster has "
            f"{total.get('CPU', 0):g} and {total.get('GPU', 0):g}; use smaller --cpus or --gpus"
        )
    return int(min(rooms))


def _gpus_of_a_run(ray: Any, resources: Resources) -> float:
    """As asked for; else a whole GPU where the cluster has any: Ray hides them from other tasks."""
    if resources.gpus >= 0:
        return resources.gpus
    return 1.0 if ray.cluster_resources().get("GPU", 0) else 0.0


def _cause(error: Any) -> BaseException:
    """What a task raised on purpose, else Ray's own account of it."""
    cause = getattr(error, "cause", None)
    return cause if isinstance(cause, SveaError) else error
