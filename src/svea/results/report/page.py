"""The page of a report: what its sections hold. `templates/report.html.j2` says how they look."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from importlib import resources
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup

from svea.core.words import decisions, duration, listed, plural
from svea.results import Group, all_caveats, figures, plots, published
from svea.results.report import cards
from svea.results.report.media import Media
from svea.results.tables import Table
from svea.results.tables.results import list_results, success_table

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
    steps = cards.next_steps(groups, evidence.results)
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
        study=cards.study(evidence.runs) if len(evidence.runs) > 1 else None,
        cards=cards.cards(groups, evidence.results, evidence.successes),
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
    for number, exhibit in enumerate(evidence.exhibits):
        if exhibit.topic == topic:
            svg = Markup(plots.to_svg(exhibit.figure, f"f{number}"))
            chart = Chart(svg, exhibit.name, exhibit.caption, json.dumps(exhibit.methods))
            charts.setdefault(exhibit.task, []).append(chart)
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
