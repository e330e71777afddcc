"""The writers of a table: rows for a terminal, Markdown, LaTeX, CSV."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable

from svea.results.tables import Record, Table

_FORMULA = re.compile(r"[=@\t\r]|[+-](?![\d.]+$)")


def to_rows(table: Table) -> list[dict[str, str]]:
    """For a terminal: a dictionary per row, by the titles of the columns."""
    titles = [column.title for column in table.columns]
    return [dict(zip(titles, (cell.line for cell in row.cells), strict=True)) for row in table.rows]


def to_markdown(table: Table) -> str:
    """For a README or a page of results."""
    lines = [[column.title for column in table.columns], ["---"] * len(table.columns)]
    lines += [[cell.line or "–" for cell in row.cells] for row in table.rows]
    escaped = (
        " | ".join(text.replace("|", r"\|").replace("\n", " ") for text in line) for line in lines
    )
    body = "\n".join(f"| {line} |" for line in escaped)
    parts = [f"**{table.title}**" if table.title else "", body, _notes(table)]
    return "\n\n".join(filter(None, parts)) + "\n"


def to_latex(table: Table) -> str:
    """For a paper; it needs the package booktabs."""
    heads = [_tex(column.title) for column in table.columns]
    lines = [" & ".join(heads) + r" \\", r"\midrule"]
    for row in table.rows:
        lines.append(" & ".join(_tex(cell.line or "–") for cell in row.cells) + r" \\")
    alignment = "".join("l" if column.kind == "text" else "r" for column in table.columns)
    return "\n".join(
        [
            r"\begin{table}  % needs \usepackage{booktabs}",
            rf"\caption{{\textbf{{{_tex(table.title)}.}} {_tex(_notes(table))}}}",
            rf"\begin{{tabular}}{{{alignment}}}",
            r"\toprule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def to_csv(table: Table) -> str:
    """The unrounded numbers behind a table."""
    return records_to_csv(table.records)


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


def _notes(table: Table) -> str:
    """The notes as one paragraph; empty where the page has them elsewhere."""
    has_paper = any(cell.paper for row in table.rows for cell in row.cells)
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
