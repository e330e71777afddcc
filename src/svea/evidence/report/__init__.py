"""The report: one self-contained HTML page about one run or many, to look at and to send.

The page needs no network: styles, script, figures, frames and videos are inside. It never lets a
small run pass for a replication: whatever is smaller than the paper's setting is said next to it.
"""

from __future__ import annotations

import contextlib
import csv
import html
import io
import json
import math
import os
import re
import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

import numpy as np

from svea.envs import describe
from svea.errors import StorageError
from svea.evidence import figures, plots, published, tables
from svea.evidence.figures import Exhibit
from svea.evidence.read import Curve, Run, read_runs
from svea.evidence.report.markup import Markup, element, join
from svea.evidence.report.media import Album
from svea.evidence.results import (
    Aggregate,
    Group,
    Result,
    Success,
    aggregate,
    caveats,
    group_runs,
    mean_curve,
    summarise,
    summarise_success,
)
from svea.words import count, decisions, duration, listed, number, plural, rate

BOOTSTRAP_SEED = 0
FEW_CAVEATS = 8  # more are folded
FEW_CARDS = 3  # more have fewer figures each
SPARK_POINTS = 60  # of the small curve on a card: more do not show at its size


@dataclass(frozen=True, eq=False)
class Evidence:
    """Everything a report shows, computed once from run folders."""

    groups: list[Group]
    results: list[Result]
    aggregates: list[Aggregate]
    successes: list[Success]
    exhibits: list[Exhibit]
    problems: list[str]
    """Folders that are no runs, each with the reason."""

    @property
    def runs(self) -> list[Run]:
        """Every run, group by group."""
        return [run for group in self.groups for run in group.runs]


def gather(folders: Sequence[Path]) -> Evidence:
    """Read runs and compute what there is to show.

    Raises:
        UserError: None of the folders is a run.
    """
    runs, problems = read_runs([Path(folder) for folder in folders])
    generator = np.random.default_rng(BOOTSTRAP_SEED)
    groups = group_runs(runs)
    results = [result for group in groups for result in summarise(group, generator)]
    successes = [one for group in groups for one in summarise_success(group, generator)]
    shown = figures.exhibits(groups, results, successes, generator)
    pooled = aggregate(groups, generator)
    return Evidence(groups, results, pooled, successes, shown, problems)


def write_report(
    runs: Sequence[Path],
    out: Path,
    *,
    figures_dir: Path | None = None,
    generated: datetime | None = None,
    on_problem: Callable[[str], None] = lambda problem: None,
) -> Path:
    """Write one HTML page about runs.

    Args:
        runs: Run folders, or folders with runs beneath them.
        out: The page; or an existing folder, which then gets `report.html`.
        figures_dir: Also write the figures, tables and numbers as files into this folder.
        generated: The date printed on the page; now, unless given.
        on_problem: Called with each folder that is no run, and each damage to one that is.

    Returns:
        The path of the page.

    Raises:
        UserError: None of the folders is a run.
        StorageError: A file cannot be written.
    """
    evidence = gather(runs)
    out = Path(out)
    out = out / "report.html" if out.is_dir() else out
    _write(out, render(evidence, generated or datetime.now(UTC)).encode())
    if figures_dir is not None:
        write_figures(evidence, Path(figures_dir))
    for problem in evidence.problems:
        on_problem(problem)
    for run in evidence.runs:
        for warning in run.warnings:
            on_problem(f"{run.name}: {warning}")
    return out


def write_figures(evidence: Evidence, folder: Path) -> list[Path]:
    """Write figures as PNG, PDF and CSV, tables as LaTeX and Markdown, and all results as CSV.

    Returns:
        The files.
    """
    files: dict[str, bytes] = {}
    for exhibit in evidence.exhibits:
        name = _unused(_file_name(exhibit.name), files)
        files[f"{name}.png"] = plots.to_png(exhibit.figure, dpi=200)
        files[f"{name}.pdf"] = plots.to_pdf(exhibit.figure)
        files[f"{name}.csv"] = _csv(exhibit.numbers)
    for table in _tables(evidence):
        name = _unused("table-" + _file_name(table.name), files)
        files[f"{name}.tex"] = tables.to_latex(table).encode()
        files[f"{name}.md"] = tables.to_markdown(table).encode()
    files["results.csv"] = _csv(tables.result_rows(evidence.results))
    if evidence.successes:
        files["success.csv"] = _csv(tables.success_rows(evidence.successes))
    for name, content in files.items():
        _write(folder / name, content)
    return [folder / name for name in files]


