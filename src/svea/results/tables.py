"""Tables of results: one object, whether on a terminal, a page, in LaTeX, Markdown or CSV."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from svea.config.modes import family, in_order
from svea.core.words import interval, listed, mean_std, number, rate
from svea.envs import describe
from svea.results.groups import Group
from svea.results.published import PaperResult
from svea.results.stats import Interval
from svea.results.summary import Aggregate, Result, aggregate, summarise

Record = dict[str, Any]
"""One line of a CSV file."""
Kind = Literal["number", "main", "text", "paper"]
"""What a column holds: numbers, the most important of them, words, or the paper's numbers."""


@dataclass(frozen=True)
class Cell:
    """What stands at a place of the table."""

    text: str
    note: str = ""
    """In small print after it: an interval, a ratio, a source."""
    paper: str = ""
    """The paper's value for the same setting."""
    value: float = math.nan
    """What the text rounds: a page sorts by it."""

    @property
    def line(self) -> str:
        """All of it in one line."""
        return " ".join(filter(None, [self.text, self.note, self.paper and f"({self.paper})"]))


@dataclass(frozen=True)
class Column:
    """The head of a column."""

    title: str
    method: str = ""
    """Whose results stand below: a page filters by it."""
    kind: Kind = "number"


@dataclass(frozen=True)
class Row:
    """Cells by the titles of their columns, with what a page filters by."""

    cells: dict[str, Cell]
    task: str = ""
    method: str = ""

    def cell(self, column: Column) -> Cell:
        """What stands in a column; an empty cell where there is nothing."""
        return self.cells.get(column.title, Cell(""))


@dataclass(frozen=True)
class Table:
    """Rows of cells, with how to read them."""

    name: str
    """For a file."""
    title: str
    columns: tuple[Column, ...]
    """What is shown of the rows."""
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()
    """How to read it, a sentence each."""

    @classmethod
    def of(
        cls, name: str, rows: Iterable[Mapping[str, Cell | str]], notes: Sequence[str] = ()
    ) -> Table:
        """A table whose rows name their columns; the first row's are shown."""
        lines = [{k: Cell(v) if isinstance(v, str) else v for k, v in row.items()} for row in rows]
        columns = [Column(title) for title in (lines[0] if lines else ())]
        return cls(name, "", tuple(columns), tuple(map(Row, lines)), tuple(notes))

    def lines(self) -> list[list[Cell]]:
        """The cells of each row in the order of the columns."""
        return [[row.cell(column) for column in self.columns] for row in self.rows]


ABOUT = "≈"
"""Marks a value of the paper that is read off a plot."""
NOT_A_REPLICATION = "†"
"""Marks a value of the paper that ours cannot be compared with."""

SEEN = "(trained on)"
"""Marks a result in a world that training has shown."""

SPREAD = "Mean over seeds, ± standard deviation over seeds where there are several."


# One result as text -------------------------------------------------------------------------------


def show(unit: str) -> Callable[[float], str]:
    """How numbers of a unit are written."""
    return rate if unit == "success" else number


def estimate(one: Interval, form: Callable[[float], str] = number) -> Cell:
    """A value with the ends of its interval."""
    return Cell(form(one.point), interval(one.low, one.high, form), value=one.point)


def papers(paper: PaperResult | None, is_replication: bool = True) -> str:
    """The paper's value with its marks; empty where it has none."""
    if paper is None:
        return ""
    about = ABOUT if paper.approximate else ""
    mark = "" if is_replication else NOT_A_REPLICATION
    return about + mean_std(paper.mean, paper.std, show(paper.unit)) + mark


def cell(result: Result) -> Cell:
    """A result, '760 ± 145' or '0.89 ± 0.03', next to the paper's."""
    ours = mean_std(result.mean, result.std, show(result.unit))
    seen = SEEN if result.group.runs[0].trained_on(result.mode) else ""
    return Cell(ours, seen, papers(result.paper, result.is_replication), result.mean)


