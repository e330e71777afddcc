"""Figures of a run: summed on the device, read once per log interval, written as lines of JSON."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from svea.errors import NumericsError, StorageError, UserError


class Accumulator:
    """Means of named device scalars. Adding never waits for the device; reading does, once."""

    def __init__(self) -> None:
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}

    def add(self, values: dict[str, Tensor]) -> None:
        """Add one update's scalars."""
        for name, value in values.items():
            if name in self._sums:
                self._sums[name] += value
            else:
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
            raise NumericsError(
                f"{', '.join(bad)} became infinite or undefined: training diverged. The last "
                "checkpoint is from before; a smaller --sac.learning-rate or --precision float32 "
                "may help"
            )
        return {"sums": dict(zip(names, totals, strict=True)), "counts": dict(self._counts)}

    def load_state(self, state: dict[str, Any], device: torch.device) -> None:
        """Take over open sums."""
        self._counts = dict(state["counts"])
        self._sums = {
            name: torch.tensor(total, dtype=torch.float32, device=device)
            for name, total in state["sums"].items()
        }


class Sink(Protocol):
    """Where log lines go besides metrics.jsonl."""

    def write(self, record: dict[str, Any]) -> None:
        """Take one log line."""

    def close(self) -> None:
        """Flush and end."""


class Log:
    """metrics.jsonl: one JSON object a line, flushed as written.

    A resumed run cuts the file back to where its checkpoint stood, so each line stands there once.
    """

    def __init__(self, path: Path, offset: int = 0, sinks: list[Sink] | None = None) -> None:
        """Open the file and forget what comes after the offset."""
        self.sinks = sinks or []
        self._path = path
        try:
            self._file = path.open("r+b" if path.exists() else "w+b")
            self._file.truncate(
                min(offset, path.stat().st_size)
            )  # never pads a lost log with zeros
            self._file.seek(0, os.SEEK_END)
        except OSError as error:
            raise StorageError(f"cannot write {path}: {error}") from error

    @property
    def offset(self) -> int:
        """Bytes written so far."""
        return self._file.tell()

    def write(self, kind: str, **values: Any) -> None:
        """Write one line."""
        record = {"kind": kind, **values}
        try:
            self._file.write(json.dumps(record, allow_nan=False).encode() + b"\n")
            self._file.flush()
        except OSError as error:
            raise StorageError(f"cannot write {self._path}: {error}") from error
        for sink in self.sinks:
            sink.write(record)

    def close(self) -> None:
        """End the log."""
        self._file.close()
        for sink in self.sinks:
            sink.close()


class TensorBoard:
    """Scalars as TensorBoard events, in the run folder."""

    def __init__(self, run: Path, decision: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise UserError(
                "--tensorboard needs the package tensorboard: pip install 'svea[tensorboard]'"
            ) from None
        # A resumed run takes back what came after its checkpoint.
        self._writer = SummaryWriter(str(run / "tensorboard"), purge_step=decision + 1)

    def write(self, record: dict[str, Any]) -> None:
        """Write every number of the line."""
        for name, value in scalars(record).items():
            self._writer.add_scalar(name, value, record["decision"])

    def close(self) -> None:
        """Flush and end."""
        self._writer.close()


class WeightsAndBiases:
    """Scalars to Weights & Biases, under the run folder's name: a resume continues there."""

    def __init__(self, run: Path, config: dict[str, Any]) -> None:
        try:
            import wandb
        except ImportError:
            raise UserError("--wandb needs the package wandb: pip install 'svea[wandb]'") from None
        self._run = wandb.init(
            project="svea", id=run.name, name=run.name, dir=str(run), config=config, resume="allow"
        )

    def write(self, record: dict[str, Any]) -> None:
        """Write every number of the line."""
        self._run.log(scalars(record) | {"decision": record["decision"]})

    def close(self) -> None:
        """Finish the upload."""
        self._run.finish()


def scalars(record: dict[str, Any]) -> dict[str, float]:
    """The numbers of a log line, with names such as ``eval/train/return_mean``."""
    prefix = "/".join(str(record[key]) for key in ("kind", "mode") if key in record)
    return {
        f"{prefix}/{name}": value
        for name, value in record.items()
        if isinstance(value, int | float) and name != "decision"
    }
