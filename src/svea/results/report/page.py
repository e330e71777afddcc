"""The page of a report: what its sections hold. `templates/report.html.j2` says how they look."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib import resources
from typing import TYPE_CHECKING, Any

import jinja2
import numpy as np
from markupsafe import Markup

from svea.core.words import count, decisions, duration, listed, number, plural, rate
from svea.results import figures, plots, published
from svea.results.groups import Group, all_caveats
from svea.results.plots import color_of
from svea.results.read import Curve, Run
from svea.results.report.media import Media
from svea.results.summary import Result, mean_curve
from svea.results.tables import Table, list_results, success_table
from svea.runs import layout

if TYPE_CHECKING:
    from svea.results.report import Evidence

FEW_CAVEATS = 8  # more are folded


@dataclass(frozen=True)
class Chart:
    """A figure on the page."""

    svg: Markup
    name: str
    """Of the file, when it is taken from the page."""
    caption: str
    methods: str
    """The method of each of its series, as JSON."""


@dataclass(frozen=True)
class Section:
    """A part of the page that the bar links to; empty ones are left out."""

    anchor: str
    name: str
    """In the bar."""
    title: str = ""
    figures: dict[str, list[Chart]] = field(default_factory=dict)
    """By task."""
    tables: Sequence[Table] = ()
    lead: str = ""
    kind: str = ""
    blocks: Sequence[tuple[Group, Any]] = ()
    """Pictures, group by group."""

    @property
    def notes(self) -> list[str]:
        """How to read the tables, each sentence once."""
        return list(dict.fromkeys(note for table in self.tables for note in table.notes))


def render(evidence: Evidence, generated: datetime, title: str = "") -> str:
    """The whole page as text."""
    media = Media(evidence.groups)
    caveats: dict[str, list[str]] = {p: [] for p in (*evidence.problems, *media.left_out)}
    caveats |= all_caveats(evidence.groups)
    groups, results = evidence.groups, list_results(evidence.results, evidence.successes)
    success = success_table(evidence.successes)
    several = len(groups) > 1  # one setting alone has all of it in the table of all results
    steps = next_steps(groups, evidence.results)
    sections = [
        Section("gallery", "Gallery", "What it does", blocks=media.of_modes(), kind="modes",
                lead="Videos of the final policy in each mode, and frames of them."),
        Section("overview", "Overview"),
        *([Section("caveats", "Caveats")] if caveats else []),
        _topic(evidence, figures.LEARNING, "Learning"),
        _topic(evidence, figures.GENERALISATION, "Generalisation",
               evidence.return_tables() if several else ()),
        _topic(evidence, figures.ROBOT, "Robot", [success] if success else ()),
        _topic(evidence, figures.Q_VALUES, "Q-values"),
        *([Section("results", "Results")] if results.rows else []),
        Section("saliency", "Saliency", "Saliency", blocks=media.of_analyses(),
                kind="modes pictures",
                lead="Where the encoder looks: what in the picture its answer depends on."),
        *([Section("next", "What next")] if steps else []),
        Section("runs", "Runs"),
    ]  # fmt: skip
    fixed = ("overview", "caveats", "results", "next", "runs")
    shown = [s for s in sections if s.anchor in fixed or s.figures or s.tables or s.blocks]
    return _template().render(
        title=title or _title(groups),
        date=generated.strftime("%Y-%m-%d %H:%M %Z").strip(),
        sections=shown,
        groups=groups,
        runs=evidence.runs,
        tasks=sorted({group.task for group in groups}),
        methods=sorted({group.method for group in groups}),
        study=study(evidence.runs) if len(evidence.runs) > 1 else None,
        cards=cards(groups, evidence.results, evidence.successes),
        caveats=caveats,
        few_caveats=FEW_CAVEATS,
        next_steps=steps,
        results=_without_repetition(results),
        citation=published.CITATION,
    )


def _template() -> jinja2.Template:
    """The page with its style and script; every text that is put into it is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("svea.results.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    parts = resources.files("svea.results.report") / "templates"
    environment.globals |= {
        "style": Markup((parts / "report.css").read_text(encoding="utf-8")),
        "script": Markup((parts / "report.js").read_text(encoding="utf-8")),
        "as_json": _as_json,
        "decisions": decisions,
        "duration": duration,
        "listed": listed,
        "plural": plural,
    }
    return environment.get_template("report.html.j2")


def _as_json(config: dict[str, Any]) -> str:
    """A configuration to be read."""
    return json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False)


