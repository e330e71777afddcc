"""Tables of results beside the paper's, as data, Markdown and LaTeX; and all numbers as rows."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from svea.evidence.results import Aggregate, Result, Success
from svea.words import number, rate

Row = dict[str, Any]
"""One line of a CSV file."""


@dataclass(frozen=True)
class Cell:
    """Our figure, and the paper's for the same setting (empty where it has none)."""

    ours: str
    paper: str = ""


@dataclass(frozen=True)
class Table:
    """Settings side by side; one row per task, per mode, or both."""

    name: str
    """For a file."""
    title: str
    corner: str
    """What the rows are."""
    columns: dict[str, str]
    """The label of each setting, and its method."""
    rows: dict[str, tuple[str, dict[str, Cell]]]
    """By the row's name: its task, and a cell per label."""
    notes: tuple[str, ...]
    """How to read it, a sentence each."""

    @property
    def has_paper(self) -> bool:
        """Whether the paper has any of its figures."""
        return any(cell.paper for _, cells in self.rows.values() for cell in cells.values())


def return_tables(results: Sequence[Result]) -> list[Table]:
    """Mean return ± deviation: for one task a table over modes, else one over tasks per mode."""
    tasks = list(dict.fromkeys(result.group.task for result in results))
    if len(tasks) == 1:
        title = f"{tasks[0]}: return per mode"
        return [_table("returns", title, "Mode", results, lambda r: r.mode, _return_cell)]
    families: dict[str, list[Result]] = {}  # the intensities of a mode share a table
    for result in sorted(results, key=lambda result: result.mode != "train"):
        families.setdefault(result.mode.partition(":")[0], []).append(result)
    return [_family_table(mode, members) for mode, members in families.items()]


def _family_table(mode: str, results: Sequence[Result]) -> Table:
    """The table of one mode, over tasks; with a row for each intensity where there are several."""

    def row(result: Result) -> str:
        return f"{result.group.task}, {result.mode.partition(':')[2] or mode}"

    name, title = f"returns-{mode}", f"Return in {mode}"
    if len({result.mode for result in results}) > 1:
        return _table(name, title, "Task, intensity", results, row, _return_cell)
    return _table(name, title, "Task", results, lambda r: r.group.task, _return_cell)


def aggregate_table(aggregates: Sequence[Aggregate], methods: dict[str, str]) -> Table | None:
    """Interquartile means over tasks and seeds; None where no setting has several tasks.

    Args:
        aggregates: Of each setting and mode.
        methods: The method of each setting, by its label.
    """
    if not aggregates:
        return None
    rows: dict[str, tuple[str, dict[str, Cell]]] = {}
    for one in aggregates:
        text = f"{number(one.iqm.point)} [{number(one.iqm.low)}, {number(one.iqm.high)}]"
        cells = rows.setdefault(f"{one.mode}, {len(one.tasks)} {one.suite} tasks", ("", {}))[1]
        cells[one.label] = Cell(text)
    return Table(
        name="returns-over-tasks",
        title="Over tasks: IQM of returns",
        corner="Mode",
        columns={one.label: methods[one.label] for one in aggregates},
        rows=rows,
        notes=(
            "IQM: the mean of the middle half of all tasks' seeds, with its 95 % interval; seeds "
            "are drawn anew within each task.",
        ),
    )


def success_table(successes: Sequence[Success]) -> Table | None:
    """Success rates of every task and mode; None where no task knows success."""
    if not successes:
        return None

    def row(success: Success) -> str:
        return f"{success.group.task}, {success.mode}"

    dagger = "The paper's own robot tasks, which were never released"
    return _table("success", "Success rate", "Task, mode", successes, row, _success_cell, dagger)


def to_markdown(table: Table) -> str:
    """The table for a README."""
    lines = [[table.corner, *table.columns], ["---"] * (1 + len(table.columns))]
    for name, (_, cells) in table.rows.items():
        lines.append([name, *(_in_one_line(cells.get(label)) for label in table.columns)])
    escaped = (
        " | ".join(text.replace("|", r"\|").replace("\n", " ") for text in line) for line in lines
    )
    body = "\n".join(f"| {line} |" for line in escaped)
    return f"**{table.title}**\n\n{body}\n\n{_note(table)}\n"


