"""Files that are whole or absent when written, and plain and bounded when read.

A file is written under another name, synced, and renamed; then its folder is synced. Each step is
one call of module `os`, made here and nowhere else, so that a test can fail or kill every one.

`files.plain` has the reading side, `files.paths` what a user may name.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from svea.core import words
from svea.core.errors import NumericsError, StorageError
from svea.core.files import plain
from svea.core.files.paths import check_path, output_file, output_folder
from svea.core.files.plain import (
    LINE_BYTES,
    open_plain,
    parse_json,
    read_bytes,
    read_json,
    read_lines,
    read_tail,
    verify,
)

__all__ = [
    "LINE_BYTES", "PARTIAL", "Lines", "append_lines", "at_most", "check_path", "finish",
    "make_folder",
    "open_plain", "output_file", "output_folder", "parse_json", "partial", "read_bytes",
    "read_json", "read_lines", "read_tail", "reading",
    "remove", "rename", "replace", "replace_json", "require_space", "seal", "size_of", "sweep",
    "sweep_one", "sync_folder", "to_json", "verify", "write", "write_whole", "writing",
]  # fmt: skip

BLOCK = 2**22  # bytes in one system call
PARTIAL = ".partial"
"""End of the names of files being written; the next writer removes those a killed one left."""

OVERHEAD = 0.02
SMALL_FILES = 10**6
"""Allowance on top of the large files: file-system overhead, as a share of their size, and bytes
for the small files next to them."""

Bytes = bytes | memoryview


def write(path: Path, blocks: Iterable[Bytes]) -> dict[str, Any]:
    """Write a file and sync it.

    Returns:
        Its `size` and `sha256`, computed on the way.
    """
    digest, size = hashlib.sha256(), 0
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666)
    try:
        for block in blocks:
            digest.update(block)
            size += _write_all(descriptor, block)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return {"size": size, "sha256": digest.hexdigest()}


def replace(path: Path, blocks: Iterable[Bytes]) -> dict[str, Any]:
    """Write a file under another name and rename it: readers see the old or the new one, whole."""
    unfinished = partial(path)
    fingerprint = write(unfinished, blocks)
    rename(unfinished, path)
    return fingerprint


def to_json(value: Any) -> bytes:
    """JSON as it is kept in files; it has no NaN and no infinity."""
    try:
        return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()
    except ValueError as error:
        raise NumericsError(f"a number to be saved is not finite: {error}") from error


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, making its folder; a failure is a StorageError.

    What killed processes left of the same file is removed.
    """
    with writing(path, len(content)):
        make_folder(path.parent)
        sweep_one(path)
        replace(path, [content])


def replace_json(path: Path, value: Any) -> None:
    """Write JSON whole or not at all; a failure is a StorageError."""
    text = to_json(value)
    with writing(path, len(text)):
        replace(path, [text])


