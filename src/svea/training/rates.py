"""Updates and decisions per second, as the log shows them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class Rates:
    """Rates between log lines. Evaluations and saves do not count: they are those of learning."""

    def __init__(self, updates: int, decision: int) -> None:
        """Measure from here on."""
        self._updates, self._decision, self._since = updates, decision, time.monotonic()

    def take(self, updates: int, decision: int) -> dict[str, float]:
        """The rates since the last time."""
        now = time.monotonic()
        elapsed = now - self._since
        rates = {
            "updates_per_second": (updates - self._updates) / elapsed,
            "decisions_per_second": (decision - self._decision) / elapsed,
        }
        self._updates, self._decision, self._since = updates, decision, now
        return rates

    @contextmanager
    def paused(self) -> Iterator[None]:
        """A while that does not count."""
        began = time.monotonic()
        try:
            yield
        finally:
            self._since += time.monotonic() - began
