"""The report: one self-contained HTML page about one run or many, to look at and to send.

The page needs no network: styles, script, figures, frames and videos are inside. It never lets a
small run pass for a replication: whatever is smaller than the paper's setting is said next to it.
`templates/report.html.j2` says how its sections look.
"""

import base64
import io
import itertools
import json
import math
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup
from PIL import Image

from svea.core import files, words
from svea.core.errors import UserError
from svea.core.words import duration, number, plural, rate
from svea.results import figures as drawing
from svea.results import plots, published, tables
from svea.results.factors import Response, responses, tolerances, verdicts
from svea.results.figures import ReportFigure
from svea.results.groups import Group, all_caveats, group_runs
from svea.results.read import Run, find_runs, read_runs
from svea.results.summary import Result, aggregate, mean_curve, summarise
from svea.results.tables import Table, list_results, return_tables, success_tables
from svea.runs import layout, zoo

FEW_CAVEATS = 8  # more are folded
FEW_CARDS = 3  # more have fewer numbers each
VIDEO_BYTES = 48_000_000
PICTURE_BYTES = 6_000_000
"""Beyond these, files are named, not embedded: browsers choke on larger pages."""
MOST_RUNS = 30
"""Runs whose media are shown: the first seed of every setting, then the second ones, and so on."""
PICTURE_WIDTH = 960  # six frames of 160 pixels: enough to see, and a third of the bytes of 240


@dataclass(frozen=True, eq=False)
class Evidence:
    """Everything a report shows, computed once from run folders."""

    groups: list[Group]
    results: list[Result]
    """Returns."""
    successes: list[Result]
    figures: list[ReportFigure]
    varied: list[Response]
    """How agents answer to factors."""
    every: Table
    """All results, and what they come to over tasks."""
    problems: list[str]
    """Folders that are not runs, each with the reason."""

    @property
    def runs(self) -> list[Run]:
        """Every run, group by group."""
        return [run for group in self.groups for run in group.runs]

    def tolerance_tables(self) -> list[Table]:
        """How far each factor may go, with what breaks each agent first."""
        table = tolerances(self.varied)
        notes = (*table.notes, *(f"{text}." for text in verdicts(self.varied)))
        return [replace(table, notes=notes)] if self.varied else []


def gather(
    folders: Sequence[Path], on_step: Callable[[str], None] = lambda doing: None
) -> Evidence:
    """Read runs and compute what there is to show; `on_step` is called with what is done next."""
    on_step("reading runs")
    runs, problems = read_runs([Path(folder) for folder in folders])
    on_step(f"computing intervals of {plural(len(runs), 'run')}")
    groups = group_runs(runs)
    returns = [result for group in groups for result in summarise(group)]
    successes = [result for group in groups for result in summarise(group, "success")]
    on_step("drawing figures")
    varied = responses(groups)
    shown = drawing.report_figures(groups, returns, successes)
    shown += drawing.factor_figures(varied, drawing.looks_of(groups))
    every = list_results(returns, successes, aggregate(groups))
    return Evidence(groups, returns, successes, shown, varied, every, problems)


