"""What this machine, or the container it is in, has and allows."""

import os
from pathlib import Path

import pytest
import torch

from svea.core import machine
from svea.core.errors import DeviceError, UserError
from svea.evaluation.play import parallel_environments
from svea.speed import device

LINUX = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux")


def test_what_fits_passes_and_what_does_not_is_refused_with_numbers() -> None:
    machine.require(900, 1000, "the replay buffer", "Use less")
    machine.require(10**18, None, "the replay, of an unknown memory", "Use less")
    with pytest.raises(UserError, match=r"2\.00 GB.* 1\.00 GB"):
        machine.require(2 * 10**9, 10**9, "the replay", "Use less")
    with pytest.raises(UserError):
        machine.require(901, 1000, "the replay", "Use less")


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This process is in the control group slice/job below this folder, and has 64 cores."""
    (tmp_path / "slice" / "job").mkdir(parents=True)
    (tmp_path / "own").write_text("8:pids:/a\n4:memory:/slurm/job\n0::/slice/job\n")
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable: 2000 kB\n")
    paths = {"/proc/self/cgroup": "own", "/sys/fs/cgroup": "", "/proc/meminfo": "meminfo"}
    monkeypatch.setattr(machine, "Path", lambda path: tmp_path / paths[path])
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: set(range(64)), raising=False)
    return tmp_path


def limit(group: Path, most: object, cached: int = 0) -> None:
    """A control group of the second version that uses 400 bytes."""
    (group / "memory.max").write_text(f"{most}\n")
    (group / "memory.current").write_text("400\n")
    (group / "memory.stat").write_text(f"anon 90\ninactive_file {cached}\nactive_file 60\n")


@LINUX
def test_free_memory_is_what_machine_and_every_control_group_allow(groups: Path) -> None:
    assert machine.available_bytes() == 2000 * 1024
    limit(groups / "slice", "max")
    assert machine.available_bytes() == 2000 * 1024
    limit(groups / "slice/job", 1000, cached=250)
    assert machine.available_bytes() == 850, "cached files are given up when memory is needed"
    limit(groups / "slice", 1000)
    assert machine.available_bytes() == 600, "the tightest group counts"
    first = groups / "memory/slurm/job"  # of the first version, too
    first.mkdir(parents=True)
    (first / "memory.limit_in_bytes").write_text("1000\n")
    (first / "memory.usage_in_bytes").write_text("700\n")
    (first / "memory.stat").write_text("inactive_file 1\ntotal_inactive_file 250\n")
    assert machine.available_bytes() == 550
    (groups / "own").unlink()
    assert machine.available_bytes() == 2000 * 1024


@LINUX
@pytest.mark.parametrize(
    ("quota", "cores"),
    [("200000 100000", 2), ("50000 100000", 1), ("max 100000", 64), ("", 64), ("a b c", 64)],
)
def test_cores_are_limited_by_the_quota_of_the_container(groups, quota, cores):
    (groups / "cpu.max").write_text(quota)  # a container sees its own group as the root
    (groups / "slice/job/cpu.max").write_text("6400000 100000\n")
    assert machine.usable_cores() == cores


@LINUX
def test_training_and_evaluation_keep_to_the_quota(groups, monkeypatch):
    (groups / "cpu.max").write_text("300000 100000\n")
    assert parallel_environments(0, episodes=30) == 3
    threads: list[int] = []
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    device.leave_a_core()
    assert threads == [2]


def test_a_driver_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(machine.process, "run", lambda *_: None)  # it hangs
    with pytest.raises(DeviceError, match="nvidia-smi"):
        machine.nvidia_gpus()
