"""The command line: one verb, one short function."""

from __future__ import annotations

import dataclasses
import json as jsonlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from svea.errors import SveaError, UserError
from svea.version import __version__

if TYPE_CHECKING:
    from svea.config import Config

try:
    import tyro
    from tyro.conf import Positional
except ModuleNotFoundError:  # the base install is the environments alone
    tyro = None  # type: ignore[assignment]


def main(arguments: list[str] | None = None) -> int:
    """Run a verb and return the exit code; user errors are one message on stderr."""
    arguments = sys.argv[1:] if arguments is None else arguments
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print(overview())
        return 0
    if arguments[0] in ("-V", "--version", "version"):
        print(f"svea {__version__}")
        return 0
    try:
        return run_verb(arguments[0], arguments[1:])
    except SveaError as error:
        print(f"svea: {error}", file=sys.stderr)
        return error.exit_code
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "svea":
            raise
        print(
            f"svea: {arguments[0]} needs {error.name}, which is not installed: "
            "pip install 'svea[train]'",
            file=sys.stderr,
        )
        return UserError.exit_code
    except KeyboardInterrupt:
        print("svea: stopped", file=sys.stderr)
        return 130
    except BrokenPipeError:  # `svea methods | head`
        sys.stderr.close()
        return 0


def run_verb(verb: str, arguments: list[str]) -> int:
    """Find the verb and let it read its own arguments."""
    from svea.errors import unknown_name

    if verb not in VERBS:
        raise unknown_name("verb", verb, VERBS)
    if verb != "doctor" and tyro is None:
        raise UserError(f"{verb} needs the training extras: pip install 'svea[train]'")
    return VERBS[verb](arguments) or 0


def overview() -> str:
    """What `svea --help` prints."""
    lines = ["svea: image-based reinforcement learning that stays stable under augmentation", ""]
    lines += [f"  svea {verb:<9} {first_line(function)}" for verb, function in VERBS.items()]
    lines += ["", "`svea VERB --help` lists its options; `svea doctor` checks this machine."]
    return "\n".join(lines)


def first_line(function: Callable[..., Any]) -> str:
    """The first line of a function's docstring."""
    return (function.__doc__ or "").strip().splitlines()[0]


def parse(function: Callable[..., int | None], verb: str, arguments: list[str]) -> int:
    """Let tyro read the arguments of a function and call it."""
    return tyro.cli(function, prog=f"svea {verb}", args=arguments) or 0


def parse_parts(
    parts: dict[str, Callable[..., int | None]], verb: str, arguments: list[str]
) -> int:
    """A verb with parts of its own, such as `svea data check`."""
    return tyro.extras.subcommand_cli_from_dict(parts, prog=f"svea {verb}", args=arguments) or 0


# The verbs ---------------------------------------------------------------------------------------


def train(arguments: list[str]) -> int:
    """Train an agent, or continue a run (the same command again)."""
    from svea.training import train as train_run

    train_run(train_config(arguments))
    return 0


def train_config(arguments: list[str]) -> Config:
    """Read the flags twice: once to learn preset, method and task, once over their defaults."""
    from svea.config import Config, check, configure

    @dataclasses.dataclass(frozen=True)
    class Train(Config):
        """Train an agent. The same command again continues the run."""

        task: Positional[str] = tyro.MISSING
        """A dm_control suite task as domain_task, or module:function of your own environment."""

    def read(defaults: Config) -> Config:
        values = {f.name: getattr(defaults, f.name) for f in dataclasses.fields(Config)}
        flags = tyro.cli(
            Train,
            prog="svea train",
            description="Train an agent. The same command again continues the run.",
            args=arguments,
            default=Train(**values | {"task": tyro.MISSING}),
        )
        return Config(**{f.name: getattr(flags, f.name) for f in dataclasses.fields(Config)})

    first = read(Config(task=tyro.MISSING))
    defaults = configure(first.task, preset=first.preset, method=first.method)
    return check(read(defaults))


