"""A run's log: losses summed on the device, read once per log interval, written as JSON lines."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from svea.agents.learning import divergence
from svea.core import files
from svea.core.errors import NumericsError
from svea.core.terminal import warn


class Accumulator:
    """Means of named device scalars. Adding never waits for the device; reading does, once."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}

    def add(self, values: dict[str, Tensor]) -> None:
        """Add one update's scalars."""
        known = [name for name in values if name in self._sums]
        if known:  # one launch for all of them
            torch._foreach_add_([self._sums[n] for n in known], [values[n] for n in known])
        for name, value in values.items():
            if name not in self._sums:
                self._sums[name] = value.detach().to(torch.float32, copy=True)
            self._counts[name] = self._counts.get(name, 0) + 1

    def take(self) -> dict[str, float]:
        """The means since the last time. This is a device synchronisation."""
        sums = self.state()["sums"]
        means = {name: total / self._counts[name] for name, total in sums.items()}
        self._sums, self._counts = {}, {}
        return means

    def state(self) -> dict[str, Any]:
        """The open sums, for a checkpoint; a run that diverged is not worth one."""
        names = list(self._sums)
        totals = torch.stack([self._sums[n] for n in names]).tolist() if names else []
        bad = [name for name, total in zip(names, totals, strict=True) if not math.isfinite(total)]
        if bad:
            raise divergence(bad)
        return {"sums": dict(zip(names, totals, strict=True)), "counts": dict(self._counts)}

    def load_state(self, state: dict[str, Any], device: torch.device) -> None:
        """Take over open sums."""
        self._counts = dict(state["counts"])
        self._sums = {
            name: torch.tensor(total, dtype=torch.float32, device=device)
            for name, total in state["sums"].items()
        }


class Sink(Protocol):
    """Where log lines go in addition to metrics.jsonl."""

    def write(self, record: dict[str, Any]) -> None:
        """Take one log line."""

    def close(self) -> None:
        """Flush and end."""


class Log:
    """metrics.jsonl: one JSON object a line, written at once.

    A resumed run cuts the file back to its length at the checkpoint, so no line is there twice. A
    copy (sink) that fails is dropped with a warning; what the user's own listener raises ends the
    run.
    """

    listener: Callable[[dict[str, Any]], None] | None = None

    def __init__(self, path: Path, offset: int = 0, sinks: Iterable[Sink] = ()) -> None:
        """Cut off what comes after the offset; a missing file is made."""
        self.path, self.sinks = path, list(sinks)
        self.offset = files.cut(path, offset)

    def write(self, kind: str, **values: Any) -> None:
        """Write one line."""
        record = {"kind": kind, **values}
        try:
            line = json.dumps(record, allow_nan=False)
        except ValueError:
            bad = [k for k, v in values.items() if isinstance(v, float) and not math.isfinite(v)]
            raise NumericsError(f"{', '.join(bad) or kind} in the log is not finite") from None
        self.offset = files.append_lines(self.path, line.encode() + b"\n")
        self._tell_sinks(lambda sink: sink.write(record))
        if self.listener:
            self.listener(record)

    def close(self) -> None:
        """End the sinks; every line has been written."""
        self._tell_sinks(lambda sink: sink.close())
        self.sinks = []

    def _tell_sinks(self, act: Callable[[Sink], None]) -> None:
        """Let every sink act; one that cannot is dropped."""
        for sink in list(self.sinks):
            try:
                act(sink)
            except Exception as error:  # of a foreign package, on a disk or a network
                self.sinks.remove(sink)
                warn(f"{type(sink).__name__} failed and gets no more log lines: {error}")


class Rates:
    """Rates between log lines. Evaluations and saves do not count: they are those of learning."""

    def __init__(self, updates: int, decision: int) -> None:
        """Measure from here on."""
        self._updates, self._decision, self._since = updates, decision, time.monotonic()

    def take(self, updates: int, decision: int) -> dict[str, float]:
        """The rates since the last time."""
        now = time.monotonic()
        counts = {"updates": updates - self._updates, "decisions": decision - self._decision}
        rates = {f"{name}_per_second": n / (now - self._since) for name, n in counts.items()}
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