def render(evidence: Evidence, generated: datetime) -> str:
    """The whole page as text."""
    album = Album(evidence.groups)
    sections = [
        ("overview", "Overview", _overview(evidence)),
        ("caveats", "Caveats", _caveats_section(evidence, album.left_out)),
        ("learning", "Learning", _topic(evidence, figures.LEARNING, "Learning")),
        ("generalisation", "Generalisation", _generalisation_section(evidence)),
        ("robot", "Robot", _robot_section(evidence)),
        ("q-values", "Q-values", _topic(evidence, figures.Q_VALUES, "Q-values")),
        ("results", "Returns", _results_section(evidence.results)),
        ("gallery", "Gallery", album.gallery()),
        ("saliency", "Saliency", album.analyses()),
        ("runs", "Runs", _runs_section(evidence.groups)),
    ]
    shown = [(anchor, name, body) for anchor, name, body in sections if body]
    title = _title(evidence.groups)
    body = join(
        [
            _header(title, evidence, generated),
            _bar([(anchor, name) for anchor, name, _ in shown], evidence.groups),
            element(
                "main",
                *(element("section", body, id=anchor) for anchor, _, body in shown),
                element("p", "No run matches both choices.", id="nothing", hidden=""),
            ),
            _footer(),
        ]
    )
    parts = resources.files("svea.evidence.report")
    return string.Template((parts / "report.html").read_text(encoding="utf-8")).substitute(
        title=html.escape(title),
        style=(parts / "report.css").read_text(encoding="utf-8"),
        script=(parts / "report.js").read_text(encoding="utf-8"),
        body=body,
    )


# --- Files


def _write(path: Path, content: bytes) -> None:
    """Write a file whole or not at all."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        beside.write_bytes(content)
        os.replace(beside, path)
    except OSError as error:
        raise StorageError(f"cannot write {str(path)!r}: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):  # only there if it was not moved
            beside.unlink()


def _file_name(text: str) -> str:
    """A name that every file system takes, and that leads nowhere else."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-")[:100] or "unnamed"


def _unused(name: str, files: dict[str, bytes]) -> str:
    """The name, or the name with the first number behind it that no file has yet."""
    taken = {Path(file).stem for file in files}
    numbered = (f"{name}-{place}" for place in range(2, len(taken) + 3))
    return next(one for one in (name, *numbered) if one not in taken)


