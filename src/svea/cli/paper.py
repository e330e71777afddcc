"""`svea paper`: the paper's tables, figures and claims."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from svea.cli.arguments import Out, Positional, parse, tyro
from svea.cli.study import DEFAULT_ENGINE, EngineFlags, run_study
from svea.core.errors import UserError
from svea.core.files import output_folder


def run(arguments: list[str]) -> int:
    """Read the arguments and run the verb."""
    return parse(command, "paper", arguments or ["list"])


def command(
    what: Positional[str],
    scale: float = 1.0,
    seeds: tuple[str, ...] = ("0-4",),
    set: tuple[str, ...] = (),
    out: Out = None,
    render: bool = False,
    yes: bool = False,
    engine: tyro.conf.OmitArgPrefixes[EngineFlags] = DEFAULT_ENGINE,
) -> int:
    """Train the runs behind a table or figure of the paper, and draw ours next to it.

    Example: svea paper table1 --scale 0.1 --dry-run

    `svea paper list` names them; `svea paper claims` decides the paper's claims by the runs.

    Args:
        what: list, claims, or the name of a table or figure.
        scale: share of the paper's decisions, e.g. 0.01; marked as such everywhere.
        seeds: numbers and ranges.
        set: options of `svea train` that differ from the paper's; marked as such everywhere.
        out: the folder that all experiments share; default runs/paper, or runs/paper-scaled-...
        render: draw what is there and train nothing.
        yes: start without asking; needed where there is no terminal to ask on.
        engine: where and how to run.
    """
    from svea import studies
    from svea.cli.printing import print_table
    from svea.paper import experiments as papers

    if what == "list":
        print_table(list_experiments())
        return 0
    changes = studies.parse_settings(set)
    size = papers.Scale(scale, " ".join(seeds), changes)
    folder = output_folder(out or size.folder()).absolute()
    if what == "claims":
        if out is not None and not out.is_dir():
            raise UserError(
                f"out is {str(out)!r}, which is not a folder; allowed: one that `svea paper` "
                "has written its runs to, or no --out"
            )
        return print_claims(size, folder)
    return run_and_draw(what, size, folder, engine, render, confirm=not yes)


def list_experiments() -> list[dict[str, Any]]:
    """The rows of `svea paper list`."""
    from svea.paper.experiments import EXPERIMENTS, SEEDS
    from svea.studies import parse_seeds

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
    """Each claim, the paper's number, the rule that decides it, and ours."""
    from svea.cli.printing import say
    from svea.core.terminal import Steps
    from svea.paper.claims import verdicts

    for line in size.caveats:
        say(line)
    with Steps("claims") as steps:
        steps.doing("reading runs")
        decided = verdicts(size, folder)
    for verdict in decided:
        claim = verdict.claim
        say(f"{claim.text}\n  paper: {claim.paper}\n  ours:  {verdict.ours}")
        say(f"  rule:  {claim.rule}" + (f"\n  note:  {claim.note}" if claim.note else ""))
    return 0


def run_and_draw(
    what: str, size: Any, folder: Path, engine: Any, only_draw: bool, confirm: bool
) -> int:
    """Train what an experiment of the paper needs, then draw it from the run folders."""
    from svea.cli.printing import say
    from svea.core.terminal import Steps
    from svea.paper.experiments import experiment
    from svea.paper.pages import render
    from svea.paper.results import gather

    one, code = experiment(what), 0
    for line in (*size.caveats, *one.notes):
        say(line)
    if not only_draw:
        study = size.study(one, folder, engine.attempts)
        code = run_study(study, engine, confirm)
        if engine.dry_run or engine.on == "slurm":
            return code
    with Steps("pages") as steps:
        steps.doing(f"drawing {what}")
        page, text = render(gather(one, size, folder), folder / "paper")
    print(f"{text}\n{page}")
    return code
