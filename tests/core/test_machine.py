from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
import torch

from svea.core import machine
from svea.core.errors import DeviceError, UserError
from svea.evaluation.play import parallel_environments
from svea.speed import host


def test_what_fits_passes_and_what_does_not_is_refused_with_numbers() -> None:
    machine.require(900, 1000, "the replay buffer", "Use less")
    with pytest.raises(UserError, match=r"the replay needs 2\.00 GB, but only 1\.00 GB .*Use less"):
        machine.require(2 * 10**9, 10**9, "the replay", "Use less")
    with pytest.raises(UserError):
        machine.require(901, 1000, "the replay", "Use less")


def test_unknown_memory_refuses_nothing() -> None:
    machine.require(10**18, None, "the replay", "Use less")


def test_the_smaller_of_machine_and_container_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_meminfo", lambda: 500)
    monkeypatch.setattr(machine, "_cgroup", lambda: 300)
    assert machine.available_bytes() == 300
    monkeypatch.setattr(machine, "_cgroup", lambda: None)
    assert machine.available_bytes() == 500


def test_control_group_limits(tmp_path: Path) -> None:
    assert machine._allowed(tmp_path) is None, "no control group"
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("400\n")
    (tmp_path / "memory.stat").write_text("anon 90\ninactive_file 250\nactive_file 60\n")
    assert machine._allowed(tmp_path) == 850, "cached files are given up when memory is needed"
    (tmp_path / "memory.max").write_text("max\n")
    assert machine._allowed(tmp_path) is None


def in_control_group(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let this process be in the control group slice/job below a folder."""
    own = root / "proc"
    own.write_text("0::/slice/job\n")
    paths = {"/proc/self/cgroup": own, "/sys/fs/cgroup": root}
    monkeypatch.setattr(machine, "Path", lambda path: paths[path])
    return own


def test_the_tightest_control_group_above_a_process_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = in_control_group(tmp_path, monkeypatch)
    for group, limit in ((tmp_path / "slice", 700), (tmp_path / "slice" / "job", 900)):
        group.mkdir()
        (group / "memory.max").write_text(f"{limit}\n")
        (group / "memory.current").write_text("100\n")
        (group / "memory.stat").write_text("inactive_file 0\n")
    assert machine._cgroup() == 600
    own.unlink()
    assert machine._cgroup() is None


def test_limits_of_the_first_version_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = in_control_group(tmp_path, monkeypatch)
    own.write_text("8:pids:/a\n4:memory:/slurm/job\n0::/\n")
    group = tmp_path / "memory/slurm/job"
    group.mkdir(parents=True)
    (group / "memory.limit_in_bytes").write_text("1000\n")
    (group / "memory.usage_in_bytes").write_text("400\n")
    (group / "memory.stat").write_text("inactive_file 1\ntotal_inactive_file 250\n")
    assert machine._cgroup() == 850


LINUX = pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="needs Linux")


@LINUX
@pytest.mark.parametrize(
    ("quota", "expected"),
    [("200000 100000", 2), ("50000 100000", 1), ("max 100000", 64), ("", 64), ("a b c", 64)],
)
def test_cores_are_limited_by_the_quota_of_the_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, expected: int
) -> None:
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: set(range(64)))
    in_control_group(tmp_path, monkeypatch)
    (tmp_path / "cpu.max").write_text(quota)  # a container sees its own group as the root
    assert machine.usable_cores() == expected


@LINUX
def test_the_tightest_quota_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: set(range(64)))
    in_control_group(tmp_path, monkeypatch)
    (tmp_path / "slice" / "job").mkdir(parents=True)
    (tmp_path / "slice" / "cpu.max").write_text("300000 100000\n")
    (tmp_path / "slice" / "job" / "cpu.max").write_text("800000 100000\n")
    assert machine.usable_cores() == 3


@LINUX
def test_training_and_evaluation_keep_to_the_quota(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda _: set(range(16)))
    in_control_group(tmp_path, monkeypatch)
    (tmp_path / "cpu.max").write_text("300000 100000\n")
    assert parallel_environments(0, episodes=30) == 3
    threads: list[int] = []
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(torch, "set_num_threads", threads.append)
    host.leave_a_core()
    assert threads == [2]


def test_this_machine_has_some_memory() -> None:
    available = machine.available_bytes()
    assert available is None or 0 < available < 2**50


def test_a_driver_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(command: list[str], timeout: float, **_: object) -> None:
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(machine.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(machine.subprocess, "run", hang)
    with pytest.raises(DeviceError, match=r"nvidia-smi did not answer in 60 s.*--gpus 0"):
        machine.nvidia_gpus()


def test_commands_to_type_say_how_to_get_svea_where_the_shell_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / ".venv/bin"
    folder.mkdir(parents=True)
    for name in ("activate", "svea"):
        (folder / name).touch(0o755)
    monkeypatch.setattr(machine.sys, "prefix", str(tmp_path / ".venv"))
    monkeypatch.setenv("PATH", "/nowhere")
    assert machine.activation() == f"`source {folder}/activate`, then "
    monkeypatch.chdir(tmp_path)
    assert machine.activation() == "`source .venv/bin/activate`, then "
    monkeypatch.setenv("PATH", str(folder))
    assert machine.activation() == ""
    monkeypatch.setattr(machine.sys, "prefix", str(tmp_path))  # not a virtual environment
    assert machine.activation() == ""