def _title(groups: Sequence[Group]) -> str:
    """What the page is about, as short as it can be said."""
    tasks = list(dict.fromkeys(group.task for group in groups))
    labels = list(dict.fromkeys(group.label for group in groups))
    left = labels[0] if len(labels) == 1 else f"{len(labels)} settings"
    right = tasks[0] if len(tasks) == 1 else f"{len(tasks)} tasks"
    return f"{left} on {right}"


def _topic(evidence: Evidence, topic: str, name: str, tables: Sequence[Table] = ()) -> Section:
    """The figures of a topic, task by task, and the tables below them."""
    charts: dict[str, list[Chart]] = {}
    for place, one in enumerate(evidence.figures):
        if one.topic == topic:
            svg = Markup(plots.to_svg(one.figure, f"f{place}"))
            chart = Chart(svg, one.name, one.caption, json.dumps(one.methods))
            charts.setdefault(one.task, []).append(chart)
    title = "Robot: success" if topic == figures.ROBOT else name
    return Section(topic, name, title, charts, tables)


def _without_repetition(table: Table) -> Table:
    """The table without its task and setting where all rows have the same."""
    rows = [row.cells for row in table.rows]
    kept = [
        n
        for n, column in enumerate(table.columns)
        if column.title not in ("task", "setting") or len({cells[n].text for cells in rows}) > 1
    ]
    return dataclasses.replace(
        table,
        columns=tuple(table.columns[n] for n in kept),
        rows=tuple(
            dataclasses.replace(row, cells=tuple(row.cells[n] for n in kept)) for row in table.rows
        ),
    )


FEW_CARDS = 3  # more have fewer numbers each
OF_ONE_SEED = {"--seed", "--seeds", "--out", "-o"}  # flags of `svea train`: seeds and their folder
SPARK_POINTS = 60  # of the small curve on a card: more do not show at its size


@dataclass(frozen=True)
class Tile:
    """A large number with its name, and what it means next to another."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class Card:
    """What a reader looks for first about a group."""

    group: Group
    tiles: list[Tile]
    size: str
    badges: list[str]
    """What a reader must not miss."""
    curves: dict[str, str]
    """The points of the small learning curve of each mode, in a box of 120 × 36."""
    color: int
    """Of its method, as in every figure."""


@dataclass(frozen=True)
class Step:
    """What would make the evidence better, and the command for it."""

    why: str
    command: str


def next_steps(groups: Sequence[Group], results: Sequence[Result]) -> list[Step]:
    """What is missing on the page, the most useful first."""
    runs = [run for group in groups for run in group.runs]
    names = shlex.join(run.name for run in runs) if len(runs) <= FEW_CARDS else "RUNS"
    tested = {id(result.group) for result in results if result.mode != "train"}
    steps: list[Step] = []
    if unfinished := [run for run in runs if not run.finished and _can_continue(run)]:
        what = "it" if len(unfinished) == 1 else "them"
        why = f"{plural(len(unfinished), 'run')} can be continued by the command that began {what}."
        steps.append(Step(why, unfinished[0].command or "svea train …"))
    if any(id(group) not in tested for group in groups):
        why = "Not evaluated in worlds that training never showed."
        steps.append(Step(why, f"svea eval {names} --modes all --episodes all"))
    if not any(math.isfinite(result.random) for result in results):
        why = "The random policy is missing: it says what a return is worth."
        steps.append(Step(why, f"svea eval {names} --modes train --random-policy"))
    if not any(run.media(".mp4") for run in runs):
        why = "There are no videos: they show what a return cannot."
        steps.append(Step(why, f"svea eval {names} --modes train color_hard --videos"))
    if all(len(group.runs) == 1 for group in groups):
        why = "One seed says nothing about other seeds."
        steps.append(Step(why, _with_more_seeds(groups[0].runs[0])))
    return steps


def _can_continue(run: Run) -> bool:
    """Whether a run has kept what it takes: an export has not, nor one without its replay."""
    return not layout.is_export(run.folder) and run.config.get("save_replay") is not False


def _with_more_seeds(run: Run) -> str:
    """The command that made a run, with other seeds: of another setting they would not compare."""
    try:
        words = shlex.split(run.command or "")
    except ValueError:  # a quote without its end
        words = []
    if words[:2] == ["svea", "sweep"]:
        return "svea sweep … --seeds 0-4"  # what the study was given; the run does not know it
    if words[:2] != ["svea", "train"]:
        words = ["svea", "train", run.task, "--method", run.method, "--preset", run.preset]
    kept, flag = [], ""
    for before, word in itertools.pairwise(["", *words]):
        flag = word if word.startswith("-") else flag
        is_value = word != flag and (before in OF_ONE_SEED or flag == "--seeds")  # of any number
        if not is_value and word.partition("=")[0] not in OF_ONE_SEED:
            kept.append(word)
    return shlex.join([*kept, "--seeds", "0-4"])


def study(runs: Sequence[Run]) -> list[Tile]:
    """How large the whole is."""
    finished = sum(run.finished for run in runs)
    seconds = [run.seconds for run in runs if run.seconds is not None]
    total = sum(run.decisions_done for run in runs)
    # Exports have no log, so their decisions are known and their time is not.
    timed = f"of {len(seconds)} of {plural(len(runs), 'run')}" if len(seconds) < len(runs) else ""
    return [
        Tile("runs", count(len(runs)), f"{finished} finished" if finished < len(runs) else ""),
        Tile("tasks", str(len({run.task for run in runs}))),
        Tile("methods", str(len({run.method for run in runs}))),
        Tile("seeds", str(len({run.seed for run in runs}))),
        Tile("decisions in all", count(total)),
        Tile("wall time in all", *((duration(sum(seconds)), timed) if seconds else ("–",))),
    ]


def cards(
    groups: Sequence[Group], results: Sequence[Result], successes: Sequence[Result]
) -> list[Card]:
    """One card per group."""
    return [
        Card(
            group,
            list(_tiles(group, results, successes, brief=len(groups) > FEW_CARDS)),
            _size(group),
            list(_badges(group)),
            _curves(group),
            color_of(group.method),
        )
        for group in groups
    ]


def _tiles(
    group: Group, results: Sequence[Result], successes: Sequence[Result], *, brief: bool
) -> Iterator[Tile]:
    """Train and test return against the random policy, and how long they took."""
    by_mode = {result.mode: result for result in results if result.group is group}
    train, test = by_mode.get("train"), by_mode.get(group.test_mode or "")
    if train is not None:
        note = f"{train.times_random:.1f}× random" if train.times_random > 0 else ""
        yield Tile("return in training", number(train.mean), note)
    if test is not None:
        kept = test.percent_of_train
        note = f"{kept:.0f} % of training" if math.isfinite(kept) else ""
        yield Tile(f"return in {test.mode}", number(test.mean), note)
    for success in [one for one in successes if one.group is group][:2]:
        yield Tile(f"success in {success.mode}", rate(success.mean))
    if not brief:
        yield from _background(group, train or test)
    if not by_mode:
        yield Tile("no evaluation yet", "–")


def _background(group: Group, result: Result | None) -> Iterator[Tile]:
    """What a return is to be seen against: the random policy's, and the time it took."""
    if result is not None and math.isfinite(result.random):
        yield Tile("random policy", number(result.random))
    seconds = [run.seconds for run in group.runs if run.seconds is not None]
    if seconds:
        each = " (mean)" if len(seconds) > 1 else ""
        yield Tile(f"wall time{each}", duration(float(np.mean(seconds))))


