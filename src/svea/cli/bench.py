"""`svea bench`: measure, and print what was measured."""

from typing import Any, Literal

from svea.cli.arguments import DataDir, Device, Json
from svea.cli.printing import print_json, print_table, say
from svea.core.terminal import Steps, note, waiting


def augment(
    names: tuple[str, ...] = (),
    device: Device = "cpu",
    batch: int | None = None,
    size: int = 84,
    repeats: int = 50,
    bfloat16: bool = False,
    json: Json = False,
) -> int:
    """Time every augmentation next to a naive loop over the samples.

    Args:
        names: only these; default all.
        batch: samples; default 64 on a CPU, 256 on a GPU.
        size: height and width in pixels.
        repeats: how often each is run.
        bfloat16: in bfloat16 instead of float32.
    """
    with waiting("starting"):
        from svea.bench.augment import time_augmentations
        from svea.speed import choose_device

    with Steps("augmentations") as steps:
        rows = time_augmentations(
            names, device=choose_device(device).type, batch=batch, size=size, repeats=repeats,
            bfloat16=bfloat16, on_name=steps.begin,
        )  # fmt: skip
    return show("augmentations", rows, json)


def env(
    tasks: tuple[str, ...] = ("walker_walk", "cartpole_swingup", "robot_reach"),
    modes: tuple[str, ...] = ("all",),
    decisions: int = 100,
    resets: int = 20,
    size: int = 84,
    rendering: Literal["full", "fast"] = "full",
    data_dir: DataDir = "",
    json: Json = False,
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
    """
    with waiting("starting"):
        from svea.bench.decisions import time_environments

    with Steps("environments") as steps:
        steps.begin(f"timing {resets} resets and {decisions} decisions of each, in turns")
        rows = time_environments(
            tasks, modes, decisions, resets, image_size=size, rendering=rendering,
            data_dir=data_dir or None,
        )  # fmt: skip
    return show(f"environments, {size} px, {rendering} rendering", rows, json)


def update(
    methods: tuple[str, ...] = ("svea", "drq"),
    base: str = "sac",
    encoder: str = "",
    preset: str = "paper",
    device: Device = "auto",
    precision: str = "auto",
    speed: str = "auto",
    batch: int | None = None,
    repeats: int = 40,
    no_parts: bool = False,
    json: Json = False,
) -> int:
    """Time one update of each method, with its parts, next to the least time it could take.

    Example: svea bench update --methods svea drq --preset quick

    Args:
        methods: which; `all` is every method.
        base: sac, ddpg or dqn.
        encoder: cnn, vit, drqv2, frames or module:class; default: the method's own.
        preset: sizes: paper or quick.
        precision: auto, float32, float32-exact or bfloat16.
        speed: auto, eager, compiled or captured.
        batch: transitions; default the preset's.
        repeats: how often each is run.
        no_parts: time whole updates alone.
    """
    from svea.methods import METHODS

    with waiting("starting"):
        from svea.bench.update import time_updates
        from svea.speed import choose_device
    chosen = tuple(METHODS) if "all" in methods else methods

    def timed(row: dict[str, Any]) -> None:
        note(f"timed {row['method']}: {row['ms']:.2f} ms")
        steps.finish("timing updates")

    with Steps("methods", len(chosen)) as steps:
        steps.doing("timing updates")
        rows = time_updates(
            chosen, base=base, encoder=encoder, preset=preset, device=choose_device(device),
            precision=precision, how=speed, batch=batch, repeats=repeats, parts=not no_parts,
            on_row=timed,
        )  # fmt: skip
    return show("one update, sampling included", rows, json)


def train(
    task: str = "walker_walk",
    method: str = "svea",
    encoder: str = "",
    preset: str = "paper",
    envs: int = 16,
    seeds: tuple[str, ...] = ("0",),
    seconds: float = 20.0,
    device: Device = "auto",
    speed: str = "auto",
    json: Json = False,
) -> int:
    """Time training end to end: decisions per second, environments and updates together.

    Args:
        encoder: cnn, vit, drqv2, frames or module:class; default: the method's own.
        preset: sizes: paper or quick.
        envs: environments of each seed.
        seeds: one seed or several together, e.g. 0-4.
        seconds: how long, after everything has warmed up.
        speed: auto, eager, compiled or captured.
    """
    with waiting("starting"):
        from svea.bench.decisions import time_training
        from svea.studies import parse_seeds

    # A line and no bar: the runs show their own start.
    note(f"warming up, then counting decisions for {seconds:g} s")
    row = time_training(
        parse_seeds(seeds), seconds, task=task, method=method, encoder=encoder, preset=preset,
        envs=envs, device=device, speed=speed,
    )  # fmt: skip
    return show("training end to end", [row], json)


PARTS = {"augment": augment, "env": env, "update": update, "train": train}


def show(title: str, rows: list[dict[str, Any]], as_json: bool) -> int:
    """Print measurements under the name of the machine, and as JSON if asked to."""
    from svea.bench import machine

    say(f"{title} · {machine()}")
    print_table([columns(row) for row in rows])
    if as_json:
        print_json(rows)
    return 0


def columns(row: dict[str, Any]) -> dict[str, str]:
    """A measurement as a line of a table: a column for each of its numbers.

    >>> columns({"name": "update", "batch": (2, 9), "parts": {"forward": 1.5}, "device_gb": None})
    {'name': 'update', 'batch': '2x9', 'forward': '1.5', 'device gb': ''}
    """
    shown: dict[str, str] = {}
    for name, value in row.items():
        if isinstance(value, dict):
            shown |= columns(value)
            continue
        text = "" if value is None else str(value)
        if isinstance(value, tuple):
            text = "x".join(map(str, value))
        elif isinstance(value, float):
            text = f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
        shown[name.replace("_", " ")] = text
    return shown
