"""`svea report`: one HTML page about runs."""

from __future__ import annotations

import sys
from pathlib import Path

from svea.cli.arguments import Out, Positional, parse


def run(arguments: list[str]) -> int:
    """Read the arguments and run the verb."""
    return parse(command, "report", arguments)


def command(
    runs: Positional[tuple[Path, ...]],
    out: Out = None,
    figures: Path | None = None,
) -> int:
    """Write a report: curves, tables, frames, videos, configuration. No network needed.

    Example: svea report runs -o report.html

    What is missing or damaged is named on stderr and on the page; the rest is reported.

    Args:
        runs: run folders, folders with runs beneath them, or agents of the zoo, zoo:NAME.
        out: the page; default RUN/report.html for one run (of the zoo: runs/zoo/NAME/report.html),
            report.html for several.
        figures: also write every figure as PNG, PDF and CSV, and every table as LaTeX and
            Markdown, into this folder.
    """
    from svea.core.terminal import Steps
    from svea.results.report import report

    def warn(problem: str) -> None:
        print(f"svea: {problem}", file=sys.stderr)

    with Steps("pages") as steps:
        print(report(runs, out, figures=figures, on_problem=warn, on_step=steps.doing))
    return 0
