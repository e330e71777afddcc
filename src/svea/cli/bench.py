"""`svea bench`: measure, and print what was measured."""

from __future__ import annotations

import dataclasses
import json as jsonlib
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from svea.cli.arguments import parse_parts
from svea.cli.printing import print_table, say
from svea.core.terminal import Steps, starting
from svea.core.words import plural

if TYPE_CHECKING:
    from svea.bench.augment import AugmentRow
    from svea.bench.decisions import EnvRow, TrainRow
    from svea.bench.update import UpdateRow


def run(arguments: list[str]) -> int:
    """Read the arguments and run the verb."""
    parts: dict[str, Callable[..., int | None]]
    parts = {"augment": augment, "env": env, "update": update, "train": train}
    return parse_parts(parts, "bench", arguments)


def augment(
    names: tuple[str, ...] = (),
    device: str = "cpu",
    batch: int | None = None,
    size: int = 84,
    repeats: int = 50,
    bfloat16: bool = False,
    json: bool = False,
) -> int:
    """Time every augmentation next to a naive loop over the samples.

    Args:
        names: only these; default all.
        device: auto, cuda, mps or cpu.
        batch: samples; default 64 on a CPU, 256 on a GPU.
        size: height and width in pixels.
        repeats: how often each is run.
        bfloat16: in bfloat16 instead of float32.
        json: print JSON too.
    """
    with starting():
        from svea.bench.augment import time_augmentations
        from svea.speed import choose_device

    with Steps("augmentations") as steps:
        rows = time_augmentations(
            names, device=choose_device(device).type, batch=batch, size=size, repeats=repeats,
            bfloat16=bfloat16, on_name=steps.begin,
        )  # fmt: skip
    return show("augmentations", augmentation_table(rows), rows, json)


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
        tasks: which tasks; the others are compared with the first.
        modes: which modes; the others are compared with the first. Groups as
            in `svea eval`: `all` is the paper's, `everything` all of a task's.
        decisions: timed in each mode.
        resets: timed in each mode.
        size: height and width in pixels.
        rendering: full or fast.
        data_dir: folder with benchmark data; overrides SVEA_DATA.
        json: print JSON too.
    """
    with starting():
        from svea.bench.decisions import time_environments

    with Steps("environments") as steps:
        steps.begin(f"timing {resets} resets and {decisions} decisions of each, in turns")
        rows = time_environments(
            tasks, modes, decisions=decisions, resets=resets, size=size, rendering=rendering,
            data_dir=data_dir or None,
        )  # fmt: skip
    title = f"environments, {size} px, {rendering} rendering"
    return show(title, environment_table(rows), rows, json)


def update(
    methods: tuple[str, ...] = ("svea", "drq"),
    base: str = "sac",
    encoder: str = "",
    preset: str = "paper",
    device: str = "auto",
    precision: str = "auto",
    speed: str = "auto",
    batch: int | None = None,
    repeats: int = 40,
    no_parts: bool = False,
    json: bool = False,
) -> int:
    """Time one update of each method, with its parts, next to the least time it could take.

    Example: svea bench update --methods svea drq --preset quick

    Args:
        methods: which; `all` is every method.
        base: sac, ddpg or dqn.
        encoder: cnn, vit, drqv2, frames or module:class; default: the method's own.
        preset: sizes: paper or quick.
        device: auto, cuda, mps or cpu.
        precision: auto, float32, float32-exact or bfloat16.
        speed: auto, eager, compiled or captured.
        batch: transitions; default the preset's.
        repeats: how often each is run.
        no_parts: time whole updates alone.
        json: print JSON too.
    """
    from svea.methods import METHODS

    with starting():
        from svea.bench.update import time_updates
        from svea.speed import choose_device
    chosen = tuple(METHODS) if "all" in methods else methods

    def timed(row: UpdateRow) -> None:
        print(f"timed {row.method}: {row.ms:.2f} ms", file=sys.stderr, flush=True)
        steps.finish("timing updates")

    with Steps("methods", len(chosen)) as steps:
        steps.doing("timing updates")
        rows = time_updates(
            chosen, base=base, encoder=encoder, preset=preset, device=choose_device(device),
            precision=precision, how=speed, batch=batch, repeats=repeats, parts=not no_parts,
            on_row=timed,
        )  # fmt: skip
    return show("one update, sampling included", update_table(rows), rows, json)


def train(
    task: str = "walker_walk",
    method: str = "svea",
    encoder: str = "",
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
        encoder: cnn, vit, drqv2, frames or module:class; default: the method's own.
        preset: sizes: paper or quick.
        envs: environments of each seed.
        seeds: one seed or several together, e.g. 0-4.
        seconds: how long, after everything has warmed up.
        device: auto, cuda, mps or cpu.
        speed: auto, eager, compiled or captured.
        json: print JSON too.
    """
    with starting():
        from svea.bench.decisions import time_training
        from svea.studies import parse_seeds

    # A line and no bar: the runs show their own start.
    print(f"warming up, then counting decisions for {seconds:g} s", file=sys.stderr, flush=True)
    rows = time_training(
        parse_seeds(seeds), seconds, task=task, method=method, encoder=encoder, preset=preset,
        envs=envs, device=device, speed=speed,
    )  # fmt: skip
    return show(training_line(rows[0]), [], rows, json)