def report(
    runs: str | Path | Sequence[str | Path],
    out: str | Path | None = None,
    *,
    figures: str | Path | None = None,
    title: str = "",
    generated: datetime | None = None,
    on_problem: Callable[[str], None] = lambda problem: None,
    on_step: Callable[[str], None] = lambda doing: None,
) -> Path:
    """Write one self-contained HTML page about runs, and return its path.

    Args:
        runs: run folders, folders with runs beneath them, or agents of the zoo, `zoo:NAME`.
        out: the page, or an existing folder, which then gets `report.html`; default
            RUN/report.html for one run, report.html for several.
        figures: also write every figure, table and number as a file into this folder.
        title: of the page, whose agents then stand in the order of `runs`; by default settings and
            tasks, in alphabetical order.
        generated: the date printed on the page; now, unless given.
        on_problem: called with what is missing or damaged; the rest is reported.
        on_step: called with what is done next.

    Raises:
        UserError: none of the folders is a run, or a file cannot be written.

    Example:
        >>> page = report("runs", "report.html")  # doctest: +SKIP
    """
    given = [runs] if isinstance(runs, str | Path) else runs
    folders = [zoo.working_copy(run) for run in given]  # first: the page lies in the copy
    if out is None and len(folders) == 1 and folders[0].is_file():
        raise UserError(f"no run at {str(folders[0])!r}: it is a file. Give the folder of a run.")
    beside = folders[0] if len(folders) == 1 else Path()
    page = files.output_file(Path(out) if out else beside / "report.html")
    page = page / "report.html" if page.is_dir() else page
    kept = None if figures is None else files.output_folder(Path(figures), "figures")
    evidence = gather(folders, on_step)
    if title:
        places = {folder: n for n, folder in enumerate(find_runs(folders))}
        evidence.groups.sort(key=lambda group: min(places[run.folder] for run in group.runs))
    on_step("writing the page")
    files.write_whole(page, render(evidence, generated or datetime.now(UTC), title).encode())
    if kept is not None:
        on_step(f"writing figures and tables into {kept}")
        write_figures(evidence, kept)
    warnings = [f"{run.name}: {warning}" for run in evidence.runs for warning in run.warnings]
    for problem in (*evidence.problems, *warnings):
        on_problem(problem)
    return page


def write_figures(evidence: Evidence, folder: Path) -> None:
    """Write figures as PNG, PDF and CSV, tables as LaTeX and Markdown, and all results as CSV."""
    contents: dict[str, str | bytes] = {}
    for one in evidence.figures:
        name = _unused(one.name, contents)
        contents[f"{name}.png"] = plots.to_png(one.figure, dpi=200)
        contents[f"{name}.pdf"] = plots.to_pdf(one.figure)
        contents[f"{name}.csv"] = tables.records_to_csv(one.numbers)
    returns, others = return_tables(evidence.results), success_tables(evidence.successes)
    for table in [evidence.every, *returns, *others, *evidence.tolerance_tables()]:
        name = _unused(f"table-{table.name}", contents)
        contents[f"{name}.tex"] = tables.to_latex(table)
        contents[f"{name}.md"] = tables.to_markdown(table)
    contents["results.csv"] = tables.records_to_csv(map(tables.record, evidence.results))
    if evidence.successes:
        contents["success.csv"] = tables.records_to_csv(map(tables.record, evidence.successes))
    for name, content in contents.items():
        files.write_whole(folder / name, content.encode() if isinstance(content, str) else content)


def _unused(text: str, contents: dict[str, str | bytes]) -> str:
    """A name that every file system takes, that leads nowhere else, and that no file has yet."""
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-")[:100] or "unnamed"
    taken = {Path(file).stem for file in contents}
    numbered = (f"{name}-{k}" for k in itertools.count(2))
    return next(one for one in itertools.chain([name], numbered) if one not in taken)


# The page -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Picture:
    """A video, a picture, or both one above the other, as data URLs."""

    name: str
    caption: str
    video: str = ""
    frames: str = ""


Blocks = list[tuple[Group, list[tuple[Run, list[Picture]]]]]
"""The pictures of each group, seed by seed; what has none is left out."""


@dataclass(frozen=True)
class Section:
    """A part of the page that the bar links to; one without content is left out."""

    anchor: str
    name: str
    """In the bar."""
    content: Any
    """What the part of the template with the name of the anchor shows."""


Tile = tuple[str, ...]
"""The name of a large number, the number, and what it means next to another if it says so."""


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


