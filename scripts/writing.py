"""How tables, pages and figures of results/ are written, and compared with what is there."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from model_cards import wrap
from PIL import Image, PngImagePlugin

from svea.core import files
from svea.results import plots
from svea.results.tables import Table
from svea.results.tables.writers import to_markdown


def wrapped(table: Table) -> str:
    """A table with its notes wrapped, as Markdown."""
    body = to_markdown(replace(table, notes=()))
    has_paper = any(cell.paper for row in table.rows for cell in row.cells)
    notes = [*table.notes, *(["In parentheses: the paper."] if has_paper else [])]
    return body + (f"\n{wrap(' '.join(notes))}\n" if notes else "")


def differences(path: Path, stands: str, wanted: str) -> Iterator[str]:
    """What differs between a file and what results/ give, cell by cell where it is a table."""
    old, new = stands.splitlines(), wanted.splitlines()
    if len(old) != len(new):
        yield f"{path}: {len(old)} lines, results/ give {len(new)}"
        return
    titles: list[str] = []
    for number_, (has, gets) in enumerate(zip(old, new, strict=True), start=1):
        was, cells = _cells(has), _cells(gets)
        if set("".join(cells)) == {"-"}:
            titles = _cells(new[number_ - 2])
        if has == gets:
            continue
        if len(was) == len(cells) == len(titles) > 1:
            for title, one, other in zip(titles, was, cells, strict=True):
                if one != other:
                    row = ", ".join(c for c in cells[:3] if c.lstrip("`*")[:1].isalpha())
                    yield f"{path}, row {row}, column {title}: {one!r}, results/ give {other!r}"
        else:
            yield f"{path}, line {number_}: {has.strip()!r}, results/ give {gets.strip()!r}"


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []


def drawn_numbers(path: Path) -> str:
    """The hash of the numbers that a figure on the disk draws."""
    if not path.is_file():
        return ""
    with Image.open(path) as picture:
        return str(picture.info.get("numbers", ""))


def write_figure(path: Path, drawn: str, figure: Any) -> None:
    """A PNG that says which numbers it draws."""
    about = PngImagePlugin.PngInfo()
    about.add_text("numbers", drawn)
    content = io.BytesIO()
    Image.open(io.BytesIO(plots.to_png(figure))).save(content, "png", pnginfo=about, optimize=True)
    files.replace(path, [content.getvalue()])


def digest(numbers: str) -> str:
    """A hash of the numbers that a figure draws."""
    return hashlib.sha256(numbers.encode()).hexdigest()