def record(result: Result) -> Record:
    """Every number of a result, unrounded."""
    run, paper = result.group.runs[0], result.paper
    names = ("method", "augment", "encoder", "base", "mask", "preset")
    seen = run.trained_in
    return {
        "task": run.task,
        "setting": result.group.label,
        **{name: getattr(run, name) for name in names},
        "decisions": min(run.decisions_done for run in result.group.runs),
        "mode": result.mode,
        "unit": result.unit,
        **({"trained_in": seen, "trained_on": run.trained_on(result.mode)} if seen else {}),
        "seeds": result.seeds,
        "episodes": result.episodes,
        "worlds_seen": result.worlds_seen,
        "worlds": result.worlds,
        "mean": result.mean,
        "std_over_seeds": result.std,
        "mean_low": result.mean_over_seeds.low,
        "mean_high": result.mean_over_seeds.high,
        "mean_low_over_worlds": result.interval.low,
        "mean_high_over_worlds": result.interval.high,
        "iqm": result.iqm.point,
        "iqm_low": result.iqm.low,
        "iqm_high": result.iqm.high,
        "iqm_low_over_worlds": result.iqm_over_worlds.low,
        "iqm_high_over_worlds": result.iqm_over_worlds.high,
        "area_under_curve": result.area.point,
        "area_low": result.area.low,
        "area_high": result.area.high,
        "random_policy": result.random,
        "percent_of_train": result.percent_of_train,
        "paper_mean": paper.mean if paper else math.nan,
        "paper_std": paper.std if paper else math.nan,
        "paper_table": paper.table if paper else "",
        "paper_is_approximate": bool(paper and paper.approximate),
        "is_replication": result.is_replication,
        "differs_from_paper": ", ".join(result.departures) if paper else "",
    }


def notes_on_marks(results: Iterable[Result], *, brief: bool = False) -> list[str]:
    """What the marks on the paper's values mean; `brief`: not how each setting differs from it."""
    notes: list[str] = []
    apart: dict[str, list[str]] = {}  # what differs from the paper, and whose result does
    for result in results:
        if result.paper and result.paper.approximate and not notes:
            notes.append(f"{ABOUT} Read off a plot, to about 10 points.")
        if result.paper and not result.is_replication:
            own = ", ".join(result.departures)
            apart.setdefault(own, []).append(f"{result.group.task} {result.group.label}")
    if apart and brief:
        notes.append(
            f"{NOT_A_REPLICATION} Not a replication: our run is smaller than the paper's, its "
            "setting or pictures are others, or it was not judged in all of the benchmark's worlds."
        )
    elif apart:
        who = [f"{listed(list(dict.fromkeys(names)), 3)}: {own}" for own, names in apart.items()]
        here = listed(who, between="; ") if len(apart) > 1 else next(iter(apart))
        notes.append(
            f"{NOT_A_REPLICATION} Not a replication. The paper trains for 500,000 decisions (ViT: "
            f"300,000) and 5 seeds at 84 px; here: {here}."
        )
    return notes


# All results in a list ----------------------------------------------------------------------------


def all_results(groups: Sequence[Group], modes: Collection[str] | None = None) -> Table:
    """A row per setting and mode (of `modes`, if given), then one over the tasks of a suite."""
    returns = [result for group in groups for result in summarise(group, "return", modes)]
    successes = [result for group in groups for result in summarise(group, "success", modes)]
    return list_results(returns, successes, aggregate(groups, modes))


def list_results(
    returns: Sequence[Result], successes: Sequence[Result], aggregates: Sequence[Aggregate] = ()
) -> Table:
    """The same from results that are there already."""
    succeeded = {(one.group, one.mode): one for one in successes}
    rows = []
    for one in returns:
        success = succeeded.get((one.group, one.mode))
        made = {name: make(one, success) for name, (_, make) in COLUMNS.items()}
        rows.append(Row(_there(made), one.group.task, one.group.method))
    rows += [Row(_there(_pooled(one))) for one in aggregates]
    named = {name for row in rows for name in row.cells}
    columns = [Column(name, kind=kind) for name, (kind, _) in COLUMNS.items() if name in named]
    notes = tuple(_list_notes(named, [*returns, *successes]))
    return Table("results", "All results", tuple(columns), tuple(rows), notes)


def brief(table: Table) -> Table:
    """The columns of `all_results` that fit a terminal, without notes."""
    columns = [replace(one, title=BRIEF[one.title]) for one in table.columns if one.title in BRIEF]
    rows = []
    for row in table.rows:
        cells = {BRIEF[title]: cell for title, cell in row.cells.items() if title in BRIEF}
        cells[BRIEF[MEAN]] = Cell(number(row.cells[MEAN].value))
        rows.append(replace(row, cells=cells))
    return replace(table, columns=tuple(columns), rows=tuple(rows), notes=())


def _there(cells: Mapping[str, Cell | None]) -> dict[str, Cell]:
    return {name: cell for name, cell in cells.items() if cell is not None}


def _pooled(one: Aggregate) -> dict[str, Cell | None]:
    return {
        "task": Cell(f"all {len(one.tasks)} {one.suite} tasks"),
        "setting": Cell(one.label),
        "mode": Cell(one.mode),
        "seeds": _known(one.seeds, str),
        MEAN: _known(one.mean.point),
        "mean [95 %]": _ends(one.mean),
        "IQM": estimate(one.iqm),
    }


