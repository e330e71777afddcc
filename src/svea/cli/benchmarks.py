"""The verb that measures speed: bench."""

from __future__ import annotations

import dataclasses
import json as jsonlib
from collections.abc import Callable, Sequence
from typing import Any, Literal

from svea.cli.arguments import parse_parts


def bench(arguments: list[str]) -> int:
    """Measure speed on this machine: augmentations, environments, updates, training."""

    def augment(
        names: tuple[str, ...] = (),
        device: str = "cpu",
        batch: int | None = None,
        size: int = 84,
        repeats: int = 50,
        bfloat16: bool = False,
        json: bool = False,
    ) -> int:
        """Time every augmentation beside the naive loop over the samples.

        Args:
            names: only these; default all.
            device: auto, cuda, mps or cpu.
            batch: samples; default 64 on a CPU, 256 on a GPU.
            size: height and width in pixels.
            repeats: how often each is run.
            bfloat16: in bfloat16 instead of float32.
            json: print JSON too.
        """
        from svea.bench import measure as benchmarks
        from svea.speed import choose_device

        rows = benchmarks.augment(
            names, device=choose_device(device).type, batch=batch, size=size, repeats=repeats,
            bfloat16=bfloat16,
        )  # fmt: skip
        return print_json(rows) if json else 0

    def env(
        tasks: tuple[str, ...] = ("walker_walk", "cartpole_swingup", "robot_reach"),
        modes: tuple[str, ...] = ("all",),
        decisions: int = 100,
        resets: int = 20,
        size: int = 84,
        rendering: Literal["full", "fast"] = "full",
        data_dir: str = "",
        json: bool = False,
    ) -> int:
        """Time decisions and resets of every task and mode, taking turns.

        Args:
            tasks: which tasks; the first is the yardstick of the others.
            modes: which modes; the first is the yardstick of the others. `all` is all of a task's.
            decisions: timed in each mode.
            resets: timed in each mode.
            size: height and width in pixels.
            rendering: full or fast.
            data_dir: folder with benchmark data (beats SVEA_DATA).
            json: print JSON too.
        """
        from svea.bench import measure as benchmarks

        rows = benchmarks.env(
            tasks, modes, decisions=decisions, resets=resets, size=size, rendering=rendering,
            data_dir=data_dir or None,
        )  # fmt: skip
        return print_json(rows) if json else 0

    def update(
        methods: tuple[str, ...] = ("svea", "drq"),
        base: str = "sac",
        encoder: str = "cnn",
        preset: str = "paper",
        device: str = "auto",
        precision: str = "auto",
        speed: str = "auto",
        batch: int | None = None,
        repeats: int = 40,
        parts: bool = True,
        json: bool = False,
    ) -> int:
        """Time one update of each method, with its parts, beside the least it could take.

        Args:
            methods: which; `all` is every method.
            base: sac, ddpg or dqn.
            encoder: cnn, vit or drqv2.
            preset: sizes: paper or quick.
            device: auto, cuda, mps or cpu.
            precision: auto, float32 or bfloat16.
            speed: auto, eager, compiled or captured.
            batch: transitions; default the preset's.
            repeats: how often each is run.
            parts: time the parts too.
            json: print JSON too.
        """
        from svea.bench.update import update as update_bench
        from svea.methods import METHODS
        from svea.speed import choose_device

        chosen = tuple(METHODS) if "all" in methods else methods
        rows = update_bench(
            chosen, base=base, encoder=encoder, preset=preset, device=choose_device(device),
            precision=precision, how=speed, batch=batch, repeats=repeats, parts=parts,
        )  # fmt: skip
        return print_json(rows) if json else 0

    def train(
        task: str = "walker_walk",
        method: str = "svea",
        encoder: str = "cnn",
        preset: str = "paper",
        envs: int = 16,
        seeds: tuple[str, ...] = ("0",),
        seconds: float = 20.0,
        device: str = "auto",
        speed: str = "auto",
        json: bool = False,
    ) -> int:
        """Time training end to end: decisions per second, environments and updates together.

        Args:
            task: which task.
            method: which method.
            encoder: cnn, vit or drqv2.
            preset: sizes: paper or quick.
            envs: environments of each seed.
            seeds: one seed or several together, e.g. 0-4.
            seconds: how long, after everything has warmed up.
            device: auto, cuda, mps or cpu.
            speed: auto, eager, compiled or captured.
            json: print JSON too.
        """
        from svea.bench.update import train as train_bench
        from svea.studies import parse_seeds

        rows = train_bench(
            parse_seeds(seeds), seconds, task=task, method=method, encoder=encoder, preset=preset,
            envs=envs, device=device, speed=speed,
        )  # fmt: skip
        return print_json(rows) if json else 0

    parts: dict[str, Callable[..., int | None]]
    parts = {"augment": augment, "env": env, "update": update, "train": train}
    return parse_parts(parts, "bench", arguments)


def print_json(rows: Sequence[Any]) -> int:
    """Dataclasses as JSON."""
    print(jsonlib.dumps([dataclasses.asdict(row) for row in rows], indent=1))
    return 0