def _csv(rows: Sequence[tables.Row]) -> bytes:
    """Rows with their header; what is not a number is an empty field."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        missing = {k for k, v in row.items() if isinstance(v, float) and math.isnan(v)}
        writer.writerow({k: "" if k in missing else v for k, v in row.items()})
    return text.getvalue().encode()


# --- Head and foot


def _title(groups: Sequence[Group]) -> str:
    """What the page is about, as short as it can be said."""
    tasks = list(dict.fromkeys(group.task for group in groups))
    labels = list(dict.fromkeys(group.label for group in groups))
    left = labels[0] if len(labels) == 1 else f"{len(labels)} settings"
    right = tasks[0] if len(tasks) == 1 else f"{len(tasks)} tasks"
    return f"{left} on {right}"


def _header(title: str, evidence: Evidence, generated: datetime) -> Markup:
    """Title and date."""
    date = generated.strftime("%Y-%m-%d %H:%M %Z").strip()
    words = f"{plural(len(evidence.runs), 'run')} · svea report of {date}"
    return element("header", element("h1", title), element("p", words), class_="top")


def _bar(links: Sequence[tuple[str, str]], groups: Sequence[Group]) -> Markup:
    """What stays in sight: links to the sections, filters where there is a choice, the theme."""
    anchors = [element("a", name, href=f"#{anchor}") for anchor, name in links]
    controls = [
        _filter("task", sorted({group.task for group in groups})),
        _filter("method", sorted({group.method for group in groups})),
        element("button", "◐", id="theme", type="button", title="light or dark"),
    ]
    return element(
        "nav",
        element(
            "div",
            element("div", *anchors, class_="links"),
            element("div", *controls, class_="controls"),
        ),
        class_="bar",
    )


def _filter(kind: str, values: Sequence[str]) -> Markup | None:
    """A drop-down that narrows the page to one task or method."""
    if len(values) < 2:
        return None
    options = [element("option", f"all {kind}s", value="")]
    options += [element("option", value, value=value) for value in values]
    return element("select", *options, data_filter=kind, aria_label=f"show {kind}")


def _footer() -> Markup:
    """How to read the numbers."""
    return element(
        "footer",
        "A decision is one choice of the agent; a frame is one step of the simulator (decisions × "
        "action repeat). Paper figures: ",
        published.CITATION,
        "; its CURL, RAD, PAD and SODA figures on the benchmark are quoted there from the SODA "
        "paper.",
    )


# --- Overview and caveats


def _overview(evidence: Evidence) -> Markup:
    """The study in a line, then one card per group: the figures a reader looks for first."""
    cards = [
        _card(
            group,
            [r for r in evidence.results if r.group is group],
            [s for s in evidence.successes if s.group is group],
            brief=len(evidence.groups) > FEW_CARDS,
        )
        for group in evidence.groups
    ]
    size = "cards single" if len(cards) == 1 else "cards"
    strip = _study(evidence.runs) if len(evidence.runs) > 1 else None
    return join([strip, element("div", *cards, class_=size)])


def _study(runs: Sequence[Run]) -> Markup:
    """How large the whole is."""
    finished = sum(run.finished for run in runs)
    seconds = [run.seconds for run in runs if run.seconds is not None]
    total = sum(run.decisions_done for run in runs)
    facts = [
        ("runs", count(len(runs)), f"{finished} finished" if finished < len(runs) else None),
        ("tasks", str(len({run.task for run in runs})), None),
        ("methods", str(len({run.method for run in runs})), None),
        ("seeds", str(len({run.seed for run in runs})), None),
        ("decisions in all", count(total), None),
        ("wall time in all", duration(sum(seconds)) if seconds else "–", None),
    ]
    return element("div", *(_tile(*fact) for fact in facts), class_="study")


def _card(
    group: Group, results: Sequence[Result], successes: Sequence[Success], *, brief: bool
) -> Markup:
    """Train and test return against the random policy, and how large the run was."""
    by_mode = {result.mode: result for result in results}
    train, test = by_mode.get("train"), by_mode.get(group.test_mode or "")
    tiles = []
    if train is not None:
        note = f"{train.times_random:.1f}× random" if train.times_random > 0 else None
        tiles.append(_tile("return in training", number(train.mean), note))
    if test is not None:
        kept = test.percent_of_train
        note = f"{_percent(test)} of training" if math.isfinite(kept) else None
        tiles.append(_tile(f"return in {test.mode}", number(test.mean), note))
    tiles += [_tile(f"success in {s.mode}", rate(s.rate), None) for s in successes[:2]]
    if not brief:
        tiles += _background(group, train or test)
    if not results:
        tiles.append(_tile("no evaluation yet", "–", None))
    return element(
        "article",
        element(
            "header",
            element("h3", group.label, element("span", group.task)),
            _spark(group),
        ),
        element("div", *tiles, class_="tiles"),
        element("p", _size(group), *_badges(group), class_="size"),
        class_="card panel",
        data_task=group.task,
        data_method=group.method,
    )


def _background(group: Group, result: Result | None) -> Iterator[Markup]:
    """What a return is to be seen against: the random policy's, and the time it took."""
    if result is not None and math.isfinite(result.random):
        yield _tile("random policy", number(result.random), None)
    seconds = [run.seconds for run in group.runs if run.seconds is not None]
    if seconds:
        each = " (mean)" if len(seconds) > 1 else ""
        yield _tile(f"wall time{each}", duration(float(np.mean(seconds))), None)


def _badges(group: Group) -> Iterator[Markup]:
    """What a reader must not miss."""
    if group.departures:
        yield element("span", "not a replication", class_="badge warn")
    unfinished = sum(not run.finished for run in group.runs)
    if unfinished:
        yield element("span", f"{unfinished} unfinished", class_="badge warn")


def _tile(name: str, value: str, note: str | None) -> Markup:
    """A large number with its name, and what it means beside another."""
    small = element("span", note, class_="note") if note else None
    return element(
        "div", element("span", name, class_="name"), element("b", value), small, class_="tile"
    )


