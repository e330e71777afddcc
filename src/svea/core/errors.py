"""What can go wrong for a user: one message, one exit code, no traceback.

Every message states what was given, what is allowed, and the cure. The command line prints it on
stderr and exits with the class's code; Python callers can catch the class.
"""

import difflib
import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


class SveaError(Exception):
    """The root of all errors that svea raises on purpose; its notes may hold a traceback."""

    exit_code = 1
    details: Path | None = None  # the file that the notes were written to


class UserError(SveaError, ValueError):
    """Bad input: an unknown name, a value out of range, a folder of another run."""

    exit_code = 2


class UnexpectedOptionError(UserError, TypeError):
    """An option that a function does not have, as a TypeError: what Python calls it."""


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


class Stopped(KeyboardInterrupt):
    """Ctrl-C or a termination stopped a training; the run is saved, if it had begun.

    As a KeyboardInterrupt it ends also a loop over runs that skips those that fail.
    """

    def __init__(self, signal_number: int, where: str) -> None:
        super().__init__(f"stopped and {where}")
        self.exit_code = 128 + signal_number


DISTRIBUTION = "svea-rl"
"""Our name among installed packages. On public package indexes `svea` is another project."""


def install_hint(extra: str = "train") -> str:
    """How to install an extra; nothing is published, so a name alone would install other code."""
    return f"in a clone of svea run pip install '.[{extra}]'"


def unknown_name(
    kind: str, given: str, allowed: Iterable[str], nested: Iterable[str] = ()
) -> UserError:
    """An error for a name that is not registered, with the nearest names first.

    Of `nested` names, which have dots, those that end in the given one are suggested.

    >>> print(unknown_name("task", "waler_walk", ["walker_walk", "finger_spin"]))
    unknown task 'waler_walk'. Did you mean 'walker_walk'? Allowed: finger_spin, walker_walk
    """
    names = sorted(allowed)
    lower = {name.lower(): name for name in names}
    found = difflib.get_close_matches(given.lower(), lower, n=3, cutoff=0.5)
    within = [name for name in nested if name.endswith(f".{given}")][:3]
    near = within or [lower[name] for name in found]
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    shown = ", ".join(names[:80]) + (f", ... ({len(names)} in all)" if len(names) > 80 else "")
    return UserError(f"unknown {kind} {given!r}.{hint} Allowed: {shown}")


LARGEST = 10**9  # keeps sums and products far from any integer or memory overflow


@dataclass(frozen=True)
class Bounds:
    """What a number may be: stands in the type of a field, `Annotated[int, between(1, 100)]`."""

    least: float
    most: float = LARGEST
    excluded: bool = False  # whether the least value itself is not allowed

    def check(self, name: str, value: float) -> None:
        """Refuse a value outside, NaN included."""
        if not (self.least <= value <= self.most) or (self.excluded and value == self.least):
            low = f"above {self.least}," if self.excluded else self.least
            raise UserError(f"{name} is {value}; allowed: {low} to {self.most}")


between = at_least = Bounds  # as a field's type reads: both ends are allowed, this much or more
above = functools.partial(Bounds, excluded=True)  # more than this