def to_latex(table: Table) -> str:
    """The table for a paper; it needs the package booktabs."""
    heads = [_tex(text) for text in (table.corner, *table.columns)]
    lines = [" & ".join(heads) + r" \\", r"\midrule"]
    for name, (_, cells) in table.rows.items():
        shown = [_tex(_in_one_line(cells.get(label))) for label in table.columns]
        lines.append(" & ".join([_tex(name), *shown]) + r" \\")
    return "\n".join(
        [
            r"\begin{table}  % needs \usepackage{booktabs}",
            rf"\caption{{\textbf{{{_tex(table.title)}.}} {_tex(_note(table))}}}",
            rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}",
            r"\toprule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def result_rows(results: Sequence[Result]) -> list[Row]:
    """Every figure of the table of returns, unrounded."""
    return [
        _setting(result)
        | {
            "return_mean": result.mean,
            "return_std_over_seeds": result.std,
            "mean_low": result.mean_interval.low,
            "mean_high": result.mean_interval.high,
            "iqm": result.iqm.point,
            "iqm_low": result.iqm.low,
            "iqm_high": result.iqm.high,
            "area_under_curve": result.area.point,
            "area_low": result.area.low,
            "area_high": result.area.high,
            "random_policy": result.random,
            "percent_of_train": result.percent_of_train,
            "paper_mean": result.paper.mean if result.paper else math.nan,
            "paper_std": result.paper.std if result.paper else math.nan,
            "paper_table": result.paper.table if result.paper else "",
            "paper_is_approximate": bool(result.paper and result.paper.approximate),
            "is_replication": result.is_replication,
        }
        for result in results
    ]


def success_rows(successes: Sequence[Success]) -> list[Row]:
    """Every success rate, unrounded."""
    return [
        _setting(success)
        | {
            "success_rate": success.rate,
            "success_std_over_seeds": success.std,
            "low": success.interval.low,
            "high": success.interval.high,
            "paper_rate": success.paper.mean if success.paper else math.nan,
            "paper_table": success.paper.table if success.paper else "",
        }
        for success in successes
    ]


def _setting(result: Result | Success) -> Row:
    """Which task, setting and mode a row is about, and from how much."""
    run = result.group.runs[0]
    return {
        "task": run.task,
        "setting": result.group.label,
        "method": run.method,
        "augment": run.augment,
        "encoder": run.encoder,
        "preset": run.preset,
        "decisions": min(run.decisions_done for run in result.group.runs),
        "mode": result.mode,
        "seeds": result.seeds,
        "episodes": result.episodes,
    }


def _table(
    name: str,
    title: str,
    corner: str,
    results: Sequence[Any],
    row_of: Callable[[Any], str],
    cell_of: Callable[[Any], Cell],
    dagger: str = "Our run is smaller than the paper's, or another setting",
) -> Table:
    """Put each result into its row and column."""
    columns = {result.group.label: result.group.method for result in results}
    rows: dict[str, tuple[str, dict[str, Cell]]] = {}
    for result in results:
        rows.setdefault(row_of(result), (result.group.task, {}))[1][result.group.label] = cell_of(
            result
        )
    notes = ["Mean over seeds, ± standard deviation over seeds where there are several."]
    figures = "".join(cell.paper for _, cells in rows.values() for cell in cells.values())
    notes += ["~ Read off a figure."] if "~" in figures else []
    notes += [f"† {dagger}: not a replication."] if "†" in figures else []
    return Table(name, title, corner, columns, rows, tuple(notes))


def _return_cell(result: Result) -> Cell:
    """A mean return beside the paper's."""
    paper = result.paper
    if paper is None:
        return Cell(_spread(result.mean, result.std, number))
    about, mark = "~" if paper.approximate else "", "" if result.is_replication else "†"
    figure = f"{about}{_spread(paper.mean, paper.std, number)}{mark}"
    return Cell(_spread(result.mean, result.std, number), figure)


def _success_cell(success: Success) -> Cell:
    """A success rate beside the paper's."""
    paper = success.paper
    return Cell(
        _spread(success.rate, success.std, rate),
        _spread(paper.mean, paper.std, rate) + "†" if paper else "",
    )


def _spread(mean: float, std: float, words: Callable[[float], str]) -> str:
    """'760 ± 145', or '760' where there is no deviation."""
    return f"{words(mean)} ± {words(std)}" if math.isfinite(std) else words(mean)


def _note(table: Table) -> str:
    """The notes, where the paper's figures stand in parentheses."""
    return " ".join(table.notes) + (" In parentheses: the paper." if table.has_paper else "")


def _in_one_line(cell: Cell | None) -> str:
    """Ours, and the paper's in parentheses."""
    if cell is None:
        return "–"
    return f"{cell.ours} ({cell.paper})" if cell.paper else cell.ours


_TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", "†": r"$^\dagger$", "–": "--", "<": r"\textless{}", ">": r"\textgreater{}",
    "\n": " ",
}  # fmt: skip


def _tex(text: str) -> str:
    """Text in which LaTeX reads nothing but text."""
    return re.sub("|".join(map(re.escape, _TEX)), lambda found: _TEX[found[0]], text)
