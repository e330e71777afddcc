"""Pages of the paper's experiments: ours next to its numbers, and what they are not."""

import csv
import json
import math
import sys
from pathlib import Path

import pytest
from paper_runs import SMALL, SMALLEST, rewrite, write_results

from svea import cli
from svea.paper.experiments import EXPERIMENTS, TASKS, Edition
from svea.paper.pages import gather, render
from svea.studies import engines as local


def test_a_table_has_ours_and_the_papers_and_says_what_it_is_not(tmp_path: Path) -> None:
    one = EXPERIMENTS["table-video-hard"]
    cells = one.runs(SMALL)
    for task in ("walker_walk", "finger_spin"):
        for setting in one.settings:
            for number, run in enumerate(cells[task, setting]):
                level = {"walker_walk": 100.0, "finger_spin": 300.0}[task] + 20 * number
                write_results(tmp_path, run, {"train": 1.0, "video_hard": level})
    page, text = render(gather(one, SMALL, tmp_path / "runs"), tmp_path / "paper")
    assert page.name == "table-video-hard-scaled-0.01.md"
    table = text.split("**All results**")[0]
    lines = {line.split(" | ")[0]: line for line in table.splitlines() if line.startswith("| ")}
    # two seeds, 100 and 120: mean 110, deviation 14.1; the paper's DrQ: 104 ± 22
    assert "| 110 ± 14 (104 ± 22†) |" in lines["| walker_walk"]
    assert "| 310 ± 14 (335 ± 58†) |" in lines["| finger_spin"]
    assert "| – (138 ± 9.0) |" in lines["| cartpole_swingup"]
    assert "SCALED" in text and "INCOMPLETE" in text and "few seeds: 2" in text
    with (tmp_path / "paper" / "table-video-hard-scaled-0.01.csv").open() as file:
        rows = [r for r in csv.DictReader(file) if r["setting"] == "DrQ" and r["seeds"] == "2"]
    assert {(r["task"], float(r["mean"]), r["scale"]) for r in rows} == {
        ("walker_walk", 110.0, "0.01"),
        ("finger_spin", 310.0, "0.01"),
    }


def test_changed_settings_are_marked_like_a_scale(tmp_path: Path) -> None:
    changed = Edition(1.0, seeds="0", changes={"batch_size": 64})
    one = EXPERIMENTS["fig-q-gap"]
    run = one.runs(changed)["walker_walk", one.settings[0]][0]
    assert run.config.batch_size == 64
    write_results(tmp_path, run, {"train": 5.0})
    _, text = render(gather(one, changed, tmp_path / "runs"), tmp_path / "paper")
    assert "CHANGED from the paper's settings: batch_size=64" in text


def test_an_unfinished_run_counts_in_curves_but_not_in_tables(tmp_path: Path) -> None:
    one = EXPERIMENTS["fig-components"]
    run = one.runs(SMALL)["walker_walk", one.settings[0]][0]
    write_results(tmp_path, run, {"train": 5.0, "color_hard": 4.0})
    folder = tmp_path / "runs" / run.name
    lines = (folder / "metrics.jsonl").read_text().splitlines(keepends=True)
    half = [line for line in lines if json.loads(line)["decision"] < run.decisions / 2]
    (folder / "metrics.jsonl").write_text("".join(half))
    (folder / "eval.jsonl").unlink()
    evidence = gather(one, SMALL, tmp_path / "runs")
    assert math.isnan(evidence.mean("walker_walk", one.settings[0], "train"))
    page, _ = render(evidence, tmp_path / "paper")
    pictures = sorted(path.name for path in page.parent.glob("*.png"))
    assert pictures == [
        "fig-components-scaled-0.01-walker_walk-color_hard.png",
        "fig-components-scaled-0.01-walker_walk-train.png",
    ]


@pytest.mark.parametrize("name", ["fig-km", "fig-distracting", "fig-distracting-tasks"])
def test_figures_over_several_tasks_have_their_pictures(name: str, tmp_path: Path) -> None:
    one = EXPERIMENTS[name]
    for (task, setting), runs in one.runs(SMALLEST).items():
        level = 100.0 + 50 * one.settings.index(setting) + 10 * TASKS.index(task)
        for run in runs:
            write_results(tmp_path, run, dict.fromkeys(("train", *one.modes), level))
    page, text = render(gather(one, SMALLEST, tmp_path / "runs"), tmp_path / "paper")
    pictures = list(page.parent.glob("*.png"))
    assert len(pictures) == {"fig-km": 2, "fig-distracting": 1, "fig-distracting-tasks": 5}[name]
    if name == "fig-distracting":  # the mean of 100, 110, ... 140, next to the plot's 320
        assert "| DrQ | 120 (≈320) |" in text


