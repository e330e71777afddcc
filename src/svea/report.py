"""The report: one self-contained HTML page about one run or many, to look at and to send.

The page needs no network: styles, script, figures, frames and videos are inside. It never lets a
small run pass for a replication: whatever is smaller than the paper's setting is said next to it.
"""

from __future__ import annotations

import base64
import html
import json
import math
import string
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from svea import paper_results, plots
from svea.envs import describe
from svea.errors import StorageError
from svea.results import Group, Result, caveats, group_runs, mean_curve, random_return, summarise
from svea.runs import Run, read_runs

MEDIA_BYTES = 48_000_000
"""Videos and frames beyond this are named, not embedded: browsers choke on larger pages."""

BOOTSTRAP_SEED = 0


class Markup(str):
    """Text that is HTML already; every other string is escaped when it enters the page."""


def element(name: str, *children: object, **attributes: object) -> Markup:
    """One HTML element. Children are escaped unless they are Markup; None is left out.

    Attribute names lose a trailing underscore and turn the others into hyphens.

    >>> element("td", "a < b", class_="text")
    '<td class="text">a &lt; b</td>'
    """
    pairs = [
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    ]
    return Markup(f"<{name}{''.join(pairs)}>{join(children)}</{name}>")


def join(children: Iterable[object]) -> Markup:
    """Children one after another, escaped unless they are Markup."""
    shown = (child for child in children if child is not None)
    return Markup("".join(c if isinstance(c, Markup) else html.escape(str(c)) for c in shown))


def write_report(runs: Sequence[Path], out: Path, *, generated: datetime | None = None) -> Path:
    """Write one HTML page about runs.

    Args:
        runs: Run folders, or folders with runs beneath them.
        out: The page; or an existing folder, which then gets `report.html`.
        generated: The date printed on the page; now, unless given.

    Returns:
        The path of the page.

    Raises:
        UserError: None of the folders is a run.
        StorageError: The page cannot be written.
    """
    found, problems = read_runs([Path(run) for run in runs])
    out = Path(out)
    out = out / "report.html" if out.is_dir() else out
    page = render(found, problems, generated or datetime.now(UTC))
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(page, encoding="utf-8")
    except OSError as error:
        raise StorageError(f"cannot write {str(out)!r}: {error.strerror}") from error
    return out


def render(runs: Sequence[Run], problems: Sequence[str], generated: datetime) -> str:
    """The whole page as text."""
    generator = np.random.default_rng(BOOTSTRAP_SEED)
    groups = group_runs(runs)
    results = [result for group in groups for result in summarise(group, generator)]
    gallery, left_out = _gallery_section(groups)
    title = _title(groups)
    body = join(
        [
            _header(title, groups, generated),
            element(
                "main",
                _overview(groups, results),
                _caveats_section(groups, [*problems, *left_out]),
                _figures_section(groups, results),
                _results_section(results),
                gallery,
                _runs_section(groups),
            ),
            _footer(),
        ]
    )
    parts = resources.files("svea")
    return string.Template((parts / "report.html").read_text(encoding="utf-8")).substitute(
        title=html.escape(title),
        style=(parts / "report.css").read_text(encoding="utf-8"),
        script=(parts / "report.js").read_text(encoding="utf-8"),
        body=body,
    )


# --- Head and foot


def _title(groups: Sequence[Group]) -> str:
    """What the page is about, as short as it can be said."""
    tasks = list(dict.fromkeys(group.task for group in groups))
    labels = list(dict.fromkeys(group.label for group in groups))
    left = labels[0] if len(labels) == 1 else f"{len(labels)} settings"
    right = tasks[0] if len(tasks) == 1 else f"{len(tasks)} tasks"
    return f"{left} on {right}"


def _header(title: str, groups: Sequence[Group], generated: datetime) -> Markup:
    """Title, date, filters (where there is something to choose) and the theme switch."""
    count = sum(len(group.runs) for group in groups)
    date = generated.strftime("%Y-%m-%d %H:%M %Z").strip()
    words = f"{_plural(count, 'run')} · svea report of {date}"
    controls = [
        _filter("task", sorted({group.task for group in groups})),
        _filter("method", sorted({group.method for group in groups})),
        element("button", "Light / dark", id="theme", class_="plain", type="button"),
    ]
    heading = element("div", element("h1", title), element("p", words), class_="words")
    return element(
        "header",
        element("div", heading, element("div", *controls, class_="controls")),
        class_="top",
    )


