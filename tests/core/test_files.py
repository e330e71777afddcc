"""Files are whole or absent, and what goes wrong is said with its numbers."""

import json
import os
import shutil
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from svea.core import files
from svea.core.errors import NumericsError, StorageError, UserError


def test_replacing_json_leaves_old_or_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.json"
    files.replace_json(path, {"a": 1})

    def fail(*_: Any) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(files.os, "replace", fail)
    with pytest.raises(StorageError):
        files.replace_json(path, {"a": 2})
    assert json.loads(path.read_text()) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["config.json"]


def test_json_in_files_is_finite() -> None:
    with pytest.raises(NumericsError):
        files.to_json({"loss": float("nan")})


def test_a_failed_read_or_write_names_the_file_and_the_room(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "file"
    with pytest.raises(StorageError, match="missing/file"), files.reading(path):
        path.read_text()
    with pytest.raises(StorageError, match=r"missing/file: .*2\.0 MB needed, .* free"):  # noqa: SIM117
        with files.writing(path, 2_000_000):
            path.write_text("")


def test_what_the_disk_cannot_hold_is_refused_before_it_begins(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2 * 10**9))
    files.require_space(tmp_path / "new", 10**9, "this run")
    with pytest.raises(StorageError, match=r"3\.1 GB .*2\.0 GB"):
        files.require_space(tmp_path / "new", 3 * 10**9, "this run", "Go elsewhere")


def test_a_folder_is_as_large_as_all_files_below_it(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "a").write_bytes(b"12")
    (tmp_path / "below" / "b").write_bytes(b"345")
    assert files.size_of(tmp_path) == 5
    assert files.size_of(tmp_path / "missing") == 0


def test_one_process_at_a_time_works_in_a_folder_if_its_disk_has_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    def region() -> AbstractContextManager[None]:
        return files.locked(tmp_path, UserError("busy"))

    with region(), pytest.raises(UserError, match="busy"), region():
        pass
    with region():
        pass
    monkeypatch.setattr(files.fcntl, "flock", fail)
    with region(), region():
        assert "Operation not supported" in capsys.readouterr().err


def test_a_lock_is_seen_waited_for_and_freed(tmp_path, monkeypatch):
    path = tmp_path / "journal"
    assert not files.is_locked(path)
    first, second = (os.open(path, os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert files.lock(first) and files.is_locked(path)
    assert not files.lock(second)
    monkeypatch.setattr(files.time, "sleep", lambda _: os.close(first))  # the holder ends
    assert files.lock(second, seconds=60)
    os.close(second)
    assert not files.is_locked(path)
