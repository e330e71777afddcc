"""`svea sweep`: plan a study and run it on an engine; `sweep status` and `sweep cancel`."""

from __future__ import annotations

import difflib
import json as jsonlib
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

from svea import studies
from svea.cli.arguments import Out, Positional, parse, tyro
from svea.cli.printing import print_table
from svea.cli.study import (
    DEFAULT_ENGINE,
    EngineFlags,
    headline,
    rows,
    run_study,
    table,
)
from svea.config.names import own_modules
from svea.config.presets import parse_settings
from svea.config.run import flat
from svea.core.errors import UserError, unknown_name
from svea.core.files import output_folder
from svea.core.importing import require_trust
from svea.core.words import plural
from svea.evaluation.episodes import parse_episodes
from svea.studies import slurm, supervise
from svea.studies.work import measured_speeds

Words = Annotated[tuple[str, ...] | None, tyro.conf.arg(metavar="[STR [STR ...]]")]
"""What is typed after a flag; None where the flag is not given."""


def run(arguments: list[str]) -> int:
    """Read the arguments and run the verb."""
    parts: dict[str, Callable[..., int | None]] = {
        "status": print_status,
        "cancel": cancel,
        "train": train_runs,
        "export": export_runs,
    }
    first = arguments[0] if arguments else ""
    if first in parts:
        return parse(parts[first], f"sweep {first}", arguments[1:])
    if difflib.get_close_matches(first, parts, n=1):  # no study file: those end in .toml
        raise unknown_name("part of sweep", first, parts)
    return parse(sweep, "sweep", arguments)


def sweep(
    study: Positional[Path | None] = None,
    tasks: Words = None,
    methods: Words = None,
    augments: Words = None,
    seeds: Words = None,
    set: tuple[str, ...] = (),
    modes: Words = None,
    episodes: Words = None,
    export: Annotated[str | None, tyro.conf.arg(metavar="PATH")] = None,
    out: Out = None,
    trust: bool = False,
    engine: tyro.conf.OmitArgPrefixes[EngineFlags] = DEFAULT_ENGINE,
) -> int:
    """Plan every combination and run it. The same command again continues where it stopped.

    Example: svea sweep --tasks walker_walk finger_spin --methods svea drq --seeds 0-4

    `svea sweep status STUDY` shows the progress of a study, `svea sweep cancel STUDY` stops it,
    `svea sweep train STUDY RUN ...` trains some of its runs in one process, and `svea sweep export
    STUDY RUN ...` exports them.

    Args:
        study: a .toml file with the grid, instead of the flags below.
        tasks: names of tasks.
        methods: names of methods; default: svea.
        augments: strong augmentations; default: each method's own.
        seeds: numbers and ranges, e.g. 0-4; default: 0.
        set: options of `svea train` for all runs, e.g. decisions=500000 recipe.alpha=1.
        modes: to evaluate in after training: modes, or groups as in `svea eval`.
        episodes: of that evaluation, per mode; `all` shows each of a mode's worlds once. Modes
            with numbers of their own follow as MODE=NUMBER: 20 color_hard=100 video_hard=all.
            Default: 30.
        export: folder for a small export of each agent (`svea export --small`), under its run's
            name, once it is trained.
        out: the study's folder; default runs/sweep, or runs/NAME for a file NAME.toml.
        trust: import the module of a method of your own that study.json names.
        engine: where and how to run.
    """
    axes = _given(
        tasks=tasks, methods=methods, augments=augments, seeds=" ".join(seeds) if seeds else seeds
    )
    counts = None if episodes is None else parse_episodes(episodes)
    flags = _given(modes=modes, episodes=counts, export=export)
    if study is not None:
        grids, settings = _read_file(study, axes, flags)
    elif tasks:
        grids, settings = [studies.Grid(**axes)], flags
    else:
        raise UserError("no tasks; give --tasks walker_walk ..., or a study file")
    common = flat(settings.pop("set", {})) | parse_settings(set)
    runs = studies.plan_runs(grids, common, **settings)
    if settings.get("export") == "":
        raise UserError("export is ''; allowed: the name of a folder")
    if "episodes" in settings and not settings.get("modes"):
        wanted = settings["episodes"]
        raise UserError(f"episodes is {wanted}, but no mode is named to play them in; add --modes")
    folder = output_folder(out or Path("runs") / (study.stem if study else "sweep"))
    return run_study(studies.open_study(folder, runs, attempts=engine.attempts), engine)