def render(evidence: Evidence, generated: datetime, title: str = "") -> str:
    """The whole page as text."""
    groups, runs = evidence.groups, evidence.runs
    sources, left_out = embed(groups)
    caveats: dict[str, list[str]] = {p: [] for p in (*evidence.problems, *left_out)}
    caveats |= all_caveats(groups)
    results = _without_repetition(evidence.every)
    # One setting alone has all of it in the table of all results.
    returns = return_tables(evidence.results) if len(groups) > 1 else []
    sections = [
        Section("gallery", "Gallery", _blocks(groups, lambda run: _mode_pictures(run, sources))),
        Section("overview", "Overview", runs),
        Section("caveats", "Caveats", caveats),
        _topic(evidence, drawing.LEARNING, "Learning"),
        _topic(evidence, drawing.GENERALISATION, "Generalisation", returns),
        _topic(evidence, drawing.FACTORS, "Factors", evidence.tolerance_tables()),
        _topic(evidence, drawing.ROBOT, "Robot", success_tables(evidence.successes)),
        _topic(evidence, drawing.Q_VALUES, "Q-values"),
        Section("results", "Results", results if results.rows else None),
        Section("saliency", "Saliency", _blocks(groups, lambda r: _analysis_pictures(r, sources))),
        Section("next", "What next", next_steps(groups, evidence.results)),
        Section("runs", "Runs", runs),
    ]
    return _template().render(
        title=title or _title(groups),
        date=generated.strftime("%Y-%m-%d %H:%M %Z").strip(),
        sections=[section for section in sections if section.content],
        groups=groups,
        runs=runs,
        tasks=sorted({group.task for group in groups}),
        methods=sorted({group.method for group in groups}),
        study=study(runs) if len(runs) > 1 else None,
        cards=[card(group, evidence, brief=len(groups) > FEW_CARDS) for group in groups],
        few_caveats=FEW_CAVEATS,
        citation=published.CITATION,
    )


