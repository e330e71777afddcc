"""The engine of a Ray cluster: two nodes on this machine, and faults in mid-study."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_studies import write_finished
from processes import wait_for
from tiny_studies import importable, result, starts, tiny_runs, tiny_study

from svea.core.errors import UserError
from svea.studies import engines as local
from svea.studies import ray, read_states
from svea.studies.engines import Resources

ray_is_there = pytest.mark.skipif(
    not local.importlib.util.find_spec("ray"), reason="ray is not installed"
)


@pytest.mark.parametrize(
    ("address", "words"), [("nowhere", "HOST:PORT"), ("127.0.0.1:{}", "127.0.0.1")]
)
def test_an_unreachable_cluster_is_named_before_anything_starts(address, words, monkeypatch):
    monkeypatch.setattr(local.importlib.util, "find_spec", lambda name: object())
    with socket.socket() as one:  # a port that nothing listens on
        one.bind(("127.0.0.1", 0))
        with pytest.raises(UserError, match=words):
            ray.require(Resources(address=address.format(one.getsockname()[1])))


def test_runs_get_gpus_where_there_are_some_and_are_refused_where_they_can_never_fit():
    plain, big = {"CPU": 8.0}, {"CPU": 8.0, "GPU": 2.0}
    assert ray._room(plain, Resources()) == (1, 0, 8)
    assert ray._room(big, Resources()) == (1, 1, 2)
    assert ray._room(big, Resources(gpus=0.25)) == (1, 0.25, 8)
    assert ray._room(big, Resources(cpus=8)) == (8, 1, 1)
    with pytest.raises(UserError, match="1 GPUs"):
        ray._room(plain, Resources(gpus=1))


class InlineRay:
    """Stands for a connected Ray that runs each task at once and loses the first one."""

    class exceptions:
        RayTaskError = type("RayTaskError", (Exception,), {})
        RayError = type("RayError", (Exception,), {})

    most_in_flight, submitted = 0, 0

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 1.0}

    def remote(self, **options: Any) -> Any:
        assert options == {"num_cpus": 1.0, "num_gpus": 0.0, "max_retries": -1}

        def decorate(function: Any) -> Any:
            def submit(*arguments: Any, **named: Any) -> Any:
                self.submitted += 1
                lost = self.submitted == 1
                return (object(), None if lost else tuple(function(*arguments, **named)))

            return SimpleNamespace(remote=submit)

        return decorate

    def wait(self, references: list[Any], num_returns: int, timeout: float) -> tuple[list, list]:
        self.most_in_flight = max(self.most_in_flight, len(references))
        return references[:num_returns], references[num_returns:]

    def get(self, reference: Any) -> Any:
        if reference[1] is None:
            raise self.exceptions.RayError
        return list(reference[1])


def test_tasks_are_supplied_as_the_cluster_has_room_and_lost_ones_submitted_again(tmp_path):
    study, cluster, refreshed = tiny_study(tmp_path / "study"), InlineRay(), []

    def train(call: Any, log: Path, must_stop: Any) -> int:
        write_finished(study.folder, *call.args[1])
        return 0

    refresh = lambda: refreshed.append(1)  # noqa: E731
    ray.run_on(cluster, study, study.runs, Resources(jobs=2), refresh, execute=train)
    assert [state.state for state in read_states(study)] == ["done"] * 3
    assert cluster.submitted == 4 and cluster.most_in_flight == 2 and refreshed


@contextlib.contextmanager
def two_nodes() -> Iterator[tuple[Any, Any]]:
    """A cluster of a head and another node with one CPU each, on the loopback interface."""
    from ray.cluster_utils import Cluster

    built = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    try:
        yield built, built.add_node(num_cpus=1)
    finally:
        built.shutdown()


@pytest.fixture
def on_loopback(monkeypatch):
    importable(monkeypatch)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # all ports on loopback


@pytest.mark.slow
@ray_is_there
def test_a_study_survives_the_loss_of_a_node_and_of_its_driver(tmp_path, on_loopback):
    """All runs finish, with the results of an undisturbed study."""
    runs = tiny_runs(seeds="0-3", decisions=300, save_every=40, eval_every=150, log_every=50)
    alone = tiny_study(tmp_path / "alone", *runs)
    local.run_study(alone, runs, Resources(jobs=2), lambda: None)
    study = tiny_study(tmp_path / "study", *runs)
    script = (
        "import sys; from pathlib import Path; from svea.cli.sweep import EngineFlags, run_study\n"
        "from svea.studies import read_study\n"
        f"study = read_study(Path({str(study.folder)!r}))\n"
        "sys.exit(run_study(study, EngineFlags(on='ray', address=sys.argv[1])))\n"
    )

    def working() -> int:
        return sum(s.state == "running" and s.progress.decision > 40 for s in read_states(study))

    with two_nodes() as (built, second):

        def drive() -> subprocess.Popen[bytes]:
            return subprocess.Popen([sys.executable, "-c", script, built.address])

        driver = drive()
        wait_for(lambda: working() == 2, 180)
        built.remove_node(second, allow_graceful=False)
        lost = [s.run for s in read_states(study) if s.state != "queued"]
        wait_for(lambda: any(s.state == "done" for s in read_states(study)), 180)
        driver.send_signal(signal.SIGKILL)
        driver.wait()
        assert any(s.state != "done" for s in read_states(study))
        assert drive().wait(400) == 0
    assert [s.state for s in read_states(study)] == ["done"] * 4
    assert [result(study, run) for run in runs] == [result(alone, run) for run in runs]
    assert any(starts(study, run) > 1 for run in lost)


def test_a_cluster_of_its_own_is_on_loopback_and_has_no_dashboard(monkeypatch):
    """Ray's own switch binds every port to the loopback interface."""
    given: dict[str, Any] = {}
    fake = SimpleNamespace(init=lambda **options: given.update(options), shutdown=lambda: None)
    monkeypatch.setitem(sys.modules, "ray", fake)
    for name in ("RAY_ADDRESS", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "RAY_USAGE_STATS_ENABLED"):
        monkeypatch.setenv(name, "")  # so that what is set is taken back
        monkeypatch.delenv(name)
    with ray.connection(Resources()):
        assert os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] == "0"
        assert os.environ["RAY_USAGE_STATS_ENABLED"] == "0"
    assert given["include_dashboard"] is False and "address" not in given
