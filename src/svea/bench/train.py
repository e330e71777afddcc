"""How fast training is end to end: environments and updates together."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch

from svea import speed
from svea.config import configure
from svea.core.errors import UserError
from svea.training import Interrupt, open_trainer


@dataclass(frozen=True)
class TrainRow:
    """Training end to end."""

    task: str
    method: str
    encoder: str
    speed: str
    seeds: int
    envs: int
    decisions: int
    seconds: float
    decisions_per_second: float
    device_memory_gb: float | None


def time_training(seeds: list[int], seconds: float, **settings: Any) -> list[TrainRow]:
    """Train for a while in a temporary folder, and count decisions."""
    if not seeds:
        raise UserError("no seed is named; allowed: one or several, e.g. 0-4")
    if seconds <= 0:
        raise UserError(f"seconds is {seconds:g}; allowed: more than 0")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        configs = [
            configure(
                settings["task"], seed=seed, out=f"{folder}/{seed}", overlay_dir="procedural",
                decisions=10**6, replay=20_000, warmup=max(200, settings["envs"]),
                **{k: v for k, v in settings.items() if k != "task"},
            )
            for seed in seeds
        ]  # fmt: skip
        opened = [
            open_trainer(config, stack, Interrupt(), len(configs), learn_only=True)
            for config in configs
        ]
        trainers = [trainer for trainer in opened if trainer is not None]  # all: folders are new
        for trainer in trainers:
            trainer.begin()
        runs = []
        for number, trainer in enumerate(trainers):
            runs.append((trainer, trainer.turns(), speed.lane(trainer.device, number)))
        speed.synchronise(trainers[0].device)
        began, before = 0.0, 0
        while not began or time.perf_counter() - began < seconds:
            for _, turns, stream in runs:
                with stream:
                    next(turns)
            if not began and all(t.updates > 400 + 8 * t.config.envs for t in trainers):
                speed.synchronise(trainers[0].device)
                began, before = time.perf_counter(), sum(t.decision for t in trainers)
        speed.synchronise(trainers[0].device)
        elapsed = time.perf_counter() - began
        made = sum(trainer.decision for trainer in trainers) - before
        cuda = trainers[0].device.type == "cuda"
        memory = torch.cuda.max_memory_allocated() / 1e9 if cuda else None
        first = configs[0]
        row = TrainRow(
            first.task, first.method, first.encoder, trainers[0].speed, len(seeds), first.envs,
            made, elapsed, made / elapsed, memory,
        )  # fmt: skip
    return [row]