def _filter(kind: str, values: Sequence[str]) -> Markup | None:
    """A drop-down that narrows the page to one task or method."""
    if len(values) < 2:
        return None
    options = [element("option", f"all {kind}s", value="")]
    options += [element("option", value, value=value) for value in values]
    return element("label", kind, element("select", *options, data_filter=kind))


def _footer() -> Markup:
    """How to read the numbers."""
    return element(
        "footer",
        "A decision is one choice of the agent; a frame is one step of the simulator (decisions × "
        "action repeat). Paper figures: ",
        paper_results.CITATION,
        "; its CURL, RAD, PAD and SODA figures on the benchmark are quoted there from the SODA "
        "paper.",
    )


# --- Overview and caveats


def _overview(groups: Sequence[Group], results: Sequence[Result]) -> Markup:
    """One card per group: the figures a reader looks for first."""
    cards = [_card(group, [r for r in results if r.group is group]) for group in groups]
    return element("div", *cards, class_="cards single" if len(cards) == 1 else "cards")


def _card(group: Group, results: Sequence[Result]) -> Markup:
    """Train and test return against the random policy, and how large the run was."""
    by_mode = {result.mode: result for result in results}
    train, test = by_mode.get("train"), by_mode.get(group.test_mode or "")
    tiles = []
    if train is not None:
        note = f"{train.times_random:.1f}× random" if train.times_random > 0 else None
        tiles.append(_tile("return in training", _number(train.mean), note))
    if test is not None:
        kept = test.percent_of_train
        note = f"{_percent(test)} of training" if math.isfinite(kept) else None
        tiles.append(_tile(f"return in {test.mode}", _number(test.mean), note))
    shown = train or test
    if shown is not None and math.isfinite(shown.random):
        tiles.append(_tile("random policy", _number(shown.random), None))
    seconds = [run.seconds for run in group.runs if run.seconds is not None]
    if seconds:
        each = " (mean)" if len(seconds) > 1 else ""
        tiles.append(_tile(f"wall time{each}", _duration(float(np.mean(seconds))), None))
    if not results:
        tiles.append(_tile("no evaluation yet", "–", None))
    badge = None
    if any(result.paper and not result.is_replication for result in results):
        badge = element("span", "not a replication", class_="badge warn")
    return element(
        "section",
        element("h3", f"{group.task} · {group.label}", badge),
        element("div", *tiles, class_="tiles"),
        element("p", _size(group), class_="size"),
        class_="card panel",
        data_task=group.task,
        data_method=group.method,
    )


def _tile(name: str, value: str, note: str | None) -> Markup:
    """A large number with its name, and what it means beside another."""
    small = element("span", note, class_="note") if note else None
    return element(
        "div", element("span", name, class_="name"), element("b", value), small, class_="tile"
    )


def _size(group: Group) -> str:
    """Seeds, decisions and frames of a group in words."""
    done = max(run.decisions_done for run in group.runs)
    seeds = _plural(len(group.runs), "seed")
    return (
        f"{seeds} · {_decisions(done, group.runs[0].action_repeat)} · preset {group.runs[0].preset}"
    )


def _caveats_section(groups: Sequence[Group], problems: Sequence[str]) -> Markup | None:
    """Everything that keeps the numbers from meaning more than they do, equal ones merged."""
    found: dict[str, list[str]] = {problem: [] for problem in problems}
    only = len(groups) == 1
    for group in groups:
        for caveat in caveats(group):
            found.setdefault(caveat, []).extend([] if only else [f"{group.task} · {group.label}"])
        for run in group.runs:
            for warning in run.warnings:
                found.setdefault(warning, []).append(run.name)
    everyone = [f"{group.task} · {group.label}" for group in groups]
    found = {text: ["all settings"] if who == everyone else who for text, who in found.items()}
    versions = {str(run.config.get("svea_version", "?")) for g in groups for run in g.runs}
    if len(versions) > 1:
        found[f"runs of different versions of svea: {', '.join(sorted(versions))}"] = []
    if not found:
        return None
    items = [
        element("li", text, element("span", f" — {_listed(who)}") if who else None)
        for text, who in found.items()
    ]
    return element(
        "details",
        element("summary", f"Before you compare: {_plural(len(items), 'caveat')}"),
        element("ul", *items),
        class_="panel caveats",
        **({"open": ""} if len(items) <= 8 else {}),
    )


