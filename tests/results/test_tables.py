"""Tables next to the paper's, as data, Markdown and LaTeX."""

import math

from fake_runs import write_run

from svea.results.report import gather
from svea.results.tables import (
    Cell,
    Column,
    Row,
    Table,
    records_to_csv,
    return_tables,
    success_tables,
    to_latex,
    to_markdown,
    to_rows,
)


def returns(*folders):
    """The tables of returns about folders."""
    return return_tables(gather(list(folders)).results)


def texts(table):
    """What stands in a table, by the head of the row and of the column: ours, and the paper's."""
    titles = [column.title for column in table.columns[1:]]
    return {
        (head.text, title): (cell.text, cell.paper)
        for head, *cells in table.lines()
        for title, cell in zip(titles, cells, strict=True)
    }


def heads(table):
    """What stands at the beginning of each row."""
    return [head.text for head, *_ in table.lines()]


def test_one_task_has_one_table_with_a_row_per_mode(tmp_path):
    svea = write_run(tmp_path / "s", final={"train": 300, "color_hard": 240})
    drq = write_run(tmp_path / "d", method="drq", augment="none", final={"train": 310})
    (table,) = returns(svea, drq)
    assert [(c.title, c.method) for c in table.columns] == [
        ("Mode", ""), ("drq", "drq"), ("svea + conv", "svea"),
    ]  # fmt: skip
    assert {row.task for row in table.rows} == {"walker_walk"}
    shown = texts(table)
    assert shown["color_hard", "svea + conv"] == ("240", "760 ± 145†")
    assert shown["color_hard", "drq"] == ("", "")
    assert shown["train", "drq"] == ("310", "892 ± 65†")


def test_several_tasks_have_a_table_per_mode_with_a_row_per_task(tmp_path):
    walker = [
        write_run(tmp_path / str(s), seed=s, final={"train": 290 + 20 * s, "color_hard": 240})
        for s in range(2)
    ]
    cup = write_run(tmp_path / "c", task="ball_in_cup_catch")
    train, test = returns(*walker, cup)
    assert (train.title, test.title) == ("Return in train", "Return in color_hard")
    assert texts(train)["walker_walk", "svea + conv"][0] == "300 ± 14"  # 290, 310
    assert texts(test)["ball_in_cup_catch", "svea + conv"] == ("240", "961 ± 7.0†")


def test_modes_of_a_kind_share_a_table_with_a_row_per_task_and_mode(tmp_path):
    """And intensities are marked as read off."""
    final = {"distracting_cs:0.1": 100, "train": 90, "distracting_cs:0.3": 50}
    folders = [
        write_run(tmp_path / task, task=task, final=final) for task in ("walker_walk", "own_task")
    ]
    train, table = returns(*folders)
    assert [train.name, table.name] == ["returns-train", "returns-distracting_cs"]
    assert heads(table) == [
        f"{task}, distracting_cs:{at}" for task in ("own_task", "walker_walk") for at in (0.1, 0.3)
    ]
    assert texts(table)["walker_walk, distracting_cs:0.1", "svea + conv"] == ("100", "≈575†")
    assert "≈ Read off a plot, to about 10 points." in table.notes


def test_success_is_printed_like_the_papers(tmp_path):
    folder = write_run(tmp_path / "r", task="robot_push", final={"test": 10}, success={"test": 0.4})
    (table,) = success_tables(gather([folder]).successes)
    assert texts(table)["robot_push, test", "svea + conv"] == ("0.40", "0.48†")
    assert "Not a replication" in table.notes[-1]


def test_tasks_are_pooled_by_setting(tmp_path):
    folders = [
        write_run(tmp_path / task, task=task, final={"train": level})
        for task, level in (("walker_walk", 300), ("finger_spin", 500))
    ]
    last = gather(folders).every.rows[-1].cells
    assert (last["task"].text, last["mode"].text) == ("all 2 DMControl tasks", "train")
    assert last["IQM"].line == "400 [371, 431]"  # one seed each: over worlds, as a single task


TABLE = Table(
    name="t",
    title="Return of a_b & 5 %",
    columns=(Column("Task", kind="text"), Column("svea | conv", "svea"), Column("drq", "drq")),
    rows=(
        Row({"Task": Cell("walker_walk"), "svea | conv": Cell("812 ± 20", paper="≈760 ± 145†")}),
    ),
    notes=("A note.",),
)


def test_markdown_has_the_paper_in_parentheses_and_escapes_bars():
    assert to_markdown(TABLE) == (
        "**Return of a_b & 5 %**\n\n"
        "| Task | svea \\| conv | drq |\n"
        "| --- | --- | --- |\n"
        "| walker_walk | 812 ± 20 (≈760 ± 145†) | – |\n\n"
        "A note. In parentheses: the paper.\n"
    )


def test_latex_escapes_what_it_would_read_as_a_command():
    assert to_latex(TABLE) == (
        "\\begin{table}  % needs \\usepackage{booktabs}\n"
        "\\caption{\\textbf{Return of a\\_b \\& 5 \\%.} A note. In parentheses: the paper.}\n"
        "\\begin{tabular}{lrr}\n"
        "\\toprule\n"
        "Task & svea | conv & drq \\\\\n"
        "\\midrule\n"
        "walker\\_walk & 812 $\\pm$ 20 ($\\approx$760 $\\pm$ 145$^\\dagger$) & -- \\\\\n"
        "\\bottomrule\n"
        "\\end{tabular}\n"
        "\\end{table}\n"
    )


def test_no_csv_cell_is_a_formula():
    texts = ["=1+1", "@SUM(A1)", "+cmd", "-cmd", "\t=1", "-0.5", "+3", "a=b"]
    head, *cells = records_to_csv({"=name": text} for text in texts).splitlines()
    assert head == "'=name"
    assert cells == ["'=1+1", "'@SUM(A1)", "'+cmd", "'-cmd", "'\t=1", "-0.5", "+3", "a=b"]
    assert records_to_csv([{"mean": -0.5}]) == "mean\n-0.5\n"


def test_terminal_rows_and_csv_show_the_same_table():
    assert to_rows(TABLE) == [
        {"Task": "walker_walk", "svea | conv": "812 ± 20 (≈760 ± 145†)", "drq": ""}
    ]
    records = [{"task": "walker_walk", "mean": 812.25, "std": math.nan}, {"task": "b", "more": 1}]
    assert records_to_csv(records) == "task,mean,std,more\nwalker_walk,812.25,,\nb,,,1\n"
