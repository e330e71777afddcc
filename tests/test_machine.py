from __future__ import annotations

from pathlib import Path

import pytest

from svea import machine
from svea.errors import UserError


def test_what_fits_passes_and_what_does_not_is_refused_with_numbers() -> None:
    machine.require(900, 1000, "the replay buffer", "Use less")
    with pytest.raises(UserError, match=r"the replay needs 2\.00 GB, but only 1\.00 GB .*Use less"):
        machine.require(2 * 10**9, 10**9, "the replay", "Use less")
    with pytest.raises(UserError):
        machine.require(901, 1000, "the replay", "Use less")


def test_nobody_knows_then_nobody_refuses() -> None:
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


def test_the_tightest_control_group_above_a_process_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "proc"
    own.write_text("0::/slice/job\n")
    places = {"/proc/self/cgroup": own, "/sys/fs/cgroup": tmp_path}
    monkeypatch.setattr(machine, "Path", lambda path: places[path])
    for group, limit in ((tmp_path / "slice", 700), (tmp_path / "slice" / "job", 900)):
        group.mkdir()
        (group / "memory.max").write_text(f"{limit}\n")
        (group / "memory.current").write_text("100\n")
        (group / "memory.stat").write_text("inactive_file 0\n")
    assert machine._cgroup() == 600
    own.unlink()
    assert machine._cgroup() is None


def test_this_machine_has_some_memory() -> None:
    available = machine.available_bytes()
    assert available is None or 0 < available < 2**50
