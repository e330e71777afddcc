"""The page of an experiment: its tables and figures from run folders, with the paper's numbers.

Every page is Markdown with its PNG files and a CSV of the numbers behind them, and says what keeps
it from being a replication: a smaller scale, changed options, missing runs, few seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from svea.core import files
from svea.core.errors import UserError
from svea.paper.figures import figures
from svea.paper.results import ExperimentResults
from svea.paper.tables import records, tables
from svea.results import plots
from svea.results.tables import Table
from svea.results.tables.results import SPREAD, list_results, notes_on_marks
from svea.results.tables.writers import records_to_csv, to_markdown


def render(found: ExperimentResults, out: Path) -> tuple[Path, str]:
    """Write an experiment's page, pictures and numbers; returns the page and its text."""
    if not any(found.runs.values()):
        raise UserError(
            f"no run of {found.experiment.name} is there yet: the same command without "
            "--render trains them"
        )
    name = "-".join(filter(None, [found.experiment.name, found.scale.suffix]))
    drawn, rows = figures(found)
    pictures = {f"{name}-{what}.png": plots.to_png(figure) for what, figure in drawn}
    text = "\n".join(_page(found, tables(found), list(pictures)))
    contents: dict[str, bytes] = pictures | {
        f"{name}.md": text.encode(),
        f"{name}.csv": records_to_csv(rows + records(found)).encode(),
        f"{name}.json": files.to_json(
            {
                "experiment": found.experiment.name,
                "scale": found.scale.scale,
                "caveats": found.caveats,
            }
        ),
    }
    for file, content in contents.items():
        files.write_whole(out / file, content)
    return out / f"{name}.md", text


def _page(found: ExperimentResults, shown: Sequence[Table], pictures: Sequence[str]) -> list[str]:
    """The lines of the Markdown page."""
    one, results = found.experiment, found.all_results()
    lines = [f"# {one.name}: {one.about} ({one.where} of the paper)", ""]
    lines += [f"> **{line}**" for line in found.caveats] + [""]
    marks = notes_on_marks(results, brief=True)
    lines += [" ".join([SPREAD, "In parentheses: the paper.", *marks]), ""]
    lines += [to_markdown(table) for table in shown]
    lines += [f"![{name}]({name})" for name in pictures]
    if one.notes:
        lines += ["", "Notes:", "", *(f"- {note}" for note in one.notes)]
    if results:  # in the same form as `svea eval` and `svea report` print them
        every = list_results(found.all_results("return"), found.all_results("success"))
        lines += ["", to_markdown(every).rstrip()]
    return [*lines, ""]