# --- Figures


def _figures_section(groups: Sequence[Group], results: Sequence[Result]) -> Markup | None:
    """Learning curves and generalisation bars, task by task."""
    blocks: list[Markup] = []
    number = 0
    labels = dict.fromkeys(group.label for group in groups)
    colors = {label: place for place, label in enumerate(labels)}  # the same on every figure
    for task in dict.fromkeys(group.task for group in groups):
        members = [group for group in groups if group.task == task]
        figures = _curve_figures(task, members, colors, number)
        number += len(figures)
        bars = [result for result in results if result.group.task == task]
        if bars:
            figures.append(_bar_figure(task, members, bars, colors, number))
            number += 1
        if figures:
            blocks.append(element("div", *figures, class_="figures", data_task=task))
    if not blocks:
        return None
    return element("section", element("h2", "Learning and generalisation"), *blocks)


def _curve_figures(
    task: str, groups: Sequence[Group], colors: dict[str, int], number: int
) -> list[Markup]:
    """One figure with all modes for a single group; else one per mode with a line per group."""
    alone = len(groups) == 1
    modes = list(dict.fromkeys(mode for group in groups for mode in group.modes))
    drawn = []
    for group in groups:
        for place, mode in enumerate(modes):
            curve, std = mean_curve(group, mode)
            if not curve.decisions.size:
                continue
            episodes = [run.episode_curve() for run in group.runs] if mode == "train" else []
            label, color = (mode, place) if alone else (group.label, colors[group.label])
            dashed = not alone and color >= len(plots.PALETTE)
            line = plots.Series(label, curve, std, episodes if alone else [], color, dashed)
            drawn.append((group, mode, line))
    subjects = [None] if alone else modes
    figures: list[Markup] = []
    for subject in subjects:
        chosen = [(g, line) for g, mode, line in drawn if subject in (None, mode)]
        if chosen:
            name = f"f{number + len(figures)}"
            figures.append(_curve_figure(task, subject, chosen, name))
    return figures


def _curve_figure(
    task: str, mode: str | None, lines: Sequence[tuple[Group, plots.Series]], name: str
) -> Markup:
    """A learning-curve figure with its caption."""
    group = lines[0][0]
    svg = plots.to_svg(
        plots.learning_curves(
            [line for _, line in lines],
            title=f"{task}: {mode or 'learning curve'}",
            action_repeat=group.runs[0].action_repeat,
            random=random_return(group, mode or "train"),
        ),
        name,
    )
    seeds = sorted({len(group.runs) for group, _ in lines})
    spread = "bands: ± 1 standard deviation over seeds" if seeds[-1] > 1 else "one seed, no band"
    dots = "; dots: training episodes" if any(len(line.episodes) for _, line in lines) else ""
    return element(
        "figure",
        Markup(svg),
        element("figcaption", f"Lines: mean return of evaluations; {spread}{dots}."),
        class_="panel",
        data_methods=json.dumps([group.method for group, _ in lines]),
    )


def _bar_figure(
    task: str,
    groups: Sequence[Group],
    results: Sequence[Result],
    colors: dict[str, int],
    number: int,
) -> Markup:
    """The generalisation figure of a task."""
    modes = list(dict.fromkeys(result.mode for result in results))
    cells = {(id(result.group), result.mode): result for result in results}
    bars = []
    for group in groups:
        row = [cells.get((id(group), mode)) for mode in modes]
        bars.append(
            plots.Bar(
                label=group.label,
                values=[r.mean if r else math.nan for r in row],
                lows=[r.mean_interval.low if r else math.nan for r in row],
                highs=[r.mean_interval.high if r else math.nan for r in row],
                color=colors[group.label],
                paper=[r.paper.mean if r and r.paper else math.nan for r in row],
            )
        )
    levels = [[random_return(group, mode) for group in groups] for mode in modes]
    random = [next((level for level in row if math.isfinite(level)), math.nan) for row in levels]
    figure = plots.generalisation_bars(bars, modes, title=f"{task}: return per mode", random=random)
    caption = "Whiskers: 95 % bootstrap interval of the mean, over seeds (one seed: over episodes)."
    if any(result.paper for result in results):
        caption += " Diamonds: the paper, 500,000 decisions × 5 seeds"
        smaller = any(result.paper and not result.is_replication for result in results)
        caption += "; ours are smaller runs, see the table." if smaller else "."
    return element(
        "figure",
        Markup(plots.to_svg(figure, f"f{number}")),
        element("figcaption", caption),
        class_="panel",
        data_methods=json.dumps([group.method for group in groups]),
    )


