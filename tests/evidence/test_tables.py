"""Tables beside the paper's, as data, Markdown and LaTeX."""

from __future__ import annotations

import re

from fake_runs import write_run

from svea.evidence import tables
from svea.evidence.report import gather
from svea.evidence.tables import Cell, Table, to_latex, to_markdown


def returns(*folders):
    """The tables of returns about folders."""
    return tables.return_tables(gather(list(folders)).results)


def test_one_task_has_one_table_with_a_row_per_mode(tmp_path):
    svea = write_run(tmp_path / "s", final={"train": 300, "color_hard": 240})
    drq = write_run(tmp_path / "d", method="drq", augment="none", final={"train": 310})
    (table,) = returns(svea, drq)
    assert table.columns == {"drq": "drq", "svea + conv": "svea"}
    assert table.rows["color_hard"] == ("walker_walk", {"svea + conv": Cell("240", "760 ± 145†")})
    assert table.rows["train"][1]["drq"] == Cell("310", "892 ± 65†")


def test_several_tasks_have_a_table_per_mode_with_a_row_per_task(tmp_path):
    walker = [
        write_run(tmp_path / str(s), seed=s, final={"train": 290 + 20 * s, "color_hard": 240})
        for s in range(2)
    ]
    cup = write_run(tmp_path / "c", task="ball_in_cup_catch")
    train, test = returns(*walker, cup)
    assert (train.title, test.title) == ("Return in train", "Return in color_hard")
    assert train.rows["walker_walk"][1]["svea + conv"].ours == "300 ± 14"  # 290, 310
    assert test.rows["ball_in_cup_catch"][1]["svea + conv"] == Cell("240", "961 ± 7.0†")


def test_intensities_share_a_table_and_are_marked_as_read_off(tmp_path):
    final = {"distracting_cs:0.1": 100, "distracting_cs:0.3": 50}
    folders = [
        write_run(tmp_path / task, task=task, final=final) for task in ("walker_walk", "own_task")
    ]
    (table,) = returns(*folders)
    assert list(table.rows) == [
        "own_task, 0.1", "own_task, 0.3", "walker_walk, 0.1", "walker_walk, 0.3"
    ]  # fmt: skip
    assert table.rows["walker_walk, 0.1"][1]["svea + conv"] == Cell("100", "~575†")
    assert "~ Read off a figure." in table.notes


def test_success_is_printed_like_the_papers(tmp_path):
    folder = write_run(tmp_path / "r", task="robot_push", final={"test": 10}, success={"test": 0.4})
    table = tables.success_table(gather([folder]).successes)
    assert table.rows["robot_push, test"][1]["svea + conv"] == Cell("0.40", "0.48†")
    assert "never released" in table.notes[-1]


def test_tasks_are_pooled_by_setting(tmp_path):
    folders = [
        write_run(tmp_path / task, task=task, final={"train": level})
        for task, level in (("walker_walk", 300), ("finger_spin", 500))
    ]
    evidence = gather(folders)
    table = tables.aggregate_table(evidence.aggregates, {"svea + conv": "svea"})
    (cell,) = table.rows["train, 2 DMControl tasks"][1].values()
    assert cell.ours == "400 [400, 400]"  # one seed each: resampling within tasks changes nothing


TABLE = Table(
    name="t",
    title="Return of a_b & 5 %",
    corner="Task",
    columns={"svea | conv": "svea", "drq": "drq"},
    rows={"walker_walk": ("walker_walk", {"svea | conv": Cell("812 ± 20", "760 ± 145†")})},
    notes=("A note.",),
)


def test_markdown():
    assert to_markdown(TABLE) == (
        "**Return of a_b & 5 %**\n\n"
        "| Task | svea \\| conv | drq |\n"
        "| --- | --- | --- |\n"
        "| walker_walk | 812 ± 20 (760 ± 145†) | – |\n\n"
        "A note. In parentheses: the paper.\n"
    )


def test_latex():
    assert to_latex(TABLE) == (
        "\\begin{table}  % needs \\usepackage{booktabs}\n"
        "\\caption{\\textbf{Return of a\\_b \\& 5 \\%.} A note. In parentheses: the paper.}\n"
        "\\begin{tabular}{lrr}\n"
        "\\toprule\n"
        "Task & svea | conv & drq \\\\\n"
        "\\midrule\n"
        "walker\\_walk & 812 $\\pm$ 20 (760 $\\pm$ 145$^\\dagger$) & -- \\\\\n"
        "\\bottomrule\n"
        "\\end{tabular}\n"
        "\\end{table}\n"
    )


def test_hostile_names_cannot_leave_their_cell():
    name = "a & b \\\\ \\input{x} | c\n% d"
    table = Table("t", name, "Task", {name: "m"}, {name: ("", {name: Cell("1")})}, ())
    rows = [line for line in to_latex(table).splitlines() if line.endswith(r"\\")]
    assert len(rows) == 2 and all(len(re.findall(r"(?<!\\)&", row)) == 1 for row in rows)
    assert r"\input" not in to_latex(table)
    lines = to_markdown(table).split("\n\n", 1)[1].splitlines()  # after the title
    assert [len(re.findall(r"(?<!\\)\|", line)) for line in lines[:3]] == [3, 3, 3]