def _given(**flags: Any) -> dict[str, Any]:
    """The flags that were typed: a default is not given."""
    return {name: value for name, value in flags.items() if value is not None}


def _read_file(
    study: Path, axes: dict[str, Any], flags: dict[str, Any]
) -> tuple[list[studies.Grid], dict[str, Any]]:
    """The grids of a study file, and its settings with those that flags add."""
    if axes:
        name = next(iter(axes))
        raise UserError(
            f"--{name} is given next to the study file {study}, which says what to combine; write "
            f"{name} into the file, or leave it out and give flags alone"
        )
    grids, given = studies.read_study_file(study)
    for name in flags:
        if name in given:
            raise UserError(f"--{name} and the study file {study} both give {name}; give one")
    return grids, given | flags


def print_status(study: Positional[Path], json: bool = False, trust: bool = False) -> int:
    """Show the progress of a study, from its folders.

    Args:
        study: its folder.
        json: print JSON instead of a table.
        trust: import the module of a method of your own that study.json names.
    """
    states = studies.read_states(studies.read_study(study))
    if json:
        print(jsonlib.dumps(rows(states), indent=1))
        return 0
    print_table(table(states))  # type: ignore[arg-type]
    running = sum(state.state == "running" for state in states)
    print(headline(states, rate=running * statistics.fmean(measured_speeds(states) or [0.0])))
    return 0


def cancel(study: Positional[Path], trust: bool = False) -> int:
    """Let every run of a study save and stop, on any machine.

    Args:
        study: its folder.
        trust: import the module of a method of your own that study.json names.
    """
    found = studies.read_study(study)
    found.cancel()
    slurm.cancel(found.folder)
    running = sum(state.state == "running" for state in studies.read_states(found))
    saved = f"{plural(running, 'running run')} will save and stop"
    print(f"cancelled; {saved}; the same command continues")
    return 0


def train_runs(
    study: Positional[Path], runs: Positional[tuple[str, ...]], trust: bool = False
) -> int:
    """Train some runs of a study side by side in this process.

    Args:
        study: its folder.
        runs: their names.
        trust: import the module of a method of your own that study.json names.
    """
    found, chosen = _chosen(study, runs)
    supervise.train(found.folder, chosen)
    return 0


def export_runs(
    study: Positional[Path], runs: Positional[tuple[str, ...]], trust: bool = False
) -> int:
    """Export some runs of a study to where its plan says, the acting part of each alone.

    Args:
        study: its folder.
        runs: their names.
        trust: import the module of a method of your own that study.json names.
    """
    found, chosen = _chosen(study, runs)
    if bad := [run.name for run in chosen if not run.export]:
        raise UserError(f"the study has no folder to export {bad[0]} to; give --export FOLDER")
    if missing := [run for run in chosen if _is_missing(found, run)]:
        supervise.export(found.folder, missing)
    return 0


def _is_missing(study: studies.Study, run: studies.PlannedRun) -> bool:
    """Whether a run is to be exported; says so of one that is exported already."""
    missing = studies.read_progress(study.folder, run).missing_export
    if not missing:
        print(f"{run.name} is already exported to {run.export_folder}")
    return missing


def _chosen(study: Path, names: Sequence[str]) -> tuple[studies.Study, list[studies.PlannedRun]]:
    """A study, and those of its runs that are named."""
    found = studies.read_study(study)
    if not names:
        raise UserError("no run named; `svea sweep status STUDY` lists the study's runs")
    planned = {run.name: run for run in found.runs}
    for name in names:
        if name not in planned:
            raise unknown_name("run of this study", name, planned)
        if names.count(name) > 1:
            raise UserError(f"run {name} is named {names.count(name)} times; name each run once")
    chosen = [planned[name] for name in names]
    for run in chosen:
        require_trust(own_modules(run.values), study)
    return found, chosen
