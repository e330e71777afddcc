"""The report: one self-contained HTML page about one run or many, to look at and to send.

The page needs no network: styles, script, figures, frames and videos are inside. It never lets a
small run pass for a replication: whatever is smaller than the paper's setting is said next to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from svea.core import files
from svea.core.errors import UserError
from svea.core.words import plural
from svea.results import figures, plots, tables
from svea.results.figures import ReportFigure
from svea.results.groups import Group, group_runs
from svea.results.read import Run, find_runs, read_runs
from svea.results.report.page import render
from svea.results.summary import Aggregate, Result, aggregate, summarise
from svea.results.tables import (
    Table,
    aggregate_table,
    list_results,
    return_tables,
    success_table,
)
from svea.runs import zoo


@dataclass(frozen=True, eq=False)
class Evidence:
    """Everything a report shows, computed once from run folders."""

    groups: list[Group]
    results: list[Result]
    """Returns."""
    successes: list[Result]
    aggregates: list[Aggregate]
    figures: list[ReportFigure]
    problems: list[str]
    """Folders that are not runs, each with the reason."""

    @property
    def runs(self) -> list[Run]:
        """Every run, group by group."""
        return [run for group in self.groups for run in group.runs]

    def return_tables(self) -> list[Table]:
        """Returns with settings side by side: over all tasks, then by mode or task."""
        methods = {group.label: group.method for group in self.groups}
        over_tasks = aggregate_table(self.aggregates, methods)
        return [*([over_tasks] if over_tasks else []), *return_tables(self.results)]


def gather(
    folders: Sequence[Path], on_step: Callable[[str], None] = lambda doing: None
) -> Evidence:
    """Read runs and compute what there is to show.

    Args:
        folders: Run folders, or folders with runs beneath them.
        on_step: Called with what is done next.

    Raises:
        UserError: None of the folders is a run.
    """
    on_step("reading runs")
    runs, problems = read_runs([Path(folder) for folder in folders])
    on_step(f"computing intervals of {plural(len(runs), 'run')}")
    groups = group_runs(runs)
    returns = [result for group in groups for result in summarise(group)]
    successes = [result for group in groups for result in summarise(group, "success")]
    on_step("drawing figures")
    shown = figures.report_figures(groups, returns, successes)
    return Evidence(groups, returns, successes, aggregate(groups), shown, problems)


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
        name = _unused(_file_name(one.name), contents)
        contents[f"{name}.png"] = plots.to_png(one.figure, dpi=200)
        contents[f"{name}.pdf"] = plots.to_pdf(one.figure)
        contents[f"{name}.csv"] = tables.records_to_csv(one.numbers)
    success = success_table(evidence.successes)
    for table in [*evidence.return_tables(), *([success] if success else [])]:
        name = _unused("table-" + _file_name(table.name), contents)
        contents[f"{name}.tex"] = tables.to_latex(table)
        contents[f"{name}.md"] = tables.to_markdown(table)
    contents["results.csv"] = tables.to_csv(list_results(evidence.results, evidence.successes))
    if success is not None:
        contents["success.csv"] = tables.to_csv(success)
    for name, content in contents.items():
        files.write_whole(folder / name, content.encode() if isinstance(content, str) else content)


def _file_name(text: str) -> str:
    """A name that every file system takes, and that leads nowhere else."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-")[:100] or "unnamed"


def _unused(name: str, contents: dict[str, str | bytes]) -> str:
    """The name, or the name with the first number behind it that no file has yet."""
    taken = {Path(file).stem for file in contents}
    numbered = (f"{name}-{number}" for number in range(2, len(taken) + 3))
    return next(one for one in (name, *numbered) if one not in taken)
