"""`svea eval`, `svea report` and `svea paper` print the same numbers for the same records."""

import csv
import re
from pathlib import Path

import pytest
from paper_runs import SMALL, SMALLEST, rewrite, write_results

from svea.cli.evaluate import print_scores
from svea.paper.experiments import EXPERIMENTS
from svea.paper.pages import gather, render
from svea.results.report import report

INTERVAL = re.compile(r"\[[\d.,]+, [\d.,]+\]")


def rows(page: str) -> list[str]:
    """The text of each row of a page's tables, a bar after every cell."""
    found = re.findall(r"<tr.*?</tr>", page, flags=re.DOTALL)
    return [re.sub(r"<[^>]+>", "", re.sub(r"</t[dh]>", "|", row)) for row in found]


@pytest.mark.parametrize(
    ("name", "task", "modes"),
    [("table-robot", "robot_push", ("train", "test")), ("table1", "walker_walk", ("color_hard",))],
)
def test_every_verb_prints_the_same_intervals(tmp_path, capsys, name, task, modes):
    one = EXPERIMENTS[name]
    for number, setting in enumerate(one.settings[:3]):
        for run in one.runs(SMALLEST)[task, setting]:
            level = 530.0 + 71 * number  # an interval over episodes: its ends depend on the draws
            write_results(tmp_path, run, dict.fromkeys(("train", *one.modes), level))
            records = tmp_path / "runs" / run.name / "eval.jsonl"
            if one.unit == "success":
                rewrite(records, lambda r: {"success": r["episode"] % 3 == 0})
    print_scores([tmp_path / "runs"], modes, verbose=True)
    printed = capsys.readouterr().out.splitlines()
    page = rows(report([tmp_path / "runs"], tmp_path / "report.html").read_text())
    _, text = render(gather(one, SMALLEST, tmp_path / "runs"), tmp_path / "paper")
    listed = text.split("**All results**")[1].splitlines()

    def intervals(lines: list[str]) -> list[tuple[str, ...]]:
        """The intervals of each row about one of the modes, in any order of the rows."""
        about = [line for line in lines if any(mode in line for mode in modes)]
        return sorted(found for line in about if (found := tuple(INTERVAL.findall(line))))

    expected = intervals(printed)
    assert len(expected) == 3 * len(modes)
    assert expected == intervals(page) == intervals(listed)
    if one.unit == "success":
        assert all(len(row) == 2 for row in expected), "a return and a success rate"


def test_the_numbers_behind_a_page_are_those_behind_the_report(tmp_path: Path) -> None:
    one = EXPERIMENTS["table1"]
    for run in one.runs(SMALL)["walker_walk", one.settings[6]]:
        write_results(tmp_path, run, {"train": 100.0, "color_hard": 90.0 + 8 * run.config.seed})
    report([tmp_path / "runs"], tmp_path / "r.html", figures=tmp_path / "figures")
    page, _ = render(gather(one, SMALL, tmp_path / "runs"), tmp_path / "paper")

    def row(path: Path) -> dict[str, str]:
        with path.open() as file:
            rows = list(csv.DictReader(file))
        (found,) = [r for r in rows if r["mode"] == "color_hard" and float(r["seeds"]) > 0]
        return {k: v for k, v in found.items() if k not in ("what", "edition", "scale", "setting")}

    assert row(page.with_suffix(".csv")) == row(tmp_path / "figures" / "results.csv")