def evaluate(arguments: list[str]) -> int:
    """Evaluate runs or exports in any mode."""

    def command(
        runs: Positional[tuple[Path, ...]],
        modes: tuple[str, ...] = ("train", "color_hard"),
        episodes: int = 30,
        seed: int = 0,
        random_policy: bool = False,
        videos: bool = True,
        envs: int = 0,
        device: str = "cpu",
        data_dir: str = "",
        json: bool = False,
    ) -> int:
        """Evaluate agents over whole episodes, and record every episode in RUN/eval.jsonl.

        Args:
            runs: folders made by `svea train` or `svea export`.
            modes: where to evaluate; `all` is train and the five test modes, `distracting_cs:all`
                the eight intensities.
            episodes: per mode.
            seed: of the evaluation; the same seed gives every agent the same episodes.
            random_policy: evaluate the random policy too, for comparison.
            videos: also record one episode per mode as RUN/media/MODE.mp4 and .png.
            envs: environments in parallel; 0 is one per core.
            device: auto, cuda, mps or cpu.
            data_dir: folder with benchmark data (beats SVEA_DATA).
            json: print the records as JSON lines instead of a table.
        """
        from svea.envs import expand_modes
        from svea.evaluation import evaluate_and_record

        wanted = expand_modes(modes)
        if not runs:
            raise UserError("no run to evaluate; name at least one folder made by `svea train`")
        for run in runs:
            evaluate_and_record(
                run, wanted, episodes, seed=seed, random_policy=random_policy, videos=videos,
                environments=envs, device=device, data_dir=data_dir or None, as_json=json,
            )  # fmt: skip
        return 0

    return parse(command, "eval", arguments)


def report(arguments: list[str]) -> int:
    """Write one self-contained HTML page about runs."""

    def command(
        runs: Positional[tuple[Path, ...]],
        out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None,
    ) -> int:
        """Write a report: curves, tables, frames, videos, configuration. No network needed.

        Args:
            runs: run folders.
            out: the page; default RUN/report.html for one run, report.html for several.
        """
        from svea.report import write_report

        page = out or (runs[0] / "report.html" if len(runs) == 1 else Path("report.html"))
        print(write_report(list(runs), page))
        return 0

    return parse(command, "report", arguments)


def export(arguments: list[str]) -> int:
    """Write a small folder to share: actor, critic, configuration."""

    def command(run: Positional[Path], folder: Positional[Path]) -> int:
        """Export the newest checkpoint; `svea eval` and `load_agent` take the folder like a run.

        Args:
            run: folder made by `svea train`.
            folder: a new folder.
        """
        from svea.export import export as export_run

        print(export_run(run, folder))
        return 0

    return parse(command, "export", arguments)


def methods(arguments: list[str]) -> int:
    """List methods: who sees which view."""

    def command(json: bool = False) -> int:
        """List every method with the views that feed Q-prediction, Q-target and policy.

        Args:
            json: print JSON instead of a table.
        """
        from svea.methods import METHODS, who_sees_what

        rows = [who_sees_what(name) for name in METHODS]
        if json:
            print(jsonlib.dumps(rows, indent=1))
        else:
            print_table(rows)
        return 0

    return parse(command, "methods", arguments)


def gallery(arguments: list[str]) -> int:
    """Write contact sheets to look at."""

    def command(
        sheet: Positional[Literal["augmentations", "environments"]],
        out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None,
        overlay_dir: str = "",
        data_dir: str = "",
        seed: int = 0,
    ) -> int:
        """Write a contact sheet as PNG.

        Args:
            sheet: what to show.
            out: the picture; default SHEET.png.
            overlay_dir: pictures for overlay, or `procedural`.
            data_dir: folder with benchmark data (beats SVEA_DATA).
            seed: of the draws.
        """
        from svea import gallery as sheets
        from svea.images import ImageBank

        path = out or Path(f"{sheet}.png")
        if sheet == "environments":
            print(sheets.environments(path, seed=seed, data_dir=data_dir or None))
        else:
            bank = ImageBank.find(overlay_dir or None, data_dir or None)
            print(sheets.augmentations(path, seed=seed, images=bank))
        return 0

    return parse(command, "gallery", arguments)