def finish(source: Path, target: Path) -> None:
    """Sync a file that another program has written, and give it its name."""
    descriptor = os.open(source, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    rename(source, target)


def rename(source: Path, target: Path) -> None:
    """Give a synced file or folder its name, and sync the name too."""
    os.replace(source, target)
    sync_folder(target.parent)


def partial(path: Path) -> Path:
    """The name under which a file or folder is written before it gets its own."""
    return path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")


def sweep(folder: Path, name: str = "") -> None:
    """Remove what a killed process was writing in a folder: everything, or files of a name."""
    for path in folder.glob(f".{name}*{PARTIAL}"):
        remove(path)


def sweep_one(path: Path) -> None:
    """Remove what killed processes left of one file or folder; a live one may be at work on it."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*{PARTIAL}"):
        if not _is_alive(left.name.removesuffix(PARTIAL).rpartition(".")[2]):
            remove(left)


def make_folder(path: Path) -> None:
    """Make a folder and those above it, and sync their names."""
    if not path.is_dir():
        make_folder(path.parent)
        os.mkdir(path)
        sync_folder(path.parent)


def remove(path: Path) -> None:
    """Remove a file, or a folder of files."""
    if path.is_dir() and not path.is_symlink():
        for name in os.listdir(path):
            os.unlink(path / name)
        os.rmdir(path)
    else:
        os.unlink(path)


def sync_folder(path: Path) -> None:
    """Force a folder's entries onto the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Lines:
    """A file that grows by whole lines."""

    def __init__(self, path: Path, offset: int) -> None:
        """Open it and cut off what comes after the offset; a shorter file is not padded."""
        self._path = path
        with writing(path):
            self._descriptor: int | None = plain.descriptor(path, os.O_WRONLY | os.O_CREAT)
            self.offset = min(offset, os.lseek(self._descriptor, 0, os.SEEK_END))
            os.ftruncate(self._descriptor, self.offset)

    def append(self, line: bytes) -> None:
        """Write one line at once, or none of it."""
        assert self._descriptor is not None
        with writing(self._path, len(line)):
            try:
                os.lseek(self._descriptor, self.offset, os.SEEK_SET)
                _write_all(self._descriptor, line)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._descriptor, self.offset)
                raise
        self.offset += len(line)

    def close(self) -> None:
        """End; calling it twice does no harm."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):  # every line has been written: nothing can be lost
                os.close(self._descriptor)
            self._descriptor = None


def append_lines(path: Path, lines: bytes) -> None:
    """Put whole lines at the end of a file, in place of the half line that a killed writer left.

    Processes take turns; a last line that only lacks its end is kept.
    """
    descriptor = plain.descriptor(path, os.O_RDWR | os.O_CREAT)
    try:
        with contextlib.suppress(OSError):  # some network disks have no locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        end = os.lseek(descriptor, 0, os.SEEK_END)
        tail = _last_line(descriptor, end)
        if tail and _is_json(tail):
            lines = b"\n" + lines
        elif tail:
            end -= len(tail)
            os.ftruncate(descriptor, end)
        os.lseek(descriptor, end, os.SEEK_SET)
        try:
            _write_all(descriptor, lines)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, end)
            raise
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def writing(path: Path, needed: int | None = None, reassurance: str = "") -> Iterator[None]:
    """Turn a failed write into a StorageError, and leave nothing half-written.

    Args:
        path: What is being written.
        needed: How many bytes that takes.
        reassurance: A sentence on what is not lost.
    """
    try:
        yield
    except OSError as error:
        with contextlib.suppress(OSError):
            remove(partial(path))
        if isinstance(error, FileExistsError | NotADirectoryError) and (file := _file_on(path)):
            raise StorageError(
                f"cannot write {path}: {file} is a file, and a folder is needed there. "
                f"{reassurance}Move the file away, or run the command in another folder"
            ) from error
        size = "" if needed is None else f"{words.size(needed)} needed, "
        raise StorageError(
            f"cannot write {path}: {error.strerror or error} ({size}{_free(path)}). {reassurance}"
            "Free some space or fix the permissions, then run the command again"
        ) from error


@contextlib.contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn a failed read into a StorageError."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"cannot read {path}: {error.strerror or error}. Fix that, or restore it from a copy"
        ) from error


def require_space(
    path: Path,
    needed: int,
    purpose: str,
    cure: str = "Free some space, or name a folder on another disk with --out",
) -> None:
    """Refuse to begin what cannot be finished.

    Args:
        path: A folder, which need not exist yet.
        needed: Bytes of the large files that will be written below it.
        purpose: What needs them.
        cure: What to do about it.
    """
    needed, free = at_most(needed), shutil.disk_usage(_existing(path)).free
    if needed > free:
        raise StorageError(
            f"{purpose} will need {words.size(needed)} in {path}, where {words.size(free)} are "
            f"free. {cure}"
        )


def at_most(needed: int) -> int:
    """Bytes that a disk needs for large files of this size and the small ones next to them."""
    return round(max(needed, 0) * (1 + OVERHEAD)) + SMALL_FILES


def size_of(folder: Path) -> int:
    """Bytes in a folder's files, subfolders included; 0 where there is none."""
    sizes = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # removed meanwhile
            sizes += path.stat().st_size if path.is_file() else 0
    return sizes


def seal(content: dict[str, Any]) -> str:
    """SHA-256 of a JSON object, to be kept in the object itself: no other file has its hash."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _is_alive(process: str) -> bool:
    """Whether a process of this number runs on this machine."""
    try:
        os.kill(int(process), 0)
    except (ProcessLookupError, ValueError, OverflowError):
        return False
    except OSError:  # it is another user's
        return True
    return True


def _last_line(descriptor: int, end: int) -> bytes:
    """What comes after the last end of a line; at most `LINE_BYTES` are looked at."""
    tail = b""
    while end and len(tail) < LINE_BYTES and b"\n" not in tail:
        size = min(end, 2**16)
        end -= size
        tail = os.pread(descriptor, size, end) + tail
    return tail.rpartition(b"\n")[2]


def _is_json(line: bytes) -> bool:
    try:
        return isinstance(parse_json(line), dict)
    except ValueError:
        return False


def _write_all(descriptor: int, data: Bytes) -> int:
    """Write all of the data; the system may take it in parts."""
    view = memoryview(data)
    done = 0
    while done < len(view):
        done += os.write(descriptor, view[done : done + BLOCK])
    return done


def _existing(path: Path) -> Path:
    """The nearest folder above that exists."""
    return path if path.is_dir() else _existing(path.absolute().parent)


def _file_on(path: Path) -> Path | None:
    """What stands where a path needs a folder."""
    return next((p for p in (path, *path.parents) if os.path.lexists(p) and not p.is_dir()), None)


def _free(path: Path) -> str:
    """How much room there is."""
    try:
        return f"{words.size(shutil.disk_usage(_existing(path)).free)} free there"
    except OSError:
        return "the disk does not say how much is free"
