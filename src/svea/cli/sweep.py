"""`svea sweep`: plan a study, say what it costs, carry it out on an engine, show how it stands."""

from __future__ import annotations

import json
import shlex
import shutil
import signal
import statistics
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from svea.cli.arguments import Out, Positional, parse, tyro
from svea.cli.terminal import print_table
from svea.errors import UserError
from svea.studies import RunState, Study, as_flags, read_study
from svea.studies.cost import Forecast, forecast, own_speeds, require_space
from svea.studies.engines import HERE, EngineFlags, Resources
from svea.studies.watch import Watch, decisions_left, headline, rows, table
from svea.words import duration

FAILED = 1  # exit code of a study in which runs failed


def run(arguments: list[str]) -> int:
    """Read the arguments and run the verb."""

    def show(study: Positional[Path], json: bool = False) -> int:
        """Show how a study stands, from its folders.

        Args:
            study: its folder.
            json: print JSON instead of a table.
        """
        return status(study, json)

    def stop(study: Positional[Path]) -> int:
        """Let every run of a study save and stop, wherever it runs.

        Args:
            study: its folder.
        """
        return cancel(study)

    def command(
        study: Positional[Path | None] = None,
        tasks: tuple[str, ...] = (),
        methods: tuple[str, ...] = ("svea",),
        augments: tuple[str, ...] = (),
        seeds: tuple[str, ...] = ("0",),
        set: tuple[str, ...] = (),
        modes: tuple[str, ...] = (),
        episodes: int = 30,
        out: Out = None,
        engine: tyro.conf.OmitArgPrefixes[EngineFlags] = HERE,
    ) -> int:
        """Plan every combination and carry it out. The same command again goes on where it stopped.

        `svea sweep status STUDY` shows how a study stands, `svea sweep cancel STUDY` stops it.

        Args:
            study: a .toml or .py file with the grid, instead of the flags below.
            tasks: names of tasks.
            methods: names of methods.
            augments: strong augmentations; default: each method's own.
            seeds: numbers and ranges, e.g. 0-4.
            set: options of `svea train` for all runs, e.g. decisions=500000 recipe.alpha=1.
            modes: to evaluate in after training.
            episodes: of that evaluation, per mode.
            out: the study's folder; default runs/sweep, or runs/NAME for a file NAME.toml.
            engine: where and how to run.
        """
        from svea import studies

        settings: dict[str, Any] = {"set": {}, "modes": modes, "episodes": episodes}
        if study is None:
            if not tasks:
                raise UserError("no tasks; give --tasks walker_walk ..., or a study file")
            grids = [studies.Grid(tasks, methods, augments, " ".join(seeds))]
        else:
            if tasks:
                raise UserError(f"--tasks and the study file {study} both name tasks; give one")
            grids, given = studies.read_study_file(study)
            settings |= given
        common = studies.flatten(settings.pop("set")) | studies.parse_settings(set)
        runs = studies.plan(grids, common, drop_replay=engine.drop_replay, **settings)
        folder = out or Path("runs") / (study.stem if study else "sweep")
        plan = studies.open_study(folder, runs, attempts=engine.attempts)
        return sweep(
            plan, engine.on, engine.resources(), speed=engine.speed, dry_run=engine.dry_run
        )

    parts: dict[str, Callable[..., int | None]] = {"status": show, "cancel": stop}
    if arguments and arguments[0] in parts:
        return parse(parts[arguments[0]], f"sweep {arguments[0]}", arguments[1:])
    return parse(command, "sweep", arguments)


def sweep(
    study: Study, on: str, resources: Resources, *, speed: float = 0.0, dry_run: bool = False
) -> int:
    """Carry a study out, or say what that would mean; returns the exit code."""
    states = study.states()
    estimate = estimate_cost(study, states, on, resources, speed)
    engine = _engine(on)
    if dry_run:
        print("\n".join(dry_lines(study, states)))
    print("\n".join(estimate.lines()))
    require_space(study, estimate)
    if dry_run:
        engine.require(study, resources)
        return 0
    wanted = [state.run for state in states if state.state in ("queued", "running")]
    wanted += [state.run for state in states if state.refused and state.state == "failed"]
    _say_what_failed(states)
    if not wanted:
        study.save()
        return _finish(study, states)
    engine.require(study, resources)
    study.save()
    watch = Watch(study)
    with terminations_as_interrupts(), watch.show():
        engine.run(study, wanted, resources, watch.look)
    if on == "slurm":
        print(f"submitted; `svea sweep status {study.folder}` shows how it goes")
        return 0
    return _finish(study, study.states())