def _known(value: float, form: Callable[[Any], str] = number, note: str = "") -> Cell | None:
    """A number with a note; no cell where there is none."""
    return Cell(form(value), note, value=value) if math.isfinite(value) else None


def _ends(one: Interval) -> Cell:
    """The interval of a mean over seeds and worlds; a dash where there is none."""
    return Cell(interval(one.low, one.high) or "–", value=one.low)


def _mode(result: Result, _: Result | None) -> Cell:
    """The mode, with what its pictures were made of, such as `6 of 10 clips`."""
    try:
        described = describe(result.group.runs[0].provenance[result.mode])
    except (KeyError, TypeError, ValueError):  # damaged
        described = result.mode
    seen = SEEN if result.group.runs[0].trained_on(result.mode) else ""
    note = " ".join(filter(None, [described.removeprefix(result.mode).strip(), seen]))
    return Cell(result.mode, note)


def _worlds(result: Result, _: Result | None) -> Cell | None:
    seen = f"{result.worlds_seen or '?'} of {result.worlds}"
    return Cell(seen, value=result.worlds_seen) if result.worlds else None


def _random(result: Result, _: Result | None) -> Cell | None:
    """The random policy's return, and how many times ours is."""
    times = f"({result.times_random:.1f}×)" if math.isfinite(result.times_random) else ""
    return _known(result.random, number, times)


def _success(_: Result, success: Result | None) -> Cell | None:
    if success is None:
        return None
    return estimate(replace(success.interval, point=success.mean), rate)


def _papers(result: Result, success: Result | None) -> Cell | None:
    """The paper's number, of the return or else of success."""
    compared = result if result.paper or success is None else success
    if compared.paper is None:
        return None
    text = papers(compared.paper, compared.is_replication)
    return Cell(text, compared.paper.table, value=compared.paper.mean)


MEAN = "mean ± std"
COLUMNS: dict[str, tuple[Kind, Callable[[Result, Result | None], Cell | None]]] = {
    "task": ("text", lambda one, _: Cell(one.group.task)),
    "setting": ("text", lambda one, _: Cell(one.group.label)),
    "mode": ("text", _mode),
    MEAN: ("main", lambda one, _: replace(cell(one), paper="", note="")),
    "mean [95 %]": ("number", lambda one, _: _ends(one.interval)),
    "IQM": ("number", lambda one, _: _known(one.iqm.point)),
    "area": ("number", lambda one, _: _known(one.area.point)),
    "random": ("number", _random),
    "of train": ("number", lambda one, _: _known(one.percent_of_train, "{:.0f} %".format)),
    "success [95 %]": ("number", _success),
    "seeds": ("number", lambda one, _: _known(one.seeds, str)),
    "episodes": ("number", lambda one, _: _known(one.episodes, str)),
    "worlds": ("number", _worlds),
    "paper": ("paper", _papers),
}
"""The columns in their order, each with its cells; the mean comes first of the numbers, since a
phone shows the beginning of a row. A column without any cell is left out."""

BRIEF = {
    "task": "task",
    "setting": "setting",
    "mode": "mode",
    MEAN: "mean",
    "mean [95 %]": "[95 %]",
    "success [95 %]": "success",
    "episodes": "episodes",
}
"""Columns of the short table, and what they are called there."""


def _list_notes(names: Collection[str], results: Sequence[Result]) -> Iterable[str]:
    """What the columns mean, and how far we are from the paper's setting."""
    yield (
        "Mean over episodes per seed, then mean ± standard deviation over seeds, as in the paper. "
        "mean [95 %]: bootstrap interval over seeds and worlds (train: seeds and episodes); "
        "of a single seed it says nothing about other seeds. IQM: mean of the middle half; over "
        "tasks with its interval, for which seeds and worlds are drawn within each task."
    )
    if any(math.isnan(one.interval.low) for one in results if one.unit == "return"):
        yield "No interval: one seed in a single world or episode says nothing about others."
    if any(one.worlds_seen < one.worlds for one in results):
        yield "Worlds: how many of a mode's were shown; `svea eval --episodes all` shows each once."
    if "area" in names:
        yield "Area: mean height of the evaluation curve during training (sample efficiency)."
    yield from notes_on_marks(results)


# Settings side by side ----------------------------------------------------------------------------