def test_the_robot_table_is_of_success_not_of_returns(tmp_path: Path) -> None:
    one = EXPERIMENTS["table-robot"]
    for share, setting in ((2, one.settings[0]), (5, one.settings[2])):
        for run in one.runs(SMALL)["robot_push", setting]:
            write_results(tmp_path, run, {"train": 9.0, "test": 5.0})
            place = tmp_path / "runs" / run.name / "eval.jsonl"
            rewrite(place, lambda record, share=share: {"success": record["episode"] % share == 0})
    _, text = render(gather(one, SMALL, tmp_path / "runs"), tmp_path / "paper")
    test_table = text.split("| test |")[1]
    row = next(line for line in test_table.splitlines() if line.startswith("| robot_push"))
    cells = [cell.strip() for cell in row.split("|")[2:-1]]
    assert cells[0] == "0.50 ± 0.00 (0.26†)" and cells[2] == "0.20 ± 0.00 (0.48†)"
    assert cells[1] == "– (0.12)"


def test_q_figures_are_drawn_from_what_the_runs_logged(tmp_path: Path) -> None:
    variance, gap = EXPERIMENTS["fig-q-variance"], EXPERIMENTS["fig-q-gap"]
    for (task, setting), (run,) in variance.runs(SMALLEST).items():
        write_results(tmp_path, run, {"train": 9.0, "color_hard": 5.0})
        level = 10.0 * (1 + variance.settings.index(setting)) + TASKS.index(task)
        metrics = tmp_path / "runs" / run.name / "metrics.jsonl"
        rewrite(metrics, lambda r, v=level: {"q_target_variance": v} if r["kind"] == "eval" else {})
    render(gather(variance, SMALLEST, tmp_path / "runs"), tmp_path / "paper")
    with (tmp_path / "paper" / "fig-q-variance-scaled-0.01.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["what"] == "q-target variance"]
    # the mean over five tasks of 10 + 0..4, and of 20 + 0..4
    assert {(row["setting"], float(row["mean"])) for row in rows} == {
        ("DrQ + conv", 12.0), ("SVEA (conv)", 22.0),
    }  # fmt: skip
    for number, ((_, _), (run,)) in enumerate(gap.runs(SMALLEST).items()):
        write_results(tmp_path, run, {"train": 9.0, "color_hard": 5.0})
        folder = tmp_path / "runs" / run.name / "analysis"
        folder.mkdir()
        found = [{"augment": "conv", "gap": 1.0 + number}, {"augment": "shift", "gap": 0.25}]
        (folder / "q-gap.json").write_text(json.dumps({"rows": found}))
    _, text = render(gather(gap, SMALLEST, tmp_path / "runs"), tmp_path / "paper")
    # conv: 1, 2, ... 5, whose standard deviation with divisor n - 1 is the root of 2.5
    assert "| conv | 3 ± 1.58 |" in text and "| shift | 0.25 ± 0 |" in text


@pytest.mark.parametrize(
    ("answer", "words", "code"),
    [(None, [], 2), (None, ["--yes"], 0), ("y", [], 0), ("n", [], 2), ("", [], 2)],
)
def test_the_paper_s_runs_start_after_a_yes(tmp_path, monkeypatch, answer, words, code):
    begun: list[int] = []
    monkeypatch.setattr(local, "run_study", lambda *_: begun.append(1))
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: answer is not None)
    monkeypatch.setattr("builtins.input", lambda _: answer)
    monkeypatch.setattr("svea.paper.Paper.render", lambda *_: [])
    study = ["paper", "fig-base", "--scale", "0.001", "--seeds", "0", "--out", str(tmp_path / "s")]
    assert cli.main([*study, *words]) == code
    assert bool(begun) == (code == 0) == (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ("tabel1", "'table1'"),
        ("table1 --scale nan", "scale is nan"),
        ("table1 --scale 0", "scale is 0"),
        ("table1 --scale 2", "scale is 2"),
        ("table1 --render", "no run of table1"),
        ("table1 --set seed", "name=value"),
        ("claims --out nowhere", "'nowhere'"),
        ("table1 --edition mimi", "'mini'"),
        ("tabel1 --edition mini", "'table1'"),
        ("successors", "leaves out successors; allowed: --edition mini"),
        ("table1 --edition mini --scale 0.5", "scale is 0.5"),
        ("all --edition mini --render", "no run of all"),
    ],
)
def test_mistakes_are_one_message_and_make_nothing(arguments, named, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["paper", *arguments.split()]) == 2
    assert named in capsys.readouterr().err and list(tmp_path.iterdir()) == []