# --- Table


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
    return element(
        "section",
        element("h2", "Returns"),
        element("div", table, class_="panel scroll"),
        element("p", *_footnotes(results), class_="footnote"),
        id="results",
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
        ("Random\npolicy", None, lambda r: _cell(r.random, _number(r.random))),
        ("Times\nrandom", None, lambda r: _cell(r.times_random, f"{r.times_random:.1f}×")),
        ("Of train\nreturn", None, lambda r: _cell(r.percent_of_train, _percent(r))),
        ("Seeds ×\nepisodes", None, _sample_cell),
        ("Paper\n500k × 5 seeds", "paper", _paper_cell),
    ]


def _return_cell(result: Result) -> Markup:
    """Mean return, with its deviation over seeds where there is one."""
    std = f" ± {_number(result.std)}" if math.isfinite(result.std) else ""
    return _cell(result.mean, f"{_number(result.mean)}{std}", "main")


def _iqm_cell(result: Result) -> Markup:
    """The interquartile mean and its interval."""
    iqm = result.iqm
    interval = element("small", f" [{_number(iqm.low)}, {_number(iqm.high)}]")
    return _cell(iqm.point, join([_number(iqm.point), interval]))


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
    figure = f"{_number(paper.mean)} ± {_number(paper.std)}{mark} "
    return _cell(paper.mean, join([figure, element("small", paper.table)]), "paper")


def _footnotes(results: Sequence[Result]) -> list[Markup]:
    """What the table's columns mean, and how far we are from the paper's setting."""
    notes = [
        "Mean over episodes per seed, then mean ± standard deviation over seeds, as in the paper. "
        "IQM: mean of the middle half, with its 95 % bootstrap interval, over seeds; with a single "
        "seed, over its episodes, which says nothing about other seeds. "
    ]
    smaller = [result for result in results if result.paper and not result.is_replication]
    gaps = dict.fromkeys(_gap(result) for result in smaller)
    if gaps:
        notes.append(
            "† Not a replication. The paper trains for 500,000 decisions (ViT: 300,000) and "
            f"5 seeds at 84 px; here: {'; '.join(gaps)}."
        )
    return [element("span", note) for note in notes]


def _gap(result: Result) -> str:
    """How much smaller than the paper's setting a result's is."""
    assert result.paper is not None
    runs = result.group.runs
    done, wanted = min(run.decisions_done for run in runs), result.paper.decisions
    share = f"{100 * done / wanted:.2g} %"
    size = f"{done:,} decisions ({share}), {_plural(result.seeds, 'seed')}"
    return f"{result.group.task} {result.group.label}, {size}, preset {runs[0].preset}"


# --- Gallery


def _gallery_section(groups: Sequence[Group]) -> tuple[Markup | None, list[str]]:
    """Videos and frames of every run, and the names of files too large to embed."""
    owned = [(group, run) for group in groups for run in group.runs]
    chosen, left_out = _embeddable([run for _, run in owned])
    blocks = []
    for group, run in owned:
        videos, frames = run.media(".mp4"), run.media(".png")
        figures = []
        for mode in sorted({*videos, *frames}, key=lambda m: (m != "train", m)):
            files = [f for f in (videos.get(mode), frames.get(mode)) if f in chosen]
            if files:
                figures.append(_mode_figure(mode, files, run))
        if figures:
            blocks.append(_gallery(group, run, figures))
    if not blocks:
        return None, left_out
    lead = "What the agent sees and does: videos of the final policy, and sample frames."
    section = element(
        "section", element("h2", "Gallery"), element("p", lead, class_="lead"), *blocks
    )
    return section, left_out