def _template() -> jinja2.Template:
    """The page with its style and script; every text that is put into it is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("svea.results"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    parts = resources.files("svea.results") / "templates"
    environment.globals |= {
        "style": Markup((parts / "report.css").read_text(encoding="utf-8")),
        "script": Markup((parts / "report.js").read_text(encoding="utf-8")),
        "as_json": lambda config: json.dumps(config, indent=2, sort_keys=True, ensure_ascii=False),
        "decisions": words.decisions,
        "duration": duration,
        "listed": words.listed,
        "plural": plural,
    }
    return environment.get_template("report.html.j2")


def _title(groups: Sequence[Group]) -> str:
    """What the page is about, as short as it can be said."""
    tasks = list(dict.fromkeys(group.task for group in groups))
    labels = list(dict.fromkeys(group.label for group in groups))
    left = labels[0] if len(labels) == 1 else f"{len(labels)} settings"
    right = tasks[0] if len(tasks) == 1 else f"{len(tasks)} tasks"
    return f"{left} on {right}"


def _topic(evidence: Evidence, topic: str, name: str, shown: Sequence[Table] = ()) -> Section:
    """The figures of a topic, task by task and each with its SVG, and the tables below them."""
    charts: dict[str, list[tuple[Markup, ReportFigure]]] = {}
    for place, one in enumerate(evidence.figures):
        if one.topic == topic:
            svg = Markup(plots.to_svg(one.figure, f"f{place}"))
            charts.setdefault(one.task, []).append((svg, one))
    return Section(topic, name, (charts, shown) if charts or shown else None)


def _without_repetition(table: Table) -> Table:
    """The table without its task and setting where all rows have the same."""
    once = ("task", "setting")
    same = {name for name in once if len({row.cells[name].text for row in table.rows}) == 1}
    return replace(table, columns=tuple(one for one in table.columns if one.title not in same))


def next_steps(groups: Sequence[Group], results: Sequence[Result]) -> list[tuple[str, str]]:
    """What is missing on the page and the command for it, the most useful first."""
    runs = [run for group in groups for run in group.runs]
    names = shlex.join(run.name for run in runs) if len(runs) <= FEW_CARDS else "RUNS"
    tested = {result.group for result in results if result.mode != "train"}
    steps: list[tuple[str, str]] = []
    can_continue = [run for run in runs if not run.finished and not layout.is_export(run.folder)
                    and run.config.get("save_replay") is not False]  # fmt: skip
    if can_continue:
        why = f"{plural(len(can_continue), 'run')} can be continued, by the command that began it."
        steps.append((why, can_continue[0].command or "svea train …"))
    if not tested.issuperset(groups):
        why = "Not evaluated in worlds that training never showed."
        steps.append((why, f"svea eval {names} --modes all --episodes all"))
    if not any(math.isfinite(result.random) for result in results):
        why = "The random policy is missing: it says what a return is worth."
        steps.append((why, f"svea eval {names} --modes train --random-policy"))
    if not any(run.media(".mp4") for run in runs):
        why = "There are no videos: they show what a return cannot."
        steps.append((why, f"svea eval {names} --modes train color_hard --videos"))
    if all(len(group.runs) == 1 for group in groups):
        command = re.sub(r" (--seeds?|--out|-o)[ =]\S+( \d+)*", "", runs[0].command)
        if not command.startswith("svea train "):  # what a study was given, its runs do not know
            train = ["train", runs[0].task, "--method", runs[0].method, "--preset", runs[0].preset]
            command = shlex.join(["svea", *train])
        steps.append(("One seed says nothing about other seeds.", f"{command} --seeds 0-4"))
    return steps


# Numbers at a glance ------------------------------------------------------------------------------


def study(runs: Sequence[Run]) -> list[Tile]:
    """How large the whole is."""
    finished = sum(run.finished for run in runs)
    seconds = [run.seconds for run in runs if run.seconds is not None]
    # Exports have no log, so their decisions are known and their time is not.
    timed = f"of {len(seconds)} of {plural(len(runs), 'run')}" if len(seconds) < len(runs) else ""
    return [
        ("runs", words.count(len(runs)), f"{finished} finished" if finished < len(runs) else ""),
        ("tasks", str(len({run.task for run in runs}))),
        ("methods", str(len({run.method for run in runs}))),
        ("seeds", str(len({run.seed for run in runs}))),
        ("decisions in all", words.count(sum(run.decisions_done for run in runs))),
        ("wall time in all", duration(sum(seconds)) if seconds else "–", timed if seconds else ""),
    ]


def card(group: Group, evidence: Evidence, *, brief: bool) -> Card:
    """What stands first about a group; `brief`: with fewer numbers."""
    done, run = max(run.decisions_done for run in group.runs), group.runs[0]
    trained = words.decisions(done, run.action_repeat)
    size = f"{plural(len(group.runs), 'seed')} · {trained} · preset {run.preset}"
    unfinished = sum(not run.finished for run in group.runs)
    badges = [f"trained in {run.trained_in}"] if run.trained_in else []
    badges += ["not a replication"] if group.departures else []
    badges += [f"{unfinished} unfinished"] if unfinished else []
    tiles = list(_tiles(group, evidence, brief))
    return Card(group, tiles, size, badges, _small_curves(group), plots.color_of(group.method))


def _tiles(group: Group, evidence: Evidence, brief: bool) -> Iterator[Tile]:
    """Train and test return against the random policy, and how long they took."""
    by_mode = {result.mode: result for result in evidence.results if result.group is group}
    train, test = by_mode.get("train"), by_mode.get(group.test_mode or "")
    if train is not None:
        note = f"{train.times_random:.1f}× random" if train.times_random > 0 else ""
        yield ("return in training", number(train.mean), note)
    if test is not None:
        kept = test.percent_of_train
        note = f"{kept:.0f} % of training" if math.isfinite(kept) else ""
        yield (f"return in {test.mode}", number(test.mean), note)
    for success in [one for one in evidence.successes if one.group is group][:2]:
        yield (f"success in {success.mode}", rate(success.mean))
    background = train or test
    if background is not None and math.isfinite(background.random) and not brief:
        yield ("random policy", number(background.random))
    seconds = [run.seconds for run in group.runs if run.seconds is not None]
    if seconds and not brief:
        each = " (mean)" if len(seconds) > 1 else ""
        yield (f"wall time{each}", duration(float(np.mean(seconds))))
    if not by_mode:
        yield ("no evaluation yet", "–")


def _small_curves(group: Group) -> dict[str, str]:
    """The learning curves of a group, train and first test mode, as small as a word."""
    found = {
        mode: mean.curve
        for mode in ("train", group.test_mode)
        if mode and (mean := mean_curve(run.evaluation_curve(mode) for run in group.runs))
    }
    found = {mode: curve for mode, curve in found.items() if curve.decisions.size > 1}
    right = max((curve.decisions[-1] for curve in found.values()), default=1.0)
    heights = [height for curve in found.values() for height in curve.returns]
    bottom, top = min([0.0, *heights]), max([1e-9, *heights])
    return {
        mode: " ".join(
            f"{2 + 116 * x / right:.1f},{34 - 32 * (y - bottom) / (top - bottom):.1f}"
            for x, y in zip(curve.decisions, curve.returns, strict=True)
        )
        for mode, curve in found.items()
    }


# Media --------------------------------------------------------------------------------------------


def embed(groups: Sequence[Group]) -> tuple[dict[Path, str], list[str]]:
    """Media files as data URLs, as many as a page can carry; and what is left out, and why."""
    sources: dict[Path, str] = {}
    left_out: list[str] = []
    lacking: dict[str, None] = {}  # in order
    room = {".mp4": VIDEO_BYTES, ".png": PICTURE_BYTES}
    rounds = itertools.zip_longest(*(group.runs for group in groups))
    owners = [run for row in rounds for run in row if run is not None and any(_media(run))]
    for run in owners[:MOST_RUNS]:
        for file in _media(run):
            try:
                kind, content = _encoded(file, room[file.suffix])
            except (OSError, ValueError, Image.DecompressionBombError) as error:
                name = f"{file.parent.name}/{file.name} of {run.name}"
                left_out.append(f"{name} cannot be read ({error}); it is left out")
                continue
            if len(content) > room[file.suffix]:
                lacking[run.name] = None
            else:
                room[file.suffix] -= len(content)
                sources[file] = f"data:{kind};base64,{base64.b64encode(content).decode()}"
    if rest := [*lacking, *(run.name for run in owners[MOST_RUNS:])]:
        left_out.append(
            f"pictures and videos of {plural(len(rest), 'run')} do not fit into the page, all or "
            f"some; they are in media/ and analysis/ of {words.listed(rest, most=1)}"
        )
    return sources, left_out


def _blocks(groups: Sequence[Group], pictures_of: Callable[[Run], Iterator[Picture]]) -> Blocks:
    def seeds_of(group: Group) -> list[tuple[Run, list[Picture]]]:
        return [(run, found) for run in group.runs if (found := list(pictures_of(run)))]

    return [(group, seeds) for group in groups if (seeds := seeds_of(group))]


def _mode_pictures(run: Run, sources: dict[Path, str]) -> Iterator[Picture]:
    """The video and frames of the final policy in each mode, with the return below."""
    videos, frames = run.media(".mp4"), run.media(".png")
    mask = "; with the mask: white is kept" if run.mask == "madi" else ""
    for mode in sorted({*videos, *frames}, key=lambda m: (m != "train", m)):
        video, strip = (sources.get(of.get(mode, Path()), "") for of in (videos, frames))
        if video or strip:
            returns = run.finals(mode)
            mean = f": mean return {number(returns.mean())}" if returns.size else ""
            yield Picture(mode, f"{mode}{mean}{mask}", video, strip)


def _analysis_pictures(run: Run, sources: dict[Path, str]) -> Iterator[Picture]:
    for file in _analyses(run):
        if file in sources:
            yield Picture(file.stem, file.stem.replace("-", " "), frames=sources[file])


def _media(run: Run) -> Iterator[Path]:
    """Everything a run has to look at, small things first."""
    yield from run.media(".png").values()
    yield from _analyses(run)
    yield from run.media(".mp4").values()


def _analyses(run: Run) -> list[Path]:
    """The pictures that `svea analyze` left in a run folder."""
    return sorted((run.folder / layout.ANALYSIS).glob("*.png"))


def _encoded(file: Path, room: int) -> tuple[str, bytes]:
    """The type and content of a file, or a little more of it than there is room for.

    A picture becomes a JPEG: about a fifth of a PNG, and no wider than it is shown.
    """
    if file.suffix == ".mp4":
        with files.open_plain(file, sys.maxsize) as opened:
            return "video/mp4", opened.read(room + 1)
    with (
        files.open_plain(file, layout.PICTURE_BYTES) as content,
        Image.open(content, formats=("PNG",)) as png,  # what svea writes
    ):
        picture = png.convert("RGB")
    if picture.width > PICTURE_WIDTH:
        size = (PICTURE_WIDTH, max(1, picture.height * PICTURE_WIDTH // picture.width))
        picture = picture.resize(size, Image.Resampling.BOX)
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=80)
    return "image/jpeg", buffer.getvalue()