def dry_lines(study: Study, states: Sequence[RunState]) -> list[str]:
    """The command of every run; what is the same for all of them is said once, at the end."""
    first = states[0].run.values
    shared = {
        name: value
        for name, value in first.items()
        if name != "task" and len(states) > 1
        and all(state.run.values.get(name) == value for state in states)
    }  # fmt: skip
    lines = []
    for state in states:
        own = {k: v for k, v in state.run.values.items() if k != "task" and k not in shared}
        command = ["svea", "train", state.run.values["task"], *as_flags(own)]
        lines.append(f"{state.state:<8} {shlex.join(command)}")
    place = study.folder / "runs" / "NAME"
    lines.append(f"each with {shlex.join([*as_flags(shared), '--out', str(place)])}")
    return [_folded(line) for line in lines]


def _folded(line: str) -> str:
    """A line no wider than the terminal; whole where it goes elsewhere."""
    if not sys.stdout.isatty():
        return line
    width = shutil.get_terminal_size().columns
    return textwrap.fill(
        line, width, subsequent_indent=" " * 9, break_on_hyphens=False, break_long_words=False
    )


def estimate_cost(
    study: Study, states: Sequence[RunState], on: str, resources: Resources, speed: float
) -> Forecast:
    """The forecast for an engine."""
    at_once = resources.jobs or len(states)
    gpus: float | None = max(resources.gpus, 0.0)
    if on == "local":
        from svea.studies.engines.local import slots

        places = slots([s.run.config for s in states if s.state != "done"], resources)
        at_once, used = len(places), {slot.gpu for slot in places if slot.gpu}
        gpus = len(used) / at_once
    elif on == "ray":
        from svea.machine import usable_cores

        gpus = None if resources.gpus < 0 else gpus  # one where the cluster has GPUs
        at_once = resources.jobs or max(int(usable_cores() // (resources.cpus or 1)), 1)
    return forecast(study, states, at_once, speed, gpus)


def status(folder: Path, as_json: bool) -> int:
    """Print how a study stands."""
    study = read_study(folder)
    states = study.states()
    if as_json:
        print(json.dumps(rows(states), indent=1))
        return 0
    print_table(table(states))  # type: ignore[arg-type]
    print(headline(states) + _time_left(states))
    return 0


def cancel(folder: Path) -> int:
    """Ask everybody who works at a study to save and stop."""
    from svea.studies.engines import slurm

    study = read_study(folder)
    study.cancel()
    slurm.cancel(study.folder)
    running = sum(state.state == "running" for state in study.states())
    print(
        f"cancelled: {running} runs save and stop; the same `svea sweep` command goes on with them"
    )
    return 0


@contextmanager
def terminations_as_interrupts() -> Iterator[None]:
    """Let SIGTERM end a study as Ctrl-C does: every run saves first."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        print("every run has been asked to save; the same command goes on", file=sys.stderr)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _engine(name: str) -> Any:
    """An engine's module."""
    if name == "local":
        from svea.studies.engines import local as engine
    elif name == "ray":
        from svea.studies.engines import ray as engine  # type: ignore[no-redef]
    else:
        from svea.studies.engines import slurm as engine  # type: ignore[no-redef]
    return engine


def _say_what_failed(states: Sequence[RunState]) -> None:
    """Name runs whose budget is used up."""
    spent = [state for state in states if state.state == "failed" and not state.refused]
    if spent:
        print(
            f"{len(spent)} runs failed {spent[0].failures} times and are left alone; a larger "
            f"--attempts tries them again. The first: {spent[0].run.name}: {spent[0].reason}"
        )


def _finish(study: Study, states: Sequence[RunState]) -> int:
    """The last word, and the exit code."""
    print(headline(states))
    failed = [state for state in states if state.state == "failed"]
    for state in failed[:5]:
        print(f"failed: {state.run.name}: {state.reason}")
    if failed:
        print(f"their output is in {study.folder / 'journal'}/NAME.log")
    if (study.folder / "cancel").exists():
        print("cancelled; the same command goes on")
        return 128 + signal.SIGINT
    return FAILED if failed else 0


def _time_left(states: Sequence[RunState]) -> str:
    """ETA by the speeds of the study's own runs."""
    at_once, speeds = sum(state.state == "running" for state in states), own_speeds(states)
    if not at_once or not speeds:
        return ""
    seconds = decisions_left(states) / statistics.median(speeds) / at_once
    return f"; ETA {duration(seconds)} with {at_once} at once"