def _size(group: Group) -> str:
    """Seeds, decisions and frames of a group in words."""
    done = max(run.decisions_done for run in group.runs)
    run = group.runs[0]
    seeds = plural(len(group.runs), "seed")
    return f"{seeds} · {decisions(done, run.action_repeat)} · preset {run.preset}"


def _badges(group: Group) -> Iterator[str]:
    """What a reader must not miss."""
    if group.departures:
        yield "not a replication"
    unfinished = sum(not run.finished for run in group.runs)
    if unfinished:
        yield f"{unfinished} unfinished"


def _curves(group: Group) -> dict[str, str]:
    """The learning curves of a group, train and first test mode, as small as a word."""
    found = {
        mode: mean.curve
        for mode in ("train", group.test_mode)
        if mode and (mean := mean_curve(run.evaluation_curve(mode) for run in group.runs))
    }
    found = {mode: curve for mode, curve in found.items() if curve.decisions.size > 1}
    if not found:
        return {}
    right = max(curve.decisions[-1] for curve in found.values())
    heights = np.concatenate([curve.returns for curve in found.values()])
    bottom, top = min(0.0, float(heights.min())), max(float(heights.max()), 1e-9)
    return {mode: _polyline(curve, right, bottom, top) for mode, curve in found.items()}


def _polyline(curve: Curve, right: float, bottom: float, top: float) -> str:
    """The points of a curve in a box of 120 × 36."""
    spread = np.linspace(0, curve.decisions.size - 1, SPARK_POINTS).round().astype(int)
    chosen = np.unique(spread)
    x = 2 + 116 * curve.decisions[chosen] / max(right, 1e-9)
    y = 34 - 32 * (curve.returns[chosen] - bottom) / (top - bottom)
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
