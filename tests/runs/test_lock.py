"""One process at a time."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from svea.core.errors import UserError
from svea.runs import lock


def test_two_processes_cannot_train_in_one_folder(tmp_path: Path) -> None:
    with (
        lock.training(tmp_path),
        pytest.raises(UserError, match="another process is training"),
        lock.training(tmp_path),
    ):
        pass
    with lock.training(tmp_path):
        pass


def test_a_disk_without_locks_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(lock.fcntl, "flock", fail)
    with lock.training(tmp_path):
        pass
    assert "cannot be locked: Operation not supported" in capsys.readouterr().err


def test_a_lock_is_seen_waited_for_and_freed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "journal"
    assert not lock.is_locked(path)
    first, second = (os.open(path, os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert lock.acquire(first) and lock.is_locked(path)
    assert not lock.acquire(second)
    monkeypatch.setattr(lock.time, "sleep", lambda _: os.close(first))  # the holder ends
    assert lock.acquire(second, wait_seconds=60)
    os.close(second)
    assert not lock.is_locked(path)
