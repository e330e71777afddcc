"""docs/miniature.md: the whole paper in miniature, from the runs of results/mini/."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from model_cards import wrap
from published_runs import QUICK, provenance, read_published

from svea.config import configure
from svea.core.words import listed
from svea.paper import Paper
from svea.paper.claims import Verdict, verdicts
from svea.paper.experiments import Edition
from svea.paper.pages import ExperimentResults, gather, require_planned, tables
from svea.results.read import Run
from svea.results.tables import ABOUT, NOT_A_REPLICATION, SPREAD, Table, to_markdown
from svea.runs import layout
from svea.studies import PlannedRun

PAGE = "docs/miniature.md"
MINI = Edition(name="mini")
SAID = {name: value for name, value in QUICK.items() if name != "encoder"}
INTRODUCTION = """The paper's tables, figures and claims, made again at a size that a laptop has
done in a night: `svea paper all --edition mini --dry-run` says what that takes on yours, and the
same command without `--dry-run` does it. `make results` writes this page from the runs in
[`results/mini/`](../results/README.md). All methods share one setting. Its
[tasks were chosen](../results/mini/README.md) by DrQ's runs alone, on other seeds, and nothing is
tuned for SVEA. Returns are those of small agents after few decisions: what compares with the paper
is which method is ahead, not by how much."""


def page(root: Path) -> str:
    """The page; without runs it says so."""
    planned = Paper(edition=MINI.name).runs("all")
    runs = published(root / "results/mini", planned)
    found = [gather(one, MINI, root / "results/mini") for one in MINI.experiments.values()]
    lines = [
        "# The paper in miniature",
        "",
        wrap(f"**{MINI.caveats[0]}**"),
        "",
        wrap(INTRODUCTION),
        "",
    ]
    lines += [wrap(_setting()), "", *_runs(runs, len(planned), found)]
    if runs:
        lines += _claims(verdicts(MINI, root / "results/mini"))
        for one in found:
            lines += _experiment(one) if one.finished else ()
    return "\n".join(lines)


def published(place: Path, planned: Sequence[PlannedRun]) -> list[Run]:
    """The runs, each of them one of the edition's."""
    runs = read_published(place, SAID) if any(place.glob(f"*/{layout.CONFIG}")) else []
    if strangers := {run.folder.name for run in runs} - {run.name for run in planned}:
        raise SystemExit(f"runs that are not the edition's in {place}: {listed(sorted(strangers))}")
    for run in planned:
        if (place / run.name).exists():
            require_planned(place / run.name, run)
    return runs


def _setting() -> str:
    """What all runs share."""
    tasks, robots, values = (MINI.sizes[key] for key in ("tasks", "robots", "set"))
    names = ", ".join(f"`{task}`" for task in (*tasks, *robots))
    config = configure(tasks[0], **values)
    return (
        f"Tasks: {names}. {config.network.layers} convolutions of {config.network.filters} "
        f"filters, hidden layers of {config.network.hidden}, batches of {config.batch_size}, "
        f"{config.sac.n_step}-step returns, one environment, a replay of the whole run; seeds "
        f"{MINI.seeds}. Final agents play {MINI.sizes['episodes']} episodes a mode (robot: 25) "
        "with their most likely actions. [`editions.toml`](../src/svea/paper/editions.toml) has "
        "all of it for every experiment, with the reasons."
    )


def _runs(runs: Sequence[Run], planned: int, found: Sequence[ExperimentResults]) -> Iterator[str]:
    """How many runs there are, what is still to run, and how to read what is shown of them."""
    about = map(provenance, runs)
    hours = sum(one.get("processor_seconds", one["wall_seconds"]) for one in about) / 3600
    if runs:
        left = (planned - len(runs)) * hours / len(runs)
        yield wrap(
            f"{len(runs)} of {planned} runs are published, {hours:,.1f} hours of one core; the "
            f"others would take about {left:,.1f}. {SPREAD} In parentheses: the paper, "
            f"{NOT_A_REPLICATION} where ours is shown, as it is no replication; {ABOUT} read off a "
            "plot."
        )
    else:
        yield f"**No run is published yet**, of {planned}."
    rows = [
        {
            "experiment": one.experiment.name,
            "paper": one.experiment.where,
            "shows": one.experiment.about,
            "runs": f"{one.finished} of {one.planned}",
        }
        for one in found
    ]
    yield from ("", to_markdown(Table.of("runs", rows)))


def _claims(decided: Sequence[Verdict]) -> Iterator[str]:
    """The claims, each with our number and one word, and the rules below."""
    rows = [
        {
            "": str(number),
            "claim": verdict.claim.text,
            "paper": verdict.claim.paper,
            "ours [95 %]": verdict.ours,
            "could have shown": verdict.smallest,
            "miniature": f"**{verdict.word}**",
        }
        for number, verdict in enumerate(decided, start=1)
    ]
    yield from ("## The claims", "")
    yield wrap(
        "Intervals are t intervals of a difference of means over seeds, averaged over tasks; half "
        "of one is the smallest difference that so many seeds could have shown. A claim holds, or "
        "does not, where the interval is on one side of zero."
    )
    yield from ("", to_markdown(Table.of("claims", rows)), "The rules:", "")
    for number, verdict in enumerate(decided, start=1):
        note = f" ({verdict.claim.note})" if verdict.claim.note else ""
        yield wrap(f"{number}. {verdict.claim.rule}{note}.")
    yield ""


def _experiment(one: ExperimentResults) -> Iterator[str]:
    """The tables of an experiment."""
    about = one.experiment
    seeds = sorted({len(runs) for runs in one.runs.values() if runs})
    counts = " to ".join(map(str, dict.fromkeys((seeds[0], seeds[-1]))))
    said = f"Paper: {about.where}. Seeds of those that have run: {counts}."
    notes = (f"Note: {note}." for note in about.notes)
    yield from (
        f"## {about.name}, miniature: {about.about}",
        "",
        wrap(" ".join([said, *notes])),
        "",
    )
    for table in tables(one):
        yield to_markdown(table)