def _spark(group: Group) -> Markup | None:
    """The learning curves of a group, train and first test mode, as small as a word."""
    modes = [mode for mode in ("train", group.test_mode) if mode]
    curves = [mean_curve(group, mode)[0] for mode in modes]
    curves = [curve for curve in curves if curve.decisions.size > 1]
    if not curves:
        return None
    right = max(curve.decisions[-1] for curve in curves)
    heights = np.concatenate([curve.returns for curve in curves])
    bottom, top = min(0.0, float(heights.min())), max(float(heights.max()), 1e-9)
    lines = [
        Markup(
            f'<polyline points="{_polyline(curve, right, bottom, top)}" '
            f'style="stroke: var(--c{place})"/>'
        )
        for place, curve in reversed(list(enumerate(curves)))
    ]
    label = "learning curves: " + ", ".join(modes)
    return element(
        "svg", *lines, class_="spark", viewBox="0 0 120 36", role="img", aria_label=label
    )


def _polyline(curve: Curve, right: float, bottom: float, top: float) -> str:
    """The points of a curve in a box of 120 × 36."""
    chosen = np.linspace(0, curve.decisions.size - 1, SPARK_POINTS).round().astype(int)
    places = np.unique(chosen)
    x = 2 + 116 * curve.decisions[places] / max(right, 1e-9)
    y = 34 - 32 * (curve.returns[places] - bottom) / (top - bottom)
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))


def _size(group: Group) -> str:
    """Seeds, decisions and frames of a group in words."""
    done = max(run.decisions_done for run in group.runs)
    run = group.runs[0]
    seeds = plural(len(group.runs), "seed")
    return f"{seeds} · {decisions(done, run.action_repeat)} · preset {run.preset} "


def _caveats_section(evidence: Evidence, left_out: Sequence[str]) -> Markup | None:
    """Everything that keeps the numbers from meaning more than they do, equal ones merged."""
    groups = evidence.groups
    found: dict[str, list[str]] = {problem: [] for problem in (*evidence.problems, *left_out)}
    only = len(groups) == 1
    for group in groups:
        for caveat in caveats(group):
            found.setdefault(caveat, []).extend([] if only else [f"{group.task} · {group.label}"])
        for run in group.runs:
            for warning in run.warnings:
                found.setdefault(warning, []).append(run.name)
    everyone = [f"{group.task} · {group.label}" for group in groups]
    found = {text: ["all settings"] if who == everyone else who for text, who in found.items()}
    versions = {str(run.config.get("svea_version", "unknown")) for run in evidence.runs}
    if len(versions) > 1:
        found[f"runs of different versions of svea: {', '.join(sorted(versions))}"] = []
    if not found:
        return None
    items = [
        element("li", text, element("span", f" — {listed(who, between='; ')}") if who else None)
        for text, who in found.items()
    ]
    return element(
        "details",
        element("summary", f"Before you compare: {plural(len(items), 'caveat')}"),
        element("ul", *items),
        class_="panel caveats",
        open="" if len(items) <= FEW_CAVEATS else None,
    )


# --- Figures and the tables beside them


def _topic(evidence: Evidence, topic: str, title: str, *more: Markup | None) -> Markup | None:
    """The figures of a topic, task by task, and what belongs below them."""
    numbered = enumerate(evidence.exhibits)
    chosen = [(place, exhibit) for place, exhibit in numbered if exhibit.topic == topic]
    if not chosen and not any(more):
        return None
    blocks = [
        element(
            "div",
            *(_figure(exhibit, f"f{place}") for place, exhibit in chosen if exhibit.task == task),
            class_="figures",
            data_task=task,
        )
        for task in dict.fromkeys(exhibit.task for _, exhibit in chosen)
    ]
    return join([element("h2", title), *blocks, *more])


def _figure(exhibit: Exhibit, name: str) -> Markup:
    """A figure with its caption."""
    return element(
        "figure",
        Markup(plots.to_svg(exhibit.figure, name)),
        element("figcaption", exhibit.caption),
        class_="panel chart",
        data_methods=json.dumps(exhibit.methods),
    )


def _generalisation_section(evidence: Evidence) -> Markup | None:
    """Bars per mode, intensity curves, and the tables beside the paper's."""
    several = len(evidence.groups) > 1  # one setting alone has all of it in the table of returns
    below = _matrices(_return_tables(evidence) if several else [])
    return _topic(evidence, figures.GENERALISATION, "Generalisation", below)


def _robot_section(evidence: Evidence) -> Markup | None:
    """Success rates beside the paper's."""
    table = tables.success_table(evidence.successes)
    return _topic(evidence, figures.ROBOT, "Robot: success", _matrices([table] if table else []))


