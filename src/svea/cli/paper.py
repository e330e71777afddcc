"""`svea paper`: the paper's tables, figures and claims."""

from typing import Any

import tyro

from svea.cli.arguments import Out, Positional
from svea.cli.printing import print_table, say
from svea.cli.sweep import DEFAULT_ENGINE, EngineFlags, run_study
from svea.config.presets import parse_settings
from svea.core.errors import UserError
from svea.core.files import output_folder
from svea.core.terminal import Steps


def paper(
    what: Positional[str] = "list",
    scale: float = 1.0,
    seeds: tuple[str, ...] = ("0-4",),
    set: tuple[str, ...] = (),
    edition: str = "paper",
    out: Out = None,
    render: bool = False,
    yes: bool = False,
    engine: tyro.conf.OmitArgPrefixes[EngineFlags] = DEFAULT_ENGINE,
) -> int:
    """Train the runs behind a table or figure of the paper, and draw ours next to it.

    Example: svea paper table1 --edition mini --dry-run

    `svea paper list` names them, `svea paper all` takes all of them, and `svea paper claims`
    decides the paper's claims by the runs.

    Args:
        what: list, claims, all, or the name of a table or figure.
        scale: share of the paper's decisions, e.g. 0.01; marked as such everywhere.
        seeds: numbers and ranges.
        set: options of `svea train` that differ from the edition's; marked as such everywhere.
        edition: paper, or mini: the whole paper on a laptop, with small pictures and networks and
            few decisions; marked as such everywhere.
        out: the folder that all experiments share; default runs/paper, runs/paper-mini, or
            runs/paper-scaled-...
        render: draw what is there and train nothing.
        yes: start without asking; needed where there is no terminal to ask on.
        engine: where and how to run.
    """
    try:
        from svea.paper import Paper
    except ModuleNotFoundError as error:
        if error.name != "svea.paper":
            raise
        raise UserError("this installation lacks svea/paper: install all of svea") from None
    experiment = Paper(scale, " ".join(seeds), parse_settings(set), edition)
    if what == "list":
        print_table(experiment.experiments())
        return 0
    experiment.folder = output_folder(out or experiment.folder).absolute()
    if what == "claims":
        if out is not None and not out.is_dir():
            raise UserError(f"out is {str(out)!r}; allowed: a folder that `svea paper` has written")
        return print_claims(experiment)
    return run_and_draw(what, experiment, engine, render, confirm=not yes)


def print_claims(paper: Any) -> int:
    """Each claim, the paper's number, the rule that decides it, and ours."""
    for line in paper.notes():
        say(line)
    with Steps("claims") as steps:
        steps.doing("reading runs")
        decided = paper.claims()
    for verdict in decided:
        claim = verdict.claim
        smallest = verdict.smallest and f"\n  could have shown: {verdict.smallest}"
        say(f"{claim.text}: {verdict.word}\n  paper: {claim.paper}\n  ours:  {verdict.ours}")
        say(f"  rule:  {claim.rule}{smallest}" + (f"\n  note:  {claim.note}" if claim.note else ""))
    return 0


def run_and_draw(what: str, paper: Any, engine: Any, only_draw: bool, confirm: bool) -> int:
    """Train what an experiment of the paper needs, then draw it from the run folders."""
    code = 0
    for line in paper.notes(what):
        say(line)
    if not only_draw:
        study = paper.study(what, engine.attempts)
        code = run_study(study, engine, confirm)
        if engine.dry_run:
            for line in paper.forecast(study):
                say(line)
        if engine.dry_run or engine.on == "slurm":
            return code
    with Steps("pages") as steps:
        steps.doing(f"drawing {what}")
        pages = paper.render(what)
    for page, text in pages:
        print(f"{text}\n{page}")
    return code