def bench(arguments: list[str]) -> int:
    """Measure speed on this machine: augmentations, environments."""

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
        from svea import bench as benchmarks
        from svea.speed import choose_device

        rows = benchmarks.augment(
            names, device=choose_device(device).type, batch=batch, size=size, repeats=repeats,
            bfloat16=bfloat16,
        )  # fmt: skip
        return print_json(rows) if json else 0

    def env(
        tasks: tuple[str, ...] = ("walker_walk", "cartpole_swingup"),
        modes: tuple[str, ...] = ("all",),
        decisions: int = 100,
        resets: int = 20,
        size: int = 84,
        rendering: Literal["full", "fast"] = "full",
        data_dir: str = "",
        json: bool = False,
    ) -> int:
        """Time decisions and resets in every mode beside train.

        Args:
            tasks: which tasks.
            modes: which modes; the first is the yardstick.
            decisions: timed in each mode.
            resets: timed in each mode.
            size: height and width in pixels.
            rendering: full or fast.
            data_dir: folder with benchmark data (beats SVEA_DATA).
            json: print JSON too.
        """
        from svea import bench as benchmarks

        rows = benchmarks.env(
            tasks, modes, decisions=decisions, resets=resets, size=size, rendering=rendering,
            data_dir=data_dir or None,
        )  # fmt: skip
        return print_json(rows) if json else 0

    return parse_parts({"augment": augment, "env": env}, "bench", arguments)


def data(arguments: list[str]) -> int:
    """List, check or download benchmark data; nothing here is needed to train."""

    def show(data_dir: str = "") -> int:
        """List what is found, what is missing, and what it is needed for.

        Args:
            data_dir: folder with benchmark data (beats SVEA_DATA).
        """
        from svea.data import list_data

        return list_data(data_dir or None)

    def check(folder: Positional[Path]) -> int:
        """Check a folder: layout, hashes, and that every clip and picture decodes.

        Args:
            folder: with benchmark data.
        """
        from svea.data import check_data

        return check_data(folder)

    def get(name: Positional[str], folder: Positional[Path]) -> int:
        """Download a data set; an interrupted download continues.

        Args:
            name: dmcgb, davis or places365-val.
            folder: where the data shall lie; give it as --data-dir or SVEA_DATA later.
        """
        from svea.data import get_data

        return get_data(name, folder)

    return parse_parts({"list": show, "check": check, "get": get}, "data", arguments)


def doctor(arguments: list[str]) -> int:
    """Check this machine: versions, device, renderer, data; and say how to mend what is wrong."""
    import argparse

    from svea.doctor import doctor as check_machine

    parser = argparse.ArgumentParser(prog="svea doctor", description=doctor.__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--data-dir", default=None, help="folder with benchmark data")
    options = parser.parse_args(arguments)
    return check_machine(json=options.json, data_dir=options.data_dir)


VERBS: dict[str, Callable[[list[str]], int]] = {
    "train": train,
    "eval": evaluate,
    "report": report,
    "export": export,
    "methods": methods,
    "gallery": gallery,
    "bench": bench,
    "data": data,
    "doctor": doctor,
}


def print_json(rows: Sequence[Any]) -> int:
    """Dataclasses as JSON."""
    print(jsonlib.dumps([dataclasses.asdict(row) for row in rows], indent=1))
    return 0


def print_table(rows: list[dict[str, Any]]) -> None:
    """A table on a terminal; one plain, unwrapped line per row elsewhere."""
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        widths = {k: max(len(k), *(len(str(row[k])) for row in rows)) for k in rows[0]}
        for row in [{k: k for k in rows[0]}, *rows]:
            print("  ".join(str(row[k]).ljust(width) for k, width in widths.items()).rstrip())
        return
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*map(str, row.values()))
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
