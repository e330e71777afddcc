"""The verbs that carry out many runs: sweep, paper."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from svea.cli.arguments import Out, Positional, parse, tyro
from svea.errors import UserError
from svea.studies.engines import HERE, EngineFlags


def sweep(arguments: list[str]) -> int:
    """Carry out a study of many runs: here, on a Ray cluster or under SLURM."""

    def show(study: Positional[Path], json: bool = False) -> int:
        """Show how a study stands, from its folders.

        Args:
            study: its folder.
            json: print JSON instead of a table.
        """
        from svea.cli.sweep import status

        return status(study, json)

    def stop(study: Positional[Path]) -> int:
        """Let every run of a study save and stop, wherever it runs.

        Args:
            study: its folder.
        """
        from svea.cli.sweep import cancel

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
        from svea.cli.sweep import sweep as carry_out

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
        return carry_out(
            plan, engine.on, engine.resources(), speed=engine.speed, dry_run=engine.dry_run
        )

    parts: dict[str, Callable[..., int | None]] = {"status": show, "cancel": stop}
    if arguments and arguments[0] in parts:
        return parse(parts[arguments[0]], f"sweep {arguments[0]}", arguments[1:])
    return parse(command, "sweep", arguments)


def paper(arguments: list[str]) -> int:
    """Run and draw the paper's tables, figures and claims."""

    def command(
        what: Positional[str],
        scale: float = 1.0,
        seeds: tuple[str, ...] = ("0-4",),
        set: tuple[str, ...] = (),
        out: Out = None,
        render: bool = False,
        engine: tyro.conf.OmitArgPrefixes[EngineFlags] = HERE,
    ) -> int:
        """Train the runs behind a table or figure of the paper, and draw ours beside it.

        `svea paper list` names them; `svea paper claims` decides the paper's claims by the runs.

        Args:
            what: list, claims, or the name of a table or figure.
            scale: share of the paper's decisions, e.g. 0.01; marked as such everywhere.
            seeds: numbers and ranges.
            set: options of `svea train` that differ from the paper's; marked as such everywhere.
            out: the folder that all experiments share; default runs/paper, or runs/paper-scaled-...
            render: draw what is there and train nothing.
            engine: where and how to run.
        """
        from svea import studies
        from svea.console import print_table
        from svea.studies.paper import experiments as papers

        if what == "list":
            print_table(list_experiments())
            return 0
        changes = studies.parse_settings(set)
        size = papers.Scale(scale, " ".join(seeds), changes, engine.drop_replay)
        folder = (out or size.folder()).absolute()
        if what == "claims":
            if out is not None and not out.is_dir():
                raise UserError(
                    f"out is {str(out)!r}, which is no folder; allowed: one that `svea paper` has "
                    "written its runs to, or no --out"
                )
            return print_claims(size, folder)
        return carry_out_and_draw(what, size, folder, engine, render)

    return parse(command, "paper", arguments)


def list_experiments() -> list[dict[str, Any]]:
    """The rows of `svea paper list`."""
    from svea.studies import parse_seeds
    from svea.studies.paper.experiments import EXPERIMENTS, SEEDS

    return [
        {
            "name": one.name,
            "paper": one.where,
            "runs": len(one.tasks) * len(one.settings) * len(parse_seeds(SEEDS)),
            "about": one.about,
        }
        for one in EXPERIMENTS.values()
    ]


def print_claims(size: Any, folder: Path) -> int:
    """Each claim, the paper's figure, the rule that decides it, and ours."""
    from svea.studies.paper.claims import verdicts

    for line in size.caveats:
        print(line)
    for verdict in verdicts(size, folder):
        claim = verdict.claim
        print(f"{claim.text}\n  paper: {claim.paper}\n  ours:  {verdict.ours}")
        print(f"  rule:  {claim.rule}" + (f"\n  note:  {claim.note}" if claim.note else ""))
    return 0


def carry_out_and_draw(what: str, size: Any, folder: Path, engine: Any, only_draw: bool) -> int:
    """Train what an experiment of the paper needs, then draw it from the run folders."""
    from svea.cli.sweep import sweep as carry_out
    from svea.studies.paper.experiments import experiment
    from svea.studies.paper.pages import gather, render

    one, code = experiment(what), 0
    for line in (*size.caveats, *one.notes):
        print(line)
    if not only_draw:
        study = size.study(one, folder, engine.attempts)
        code = carry_out(
            study, engine.on, engine.resources(), speed=engine.speed, dry_run=engine.dry_run
        )
        if engine.dry_run or engine.on == "slurm":
            return code
    page, text = render(gather(one, size, folder), folder / "paper")
    print(f"{text}\n{page}")
    return code
