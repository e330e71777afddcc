"""`svea report`: one HTML page about runs."""

from __future__ import annotations

import sys
from pathlib import Path

from svea.cli.arguments import Out, Positional, parse
from svea.core.errors import UserError
from svea.core.files import output_file, output_folder


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
    from svea.cli.terminal import Steps
    from svea.results.report import write_report
    from svea.runs import zoo

    runs = tuple(map(zoo.working_copy, runs))  # first: the page lies in the copy
    page = out or (runs[0] / "report.html" if len(runs) == 1 else Path("report.html"))
    if out is None and len(runs) == 1 and runs[0].is_file():
        raise UserError(f"no run at {str(runs[0])!r}: it is a file. Give the folder of a run.")
    output_file(page)
    if figures is not None:
        output_folder(figures, "figures")

    def warn(problem: str) -> None:
        print(f"svea: {problem}", file=sys.stderr)

    with Steps("pages") as steps:
        written = write_report(
            runs, page, figures_dir=figures, on_problem=warn, on_step=steps.doing
        )
    print(written)
    return 0
