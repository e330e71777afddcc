"""What can go wrong for a user: one message, one exit code, no traceback.

Every message states what was given, what is allowed, and the cure. The command line prints it on
stderr and exits with the class's code; Python callers can catch the class.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from pathlib import Path


class SveaError(Exception):
    """The root of all errors that svea raises on purpose.

    What a user may want to read besides the one message (the traceback of a worker) is in notes.
    """

    exit_code = 1
    details: Path | None = None
    """The file that the notes were written to."""


class UserError(SveaError, ValueError):
    """Bad input: an unknown name, a value out of range, a folder of another run."""

    exit_code = 2


class NumericsError(SveaError):
    """A loss, gradient, observation or reward is not finite."""

    exit_code = 3


class StorageError(SveaError):
    """A file cannot be written or read: disk full, no permission, damaged."""

    exit_code = 4


class WorkerError(SveaError):
    """An environment process died, hung, or raised."""

    exit_code = 5


class RendererError(SveaError):
    """MuJoCo cannot draw on this machine."""

    exit_code = 6


class DeviceError(SveaError):
    """A GPU stopped working in mid-run."""

    exit_code = 7


def unknown_name(kind: str, given: str, allowed: Iterable[str]) -> UserError:
    """An error for a name that is not registered, with the nearest names first.

    >>> print(unknown_name("task", "waler_walk", ["walker_walk", "finger_spin"]))
    unknown task 'waler_walk'. Did you mean 'walker_walk'? Allowed: finger_spin, walker_walk
    """
    names = sorted(allowed)
    near = difflib.get_close_matches(given, names, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(repr(n) for n in near)}?" if near else ""
    shown = ", ".join(names[:80]) + (f", ... ({len(names)} in all)" if len(names) > 80 else "")
    return UserError(f"unknown {kind} {given!r}.{hint} Allowed: {shown}")
