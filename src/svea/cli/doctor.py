"""`svea doctor`: what this machine has, what is wrong with it, and the command that fixes it."""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from json import dumps

from svea.cli.diagnosis import Check, diagnose
from svea.core.terminal import console, waiting


def run(arguments: list[str]) -> int:
    """Read the flags and examine this machine; argparse, because tyro may be what is missing."""
    parser = argparse.ArgumentParser(
        prog="svea doctor",
        description="Check this machine: versions, device, renderer, data; and say how to fix "
        "problems.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--data-dir", default=None, help="folder with benchmark data")
    options = parser.parse_args(arguments)
    return doctor(json=options.json, data_dir=options.data_dir)


def doctor(json: bool = False, data_dir: str | os.PathLike[str] | None = None) -> int:
    """Examine this machine and print the findings.

    Args:
        json: Print one JSON object instead of lines.
        data_dir: The data folder to look into; `SVEA_DATA` when not given.

    Returns:
        The exit code: 0 when svea can be used here, else that of the worst problem.
    """
    with _waiting():
        checks = diagnose(data_dir)
    code = max(check.exit_code for check in checks)
    if json:
        report = {"usable": code == 0, "exit_code": code, "checks": [asdict(c) for c in checks]}
        print(dumps(report, indent=2))
    elif sys.stdout.isatty() and importlib.util.find_spec("rich"):
        _print_table(checks)
    else:
        _print_lines(checks)
    return code


def _waiting() -> AbstractContextManager[object]:
    """Something that moves, on a terminal: importing torch and drawing take seconds."""
    if not (sys.stderr.isatty() and importlib.util.find_spec("rich")):
        return nullcontext()
    return waiting("checking this machine")


def _print_lines(checks: list[Check]) -> None:
    """One line a check, for logs and pipes."""
    for line in _lines(checks):
        print(line)
    print(_verdict(checks))


def _lines(checks: list[Check]) -> Iterator[str]:
    """A line for each check, and one for each cure."""
    width = max(len(check.name) for check in checks)
    for check in checks:
        yield f"{check.status:<8} {check.name:<{width}}  {check.value}"
        if check.cure:
            yield f"{'':<8} {'':<{width}}  fix: {check.cure}"


def _print_table(checks: list[Check]) -> None:
    """The same with colours and aligned wrapping, for people."""
    from rich.table import Table
    from rich.text import Text

    marks = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "problem": ("✗", "bold red")}
    table = Table(box=None, show_header=False, padding=(0, 1))
    for check in checks:
        mark, style = marks[check.status]
        value = Text(check.value)
        if check.cure:
            value.append(f"\nfix: {check.cure}", style=style)
        table.add_row(Text(mark, style=style), check.name, value)
    shown = console()
    shown.print(table)
    shown.print(Text(_verdict(checks)))


def _verdict(checks: list[Check]) -> str:
    """The last line: can svea be used here?"""
    problems = [check.name for check in checks if check.status == "problem"]
    warnings = [check.name for check in checks if check.status == "warning"]
    if problems:
        return f"svea cannot be used here yet: fix {', '.join(problems)}"
    return "svea can be used here" + (f"; look at {', '.join(warnings)}" if warnings else "")