def _return_tables(evidence: Evidence) -> list[tables.Table]:
    """Returns by mode and task, and over all tasks."""
    methods = {group.label: group.method for group in evidence.groups}
    over_tasks = tables.aggregate_table(evidence.aggregates, methods)
    return [*([over_tasks] if over_tasks else []), *tables.return_tables(evidence.results)]


def _tables(evidence: Evidence) -> list[tables.Table]:
    """Every table that is also a file."""
    success = tables.success_table(evidence.successes)
    return [*_return_tables(evidence), *([success] if success else [])]


def _matrices(shown: Sequence[tables.Table]) -> Markup | None:
    """Tables with settings side by side, and how to read them."""
    if not shown:
        return None
    notes = dict.fromkeys(note for table in shown for note in table.notes)
    grid = element("div", *map(_matrix, shown), class_="matrices")
    return join([grid, element("p", " ".join(notes), class_="footnote")])


def _matrix(table: tables.Table) -> Markup:
    """A table with settings side by side, the paper's figure below ours."""
    heads = [
        element("th", label, data_method=method, scope="col")
        for label, method in table.columns.items()
    ]
    rows = []
    for name, (task, cells) in table.rows.items():
        values = []
        for label, method in table.columns.items():
            cell = cells.get(label, tables.Cell("–"))
            paper = element("small", f"paper {cell.paper}") if cell.paper else None
            values.append(element("td", cell.ours, paper, data_method=method))
        rows.append(
            element(
                "tr",
                element("th", name, class_="text", scope="row"),
                *values,
                data_task=task or None,
            )
        )
    head = element("tr", element("th", table.corner, class_="text", scope="col"), *heads)
    return element(
        "div",
        element("h3", table.title),
        element("table", element("thead", head), element("tbody", *rows)),
        class_="panel scroll matrix" + (" wide" if len(table.columns) > 3 else ""),
    )


# --- The table of all returns


def _results_section(results: Sequence[Result]) -> Markup | None:
    """The table of returns, ours beside the random policy's and the paper's."""
    if not results:
        return None
    columns = _columns(results)
    heads = [
        element("th", element("button", title, type="button"), class_=kind, scope="col")
        for title, kind, _ in columns
    ]
    rows = [
        element(
            "tr",
            *(cell(result) for _, _, cell in columns),
            data_task=result.group.task,
            data_method=result.group.method,
        )
        for result in results
    ]
    table = element("table", element("thead", element("tr", *heads)), element("tbody", *rows))
    return join(
        [
            element("h2", "All returns"),
            element("div", table, class_="panel scroll tall", id="returns"),
            element("p", *_footnotes(results), class_="footnote"),
        ]
    )


Column = tuple[str, str | None, Callable[[Result], Markup]]


def _columns(results: Sequence[Result]) -> list[Column]:
    """Title, style and cell of each column; task and method only where they differ."""
    columns: list[Column] = []
    if len({result.group.task for result in results}) > 1:
        columns.append(("Task", "text", lambda r: element("td", r.group.task, class_="text")))
    if len({result.group.label for result in results}) > 1:
        columns.append(("Method", "text", lambda r: element("td", r.group.label, class_="text")))
    return [
        *columns,
        ("Mode", "text", lambda r: element("td", _made_with(r), class_="text")),
        ("Return\nmean ± std", None, _return_cell),
        ("IQM\n95 % interval", None, _iqm_cell),
        ("Area under\nthe curve", None, lambda r: _cell(r.area.point, number(r.area.point))),
        ("Random\npolicy", None, _random_cell),
        ("Of train\nreturn", None, lambda r: _cell(r.percent_of_train, _percent(r))),
        ("Seeds ×\nepisodes", None, _sample_cell),
        ("Paper\n500k × 5 seeds", "paper", _paper_cell),
    ]


def _return_cell(result: Result) -> Markup:
    """Mean return, with its deviation over seeds where there is one."""
    std = f" ± {number(result.std)}" if math.isfinite(result.std) else ""
    return _cell(result.mean, f"{number(result.mean)}{std}", "main")


def _iqm_cell(result: Result) -> Markup:
    """The interquartile mean and its interval."""
    iqm = result.iqm
    interval = element("small", f" [{number(iqm.low)}, {number(iqm.high)}]")
    return _cell(iqm.point, join([number(iqm.point), interval]))


def _random_cell(result: Result) -> Markup:
    """The random policy's return, and how many times it ours is."""
    times = f" {result.times_random:.1f}×" if math.isfinite(result.times_random) else ""
    return _cell(result.random, join([number(result.random), element("small", times)]))