def return_tables(results: Sequence[Result]) -> list[Table]:
    """Returns, settings side by side: over modes for one task, else over tasks for each mode."""
    tasks = list(dict.fromkeys(result.group.task for result in results))
    if len(tasks) == 1:
        return [_side_by_side("returns", f"{tasks[0]}: return per mode", "Mode", results)]
    families: dict[str, list[Result]] = {}  # many modes of a kind share a table
    for mode in in_order(result.mode for result in results):
        members = [result for result in results if result.mode == mode]
        families.setdefault(family(mode), []).extend(members)
    found = []
    for name, members in families.items():
        corner = "Task" if len({one.mode for one in members}) == 1 else "Task, mode"
        members.sort(key=lambda one: tasks.index(one.group.task))
        found.append(_side_by_side(f"returns-{name}", f"Return in {name}", corner, members))
    return found


def success_tables(successes: Sequence[Result]) -> list[Table]:
    """Success rates of every task and mode, where a task knows success."""
    about = "success", "Success rate", "Task, mode"
    return [_side_by_side(*about, successes)] if successes else []


def _side_by_side(name: str, title: str, corner: str, results: Sequence[Result]) -> Table:
    """A row for each task or mode, or both, as `corner` says; a column for each setting."""
    heads = {"Task": "{0}", "Mode": "{1}", "Task, mode": "{0}, {1}"}
    rows: dict[str, Row] = {}
    methods: dict[str, str] = {}
    for one in results:
        head = heads[corner].format(one.group.task, one.mode)
        row = rows.setdefault(head, Row({corner: Cell(head)}, one.group.task))
        row.cells[one.group.label], methods[one.group.label] = cell(one), one.group.method
    columns = (Column(corner, kind="text"), *(Column(*one) for one in sorted(methods.items())))
    notes = (SPREAD, *notes_on_marks(results, brief=True))
    return Table(name, title, columns, tuple(rows.values()), notes)


# Writers ------------------------------------------------------------------------------------------

_FORMULA = re.compile(r"[=@\t\r]|[+-](?![\d.]+$)")


def to_rows(table: Table) -> list[dict[str, str]]:
    """For a terminal: a dictionary per row, by the titles of the columns."""
    return [{one.title: row.cell(one).line for one in table.columns} for row in table.rows]


def _texts(table: Table) -> list[list[str]]:
    """The titles of the columns, and below them the rows."""
    rows = [[cell.line or "–" for cell in cells] for cells in table.lines()]
    return [[column.title for column in table.columns], *rows]


def to_markdown(table: Table) -> str:
    """For a README or a page of results."""
    rule = ["---"] * len(table.columns)
    lines = [
        [text.replace("|", r"\|").replace("\n", " ") for text in line] for line in _texts(table)
    ]
    body = "\n".join(f"| {' | '.join(line)} |" for line in [lines[0], rule, *lines[1:]])
    parts = [f"**{table.title}**" if table.title else "", body, notes_of(table)]
    return "\n\n".join(filter(None, parts)) + "\n"


def to_latex(table: Table) -> str:
    """For a paper; it needs the package booktabs."""
    head, *body = (" & ".join(map(_tex, line)) + r" \\" for line in _texts(table))
    alignment = "".join("l" if column.kind == "text" else "r" for column in table.columns)
    return "\n".join(
        [
            r"\begin{table}  % needs \usepackage{booktabs}",
            rf"\caption{{\textbf{{{_tex(table.title)}.}} {_tex(notes_of(table))}}}",
            rf"\begin{{tabular}}{{{alignment}}}",
            r"\toprule",
            head,
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def records_to_csv(records: Iterable[Record]) -> str:
    """Records with all their names as columns; what is not a number is an empty field."""
    records = list(records)
    text = io.StringIO()
    names = list(dict.fromkeys(name for record in records for name in record))
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_field(name) for name in names])
    writer.writerows([_field(record.get(name, "")) for name in names] for record in records)
    return text.getvalue()


def _field(value: object) -> object:
    """What a spreadsheet does not take for a formula; nothing for nan."""
    if isinstance(value, str) and _FORMULA.match(value):
        return f"'{value}"
    return "" if isinstance(value, float) and math.isnan(value) else value


def notes_of(table: Table) -> str:
    """The notes as one paragraph; empty where the page has them elsewhere."""
    has_paper = any(cell.paper for row in table.rows for cell in row.cells.values())
    papers = ["In parentheses: the paper."] if table.notes and has_paper else []
    return " ".join([*table.notes, *papers])


_TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "±": r"$\pm$", "≈": r"$\approx$", "×": r"$\times$", "†": r"$^\dagger$", "–": "--",
    "<": r"\textless{}", ">": r"\textgreater{}", "\n": " ",
}  # fmt: skip


def _tex(text: str) -> str:
    """Text in which LaTeX reads nothing but text."""
    return re.sub("|".join(map(re.escape, _TEX)), lambda found: _TEX[found[0]], text)