def _embeddable(runs: Sequence[Run]) -> tuple[set[Path], list[str]]:
    """The media files that fit into the page, first come, first served; the rest is named."""
    room, chosen, left_out = MEDIA_BYTES, set(), []
    for run in runs:
        for file in (*run.media(".png").values(), *run.media(".mp4").values()):
            size = file.stat().st_size
            if size <= room:
                room -= size
                chosen.add(file)
            else:
                left_out.append(f"media/{file.name} of {run.name} does not fit into the page")
    return chosen, left_out


def _gallery(group: Group, run: Run, figures: Sequence[Markup]) -> Markup:
    """The pictures of one run."""
    return element(
        "div",
        element("h3", f"{group.task} · {group.label} · {_seed(run)}"),
        element("div", *figures, class_="modes"),
        class_="gallery panel",
        data_task=group.task,
        data_method=group.method,
    )


def _mode_figure(mode: str, files: Sequence[Path], run: Run) -> Markup:
    """The video and frames of one mode, with the return below."""
    parts = []
    for file in files:
        if file.suffix == ".mp4":
            switches = dict.fromkeys(("controls", "muted", "loop", "playsinline"), "")
            source = _data_uri(file, "video/mp4")
            parts.append(element("video", src=source, preload="metadata", title=mode, **switches))
        else:
            source = _data_uri(file, "image/png")
            parts.append(Markup(f'<img alt="frames in {html.escape(mode)}" src="{source}">'))
    returns = run.final_returns(mode)
    mean = f": mean return {_number(returns.mean())}" if returns.size else ""
    return element("figure", *parts, element("figcaption", f"{mode}{mean}"))


def _data_uri(file: Path, kind: str) -> str:
    """A file's content as a URI."""
    return f"data:{kind};base64,{base64.b64encode(file.read_bytes()).decode('ascii')}"


# --- Runs


def _runs_section(groups: Sequence[Group]) -> Markup:
    """The exact configuration, command, provenance and warnings of each run."""
    runs = [_run_details(group, run) for group in groups for run in group.runs]
    return element("section", element("h2", "Runs"), *runs, id="runs")


def _run_details(group: Group, run: Run) -> Markup:
    """One run, folded."""
    unfinished = None
    if not run.finished:
        unfinished = element("span", "unfinished", class_="badge warn")
    facts: list[tuple[str, object]] = [
        ("Folder", run.name),
        ("Trained for", _decisions(run.decisions_done, run.action_repeat)),
        ("Wall time", _duration(run.seconds) if run.seconds is not None else "not recorded"),
        ("Version", f"svea {run.config.get('svea_version', 'not recorded')}"),
    ]
    facts += [
        (f"Provenance of {mode}", _provenance(where)) for mode, where in run.provenance().items()
    ]
    facts += [("Warning", warning) for warning in run.warnings]
    rows = [part for name, value in facts for part in (element("dt", name), element("dd", value))]
    command = run.command or "not recorded"
    config = json.dumps(run.config, indent=2, sort_keys=True, ensure_ascii=False)
    label = element("span", f" · {group.task} · {group.label} · {_seed(run)}", class_="soft")
    return element(
        "details",
        element("summary", run.name, label, unfinished),
        element("dl", *rows),
        element("strong", "Command"),
        element("pre", command),
        element("strong", "Configuration"),
        element("pre", config, class_="config"),
        class_="run panel",
        data_task=group.task,
        data_method=group.method,
    )


def _provenance(where: dict[str, Any]) -> str:
    """A provenance record in one line."""
    return "; ".join(f"{key}: {value}" for key, value in where.items()) or "not recorded"


# --- Numbers in words


def _number(value: float) -> str:
    """A return, as precise as its size deserves."""
    if not math.isfinite(value):
        return "–"
    size = abs(value)
    return f"{value:,.0f}" if size >= 10 else f"{value:.1f}" if size >= 1 else f"{value:.2g}"


def _decisions(count: int, action_repeat: int | None) -> str:
    """Decisions with the frames they took, both named."""
    frames = f" = {count * action_repeat:,} frames" if action_repeat else ""
    return f"{count:,} decisions{frames}"


def _duration(seconds: float) -> str:
    """A wall time such as 42 s, 12 min, 3.1 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _plural(count: int, noun: str) -> str:
    """'1 run', '5 runs'."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _listed(names: Sequence[str], most: int = 6) -> str:
    """The first few names, and how many more there are."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def _seed(run: Run) -> str:
    """'seed 3'."""
    return f"seed {run.seed}" if run.seed is not None else "seed not recorded"