def _made_with(result: Result) -> str:
    """The mode with what its pictures were made of, such as `video_easy (6 of 10 clips)`."""
    try:
        return describe(result.group.runs[0].provenance()[result.mode])
    except (KeyError, TypeError, ValueError):  # a record of another version, or damaged
        return result.mode


def _sample_cell(result: Result) -> Markup:
    """How many seeds, and episodes for each."""
    each = f"{result.episodes / result.seeds:.3g}"
    return _cell(result.episodes, f"{result.seeds} × {each}")


def _percent(result: Result) -> str:
    """The share of the training return, as a whole percentage."""
    return f"{result.percent_of_train:.0f} %"


def _cell(value: float, shown: object, kind: str | None = None) -> Markup:
    """A cell that sorts by its value; nan is a dash and sorts last."""
    if not math.isfinite(value):
        return element("td", "–", class_=kind, data_value="")
    return element("td", shown, class_=kind, data_value=f"{value:.6g}")


def _paper_cell(result: Result) -> Markup:
    """The paper's figure, marked where ours is too small to be compared with it."""
    paper = result.paper
    if paper is None:
        return element("td", "–", class_="paper", data_value="")
    mark = "" if result.is_replication else "†"
    std = f" ± {number(paper.std)}" if math.isfinite(paper.std) else ""
    figure = f"{'~' if paper.approximate else ''}{number(paper.mean)}{std}{mark} "
    source = element("small", paper.table, title=paper.table)
    return _cell(paper.mean, join([figure, source]), "paper")


def _footnotes(results: Sequence[Result]) -> list[Markup]:
    """What the table's columns mean, and how far we are from the paper's setting."""
    notes = [
        "Mean over episodes per seed, then mean ± standard deviation over seeds, as in the paper. "
        "IQM: mean of the middle half, with its 95 % bootstrap interval, over seeds; with a single "
        "seed, over its episodes, which says nothing about other seeds. Area under the curve: the "
        "mean height of the evaluation curve, a measure of sample efficiency. "
    ]
    if any(result.paper and result.paper.approximate for result in results):
        notes.append("~ Read off a figure, to about 10 points. ")
    smaller = [result for result in results if result.paper and not result.is_replication]
    gaps = list(dict.fromkeys(_departures(result) for result in smaller))
    if gaps:
        notes.append(
            "† Not a replication. The paper trains for 500,000 decisions (ViT: 300,000) and "
            f"5 seeds at 84 px; here: {listed(gaps, between='; ')}."
        )
    return [element("span", note) for note in notes]


def _departures(result: Result) -> str:
    """How a result's setting differs from the paper's."""
    own = result.group.departures or (plural(result.seeds, "seed"),)
    return ", ".join([f"{result.group.task} {result.group.label}", *own])


# --- Runs


def _runs_section(groups: Sequence[Group]) -> Markup:
    """The exact configuration, command, provenance and warnings of each run."""
    runs = [_run_details(group, run) for group in groups for run in group.runs]
    return join([element("h2", "Runs"), element("div", *runs, class_="panel runs")])


def _run_details(group: Group, run: Run) -> Markup:
    """One run, folded."""
    badges = [] if run.finished else [element("span", "unfinished", class_="badge warn")]
    facts: list[tuple[str, object]] = [
        ("Folder", run.name),
        ("Trained for", decisions(run.decisions_done, run.action_repeat)),
        ("Wall time", duration(run.seconds) if run.seconds is not None else "not recorded"),
        ("Version", f"svea {run.config.get('svea_version', 'not recorded')}"),
    ]
    facts += [
        (f"Provenance of {mode}", "; ".join(f"{k}: {v}" for k, v in where.items()) or "–")
        for mode, where in run.provenance().items()
    ]
    facts += [("Warning", warning) for warning in run.warnings]
    rows = [part for name, value in facts for part in (element("dt", name), element("dd", value))]
    config = json.dumps(run.config, indent=2, sort_keys=True, ensure_ascii=False)
    seed = f"seed {run.seed}" if run.seed is not None else "seed not recorded"
    label = element("span", f"{group.task} · {group.label} · {seed}", class_="soft")
    return element(
        "details",
        element("summary", element("b", run.name), label, *badges),
        element("dl", *rows),
        element("strong", "Command"),
        element("pre", run.command or "not recorded", class_="command"),
        element("strong", "Configuration"),
        element("pre", config, class_="config"),
        class_="run",
        data_task=group.task,
        data_method=group.method,
    )