def show(title: str, table: list[dict[str, Any]], rows: Sequence[Any], as_json: bool) -> int:
    """Print a table under the name of the machine, and its rows as JSON if asked to."""
    from svea.bench.timing import machine

    say(f"{title} · {machine()}")
    print_table(table)
    if as_json:
        print(jsonlib.dumps([dataclasses.asdict(row) for row in rows], indent=1))
    return 0


def augmentation_table(rows: Sequence[AugmentRow]) -> list[dict[str, Any]]:
    """`svea bench augment`: each augmentation next to its loop and the reference."""
    from svea.bench.augment import REFERENCE

    reference = next((row.ms for row in rows if row.name == REFERENCE), None)
    return [
        {
            "name": row.name,
            "device": row.device,
            "batch": "x".join(map(str, row.batch)),
            "ms": f"{row.ms:.3f}",
            "loop ms": f"{row.loop_ms:.2f}" if row.loop_ms else "",
            "loop / batch": f"{row.loop_ms / row.ms:.1f}" if row.loop_ms else "",
            "/ reference": f"{row.ms / reference:.2f}" if reference else "",
        }
        for row in rows
    ]


def environment_table(rows: Sequence[EnvRow]) -> list[dict[str, Any]]:
    """`svea bench env`: each task and mode next to the first."""
    return [
        {
            "task": row.task,
            "mode": row.mode,
            "ms": f"{row.ms:.2f}",
            "more": f"{row.extra:+.0%}",
            "/ first": f"{row.relative:.2f}",
            "reset ms": f"{row.reset_ms:.1f}",
            "more ms": f"{row.extra_reset_ms:+.1f}",
        }
        for row in rows
    ]


def update_table(rows: Sequence[UpdateRow]) -> list[dict[str, Any]]:
    """`svea bench update`: each method's update with its parts and the least it could take."""
    return [
        {
            "method": row.method if row.base == "sac" else f"{row.method} ({row.base})",
            "encoder": row.encoder,
            "speed": row.speed,
            "precision": row.precision,
            "batch": row.batch,
            "ms": f"{row.ms:.2f}",
            **{name: f"{ms:.2f}" for name, ms in row.parts.items()},
            "parameters": f"{row.parameters:,}",
            "GFLOP": f"{row.gflop:.1f}",
            "TFLOP/s": f"{row.tflop_per_second:.3g}",
            "GB/s": f"{row.gigabytes_per_second:.0f}",
            "floor ms": f"{row.floor_ms:.2f}" if row.floor_ms else "",
            "GPU GB": f"{row.device_memory_gb:.2f}" if row.device_memory_gb else "",
        }
        for row in rows
    ]


def training_line(row: TrainRow) -> str:
    """`svea bench train`: one line."""
    memory = f", {row.device_memory_gb:.2f} GB of the GPU" if row.device_memory_gb else ""
    return (
        f"{row.decisions_per_second:.1f} decisions/s in all: {row.task}, {row.method}, "
        f"{row.encoder}, {row.speed}, {plural(row.seeds, 'seed')} with "
        f"{plural(row.envs, 'environment')} each "
        f"({row.decisions:,} decisions in {row.seconds:.1f} s{memory})"
    )
