"""Copies of the log in TensorBoard and in Weights & Biases."""

from __future__ import annotations

import importlib.util
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from svea.config import Config, to_dict
from svea.core.errors import UserError, install_hint
from svea.runs.log import Sink


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


AXES = ("decision", "frame", "seconds")
"""Where a line stands; what a curve may be drawn over."""


def scalars(record: dict[str, Any]) -> dict[str, float]:
    """What a log line measured, with names such as ``eval/train/return_mean``."""
    prefix = "/".join(str(record[key]) for key in ("kind", "mode") if key in record)
    return {
        f"{prefix}/{name}": value
        for name, value in record.items()
        if isinstance(value, int | float) and name not in (*AXES, "env")
    }


def loggers(config: Config, decision: int) -> Iterator[Sink]:
    """Those that were asked for."""
    if config.tensorboard:
        yield TensorBoard(config.folder, decision)
    if config.wandb or config.wandb_project:
        yield WeightsAndBiases(config.folder, config)
