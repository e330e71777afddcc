"""Ctrl-C and termination: the first signal saves and stops, the second stops at once."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from svea.config import seconds
from svea.core import process


class Interrupt:
    """Whether SIGINT or SIGTERM came, or the time is up; shared by all runs of a process.

    The second signal ends the process at once.
    """

    signal_number: int | None = None
    by_callback = False

    def __init__(self) -> None:
        """Count time from here on."""
        self._began = time.monotonic()

    def must_stop(self, time_limit: str) -> bool:
        """Whether a signal came or the time is up."""
        if self.signal_number is not None or self.by_callback:
            return True
        return time.monotonic() - self._began > seconds(time_limit)

    def handle(self, number: int) -> None:
        """Remember the first signal."""
        self.signal_number = number
        print(
            "\nstopping: saving the run first (once more: stop at once and lose what came after "
            "the last checkpoint)",
            file=sys.stderr,
        )


@contextmanager
def interrupts() -> Iterator[Interrupt]:
    """Catch SIGINT and SIGTERM for a while; in any thread but the main one, do nothing."""
    caught = Interrupt()
    with process.on_signals((signal.SIGINT, signal.SIGTERM), caught.handle, process.interrupt):
        yield caught
