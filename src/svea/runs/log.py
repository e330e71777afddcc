"""A run's log: losses summed on the device, read once per log interval, written as JSON lines."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from svea.agents.learning import divergence
from svea.config import Config, to_dict
from svea.core import files
from svea.core.errors import NumericsError, UserError, install_hint
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


# Copies of the log in TensorBoard and in Weights & Biases ----------------------------------------


def check_loggers(config: Config) -> None:
    """Name a missing logger before the environments start, which takes a while."""
    wanted = {"tensorboard": config.tensorboard, "wandb": config.wandb or config.wandb_project}
    for package, is_wanted in wanted.items():
        if is_wanted and importlib.util.find_spec(package) is None:
            raise UserError(f"--{package} needs the package {package}: {install_hint(package)}")


class TensorBoard:
    """Scalars as TensorBoard events, in the run folder."""

    def __init__(self, run: Path, decision: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # A resumed run withdraws what came after its checkpoint.
        self._writer = SummaryWriter(str(run / "tensorboard"), purge_step=decision + 1)

    def write(self, record: dict[str, Any]) -> None:
        """Write every number of the line."""
        for name, value in scalars(record).items():
            self._writer.add_scalar(name, value, record["decision"])

    def close(self) -> None:
        """Flush and end."""
        self._writer.close()


class WeightsAndBiases:
    """Scalars to Weights & Biases, under the run folder's name: a resume continues there.

    Seeds of one setting are one group, and every curve is drawn over decisions.
    """

    def __init__(self, run: Path, config: Config) -> None:
        import wandb

        setting = [config.task, config.method, config.augment, config.encoder, config.base]
        try:
            self._run = wandb.init(
                project=config.wandb_project or os.environ.get("WANDB_PROJECT") or "svea",
                id=f"{run.name}-{zlib.crc32(str(run.resolve()).encode()):08x}", name=run.name,
                group="-".join(setting), tags=setting, dir=str(run), config=to_dict(config),
                resume="allow",
            )  # fmt: skip
        except Exception as error:  # no login, no network, another version of the service
            raise UserError(
                f"--wandb cannot begin: {error}. Use `wandb login`, set WANDB_MODE=offline, "
                "or leave --wandb out"
            ) from error
        self._run.define_metric("decision")
        self._run.define_metric("*", step_metric="decision")

    def write(self, record: dict[str, Any]) -> None:
        """Write every number of the line."""
        self._run.log(scalars(record) | {k: record[k] for k in AXES if k in record})

    def close(self) -> None:
        """Finish the upload."""
        self._run.finish()


AXES = ("decision", "frame", "seconds")  # where a line stands; what a curve may be drawn over


def scalars(record: dict[str, Any]) -> dict[str, float]:
    """What a log line measured, with names such as ``eval/train/return_mean``."""
    prefix = "/".join(str(record[key]) for key in ("kind", "mode") if key in record)
    return {
        f"{prefix}/{name}": value
        for name, value in record.items()
        if isinstance(value, int | float) and name not in (*AXES, "env")
    }


Sink = TensorBoard | WeightsAndBiases


def loggers(config: Config, decision: int) -> Iterator[Sink]:
    """Copies of the log that a configuration asks for."""
    if config.tensorboard:
        yield TensorBoard(config.folder, decision)
    if config.wandb or config.wandb_project:
        yield WeightsAndBiases(config.folder, config)
