"""Locks on files and folders. The system frees a lock when its holder dies, however it dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from svea.core.errors import UserError
from svea.core.files import plain

POLL_SECONDS = 0.5


def acquire(descriptor: int, wait_seconds: float = 0.0) -> bool:
    """Lock an open file for this process and those that inherit it; whether that succeeded.

    Another holder is given some seconds, because it may be about to end. On a disk without locks,
    as some network disks are, it raises an OSError.
    """
    end = time.monotonic() + wait_seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= end:
                return False
            time.sleep(POLL_SECONDS)


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock on a file."""
    try:
        descriptor = plain.descriptor(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextlib.contextmanager
def training(run: Path) -> Iterator[None]:
    """Keep other processes from training in the same folder."""
    descriptor = os.open(run, os.O_RDONLY)
    try:
        try:
            ours = acquire(descriptor)
        except OSError as error:
            print(f"warning: {run} cannot be locked: {error.strerror}", file=sys.stderr)
            ours = True
        if not ours:
            raise UserError(
                f"another process is training in {run}; wait for it to end, or name another --out"
            )
        yield
    finally:
        os.close(descriptor)
