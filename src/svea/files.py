"""Files that are whole or absent: what a run writes goes through these few functions.

A file is written beside its place, synced, and renamed; then the folder is synced. Each step is one
call of module `os`, made here and nowhere else, so that a test can fail or kill every one of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from svea.errors import StorageError

BLOCK = 2**22  # bytes in one system call
PARTIAL = ".partial"
"""How names of files end that are being written; whoever writes next removes old ones."""

OVERHEAD = 0.02
SMALL_FILES = 10**6
"""What a forecast of large files leaves out: file systems round up and keep books of their own, as
a share; and the bytes of configuration, manifests and incidents."""

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
    """Write a file beside its place and rename it: readers see the old or the new one, whole."""
    beside = partial(path)
    fingerprint = write(beside, blocks)
    rename(beside, path)
    return fingerprint


def rename(source: Path, target: Path) -> None:
    """Give a synced file or folder its name, and make the name last."""
    os.replace(source, target)
    sync_folder(target.parent)


def partial(path: Path) -> Path:
    """Where a file or folder is written before it takes its place."""
    return path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")


def sweep(folder: Path) -> None:
    """Remove what a killed process was writing in a folder."""
    for path in folder.glob(f".*{PARTIAL}"):
        remove(path)


def make_folder(path: Path) -> None:
    """Make a folder and those above it, and make their names last."""
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
        """Open it and forget what comes after the offset; a shorter file is not padded."""
        self._path = path
        with errors(path):
            self._descriptor: int | None = os.open(path, os.O_WRONLY | os.O_CREAT, 0o666)
            self.offset = min(offset, os.lseek(self._descriptor, 0, os.SEEK_END))
            os.ftruncate(self._descriptor, self.offset)

    def append(self, line: bytes) -> None:
        """Write one line at once, or none of it."""
        assert self._descriptor is not None
        with errors(self._path, len(line)):
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


@contextlib.contextmanager
def errors(path: Path, needed: int | None = None, comfort: str = "") -> Iterator[None]:
    """Turn the system's word on a failed write into ours, and leave nothing half-written.

    Args:
        path: What is being written.
        needed: How many bytes that takes.
        comfort: A sentence on what is not lost.
    """
    try:
        yield
    except OSError as error:
        with contextlib.suppress(OSError):
            remove(partial(path))
        size = "" if needed is None else f"{_in_words(needed)} needed, "
        raise StorageError(
            f"cannot write {path}: {error.strerror or error} ({size}{_free(path)}). {comfort}"
            "Make room or mend the permissions, then run the command again"
        ) from error


def require_space(path: Path, needed: int, purpose: str) -> None:
    """Refuse to begin what cannot be finished.

    Args:
        path: A folder, which need not exist yet.
        needed: Bytes of the large files that will be written below it.
        purpose: What needs them.
    """
    needed, free = at_most(needed), shutil.disk_usage(_existing(path)).free
    if needed > free:
        raise StorageError(
            f"{purpose} will need {_in_words(needed)} in {path}, where {_in_words(free)} are free. "
            "Make room, or name a folder on another disk with --out"
        )


def at_most(needed: int) -> int:
    """Bytes that a disk needs for large files of this size and the small ones beside them."""
    return round(max(needed, 0) * (1 + OVERHEAD)) + SMALL_FILES


def size_of(folder: Path) -> int:
    """Bytes in a folder's files, subfolders included; 0 where there is none."""
    sizes = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # removed meanwhile
            sizes += path.stat().st_size if path.is_file() else 0
    return sizes


def seal(content: dict[str, Any]) -> str:
    """SHA-256 of a JSON object, to be kept in it: no other file vouches for it."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


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


def _free(path: Path) -> str:
    """How much room there is."""
    try:
        return f"{_in_words(shutil.disk_usage(_existing(path)).free)} free there"
    except OSError:
        return "the disk does not say how much is free"


def _in_words(size: int) -> str:
    """Bytes for people.

    >>> _in_words(12_700_000_000), _in_words(1_700_000), _in_words(300)
    ('12.7 GB', '1.7 MB', '300 bytes')
    """
    for unit, name in ((1e9, "GB"), (1e6, "MB")):
        if size >= unit:
            return f"{size / unit:.1f} {name}"
    return f"{size} bytes"
