"""The paper's experiments: the right grids, honest scaling, and renderings beside its figures."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path
from typing import Any

import pytest
from fake_runs import write_run

from svea import cli
from svea.errors import UserError
from svea.evidence import published
from svea.studies import PlannedRun
from svea.studies.paper.claims import CLAIMS, best_cells, verdicts
from svea.studies.paper.experiments import (
    AUGMENTS,
    EXPERIMENTS,
    TASKS,
    Scale,
    Setting,
    every_run,
    experiment,
)
from svea.studies.paper.pages import gather, render

FULL, SMALL, SMALLEST = Scale(), Scale(0.01, seeds="0-1"), Scale(0.01, seeds="0")


def write_results(
    folder: Path, run: PlannedRun, final: dict[str, float], seconds: float = 100.0
) -> None:
    """A finished run with these mean returns, and the checkpoint that says so."""
    config = run.config
    place = write_run(
        folder / "runs" / run.name,
        task=config.task,
        method=config.method,
        augment=config.augment,
        seed=config.seed,
        preset="paper",
        decisions=run.decisions,
        final=final,
        encoder=config.encoder,
        recipe={"alpha": 0.5, "beta": 0.5, "K": config.recipe.K, "M": config.recipe.M},
    )
    (place / "checkpoints" / f"{run.decisions:09d}").mkdir(parents=True, exist_ok=True)
    (place / "summary.json").write_text(json.dumps({"seconds": seconds}))


# Grids --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "runs"),
    [  # tasks x settings x seeds, counted in the paper
        ("table1", 5 * 8 * 5),
        ("table-robot", 3 * 6 * 5),
        ("table-ablations", 12 * 5),
        ("table-video-hard", 5 * 6 * 5),
        ("fig-q-variance", 5 * 2 * 5),
        ("fig-q-gap", 5 * 5),
        ("fig-components", 5 * 5 * 5),
        ("fig-stability", 5 * (6 * 2 + 1) * 5),
        ("fig-aug-generalization", 5 * 6 * 5),
        ("fig-distracting", 5 * 3 * 5),
        ("fig-distracting-tasks", 5 * 3 * 5),
        ("fig-vit", 3 * 3 * 5),
        ("fig-robot-cnn", 3 * 3 * 5),
        ("fig-robot-vit", 3 * 3 * 5),
        ("fig-base", 5 * 3 * 5),
        ("fig-km", 5 * 4 * 5),
    ],
)
def test_every_experiment_is_the_papers_grid_at_the_papers_size(name: str, runs: int) -> None:
    planned = every_run([name]).values()
    assert len(planned) == runs
    for run in planned:
        config = run.config
        assert config.preset == "paper"
        assert config.decisions == (300_000 if config.encoder == "vit" else 500_000)
        assert config.batch_size == (512 if config.encoder == "vit" else 128)


def test_every_experiment_is_there() -> None:
    named = (
        "table1 table-robot table-ablations table-video-hard fig-q-variance fig-q-gap "
        "fig-components fig-stability fig-aug-generalization fig-km fig-distracting "
        "fig-distracting-tasks fig-vit fig-robot-cnn fig-robot-vit fig-base"
    )
    assert set(EXPERIMENTS) == set(named.split())


def test_experiments_share_their_runs() -> None:
    """Table 4's SVEA (overlay) and DrQ are Table 1's, evaluated in another mode."""
    first, fourth = every_run(["table1"]), every_run(["table-video-hard"])
    assert set(fourth) <= set(first)
    assert len(every_run(EXPERIMENTS)) < sum(len(every_run([name])) for name in EXPERIMENTS) / 1.5


@pytest.mark.parametrize("name", ["table1", "table-video-hard", "table-ablations", "table-robot"])
def test_every_cell_of_the_papers_tables_has_its_runs(name: str) -> None:
    one = experiment(name)
    table = {"table1": "Table 1", "table-video-hard": "Table 4", "table-ablations": "Table 3",
             "table-robot": "Table 2"}[name]  # fmt: skip
    planned = {
        (task, mode, s.method, s.augment, s.encoder)
        for task in one.tasks
        for mode in one.modes
        for s in one.settings
    }
    printed = {key for key, cell in published.PAPER_RESULTS.items() if cell.table == table}
    assert printed <= planned
    missing = {key for key in planned if key not in published.PAPER_RESULTS}
    assert missing == set()


def test_robot_agents_meet_every_test_world_equally_often() -> None:
    for scale, episodes in ((FULL, 50), (Scale(0.01), 25)):
        assert {run.episodes for run in every_run(["table-robot"], scale).values()} == {episodes}


def test_views_of_the_km_figure_are_all_strong() -> None:
    for run in every_run(["fig-km"]).values():
        assert run.config.augment == "conv"
        assert run.config.recipe.K == run.config.recipe.M
    assert {run.config.recipe.K for run in every_run(["fig-km"]).values()} == {1, 2, 5}


# Scale --------------------------------------------------------------------------------------------


def test_a_scaled_run_is_smaller_and_says_so() -> None:
    run = next(iter(every_run(["fig-base"], Scale(0.01)).values()))
    config = run.config
    assert config.decisions == run.decisions == 5000
    assert config.eval_every == 1000 and config.eval_episodes == 3 and config.warmup == 1000
    assert "scaled-0.01" in run.name and "scaled-0.01" in str(Scale(0.01).folder())
    assert run.episodes == 3
    vit = next(iter(every_run(["fig-vit"], Scale(0.01)).values()))
    assert vit.decisions == 3000


@pytest.mark.parametrize("scale", [0, -1, 1.01, float("nan"), float("inf")])
def test_what_is_no_scale_is_refused(scale: float) -> None:
    with pytest.raises(UserError, match="scale is"):
        Scale(scale)


def test_full_and_scaled_runs_never_share_a_folder(tmp_path: Path) -> None:
    one = experiment("fig-q-gap")
    FULL.study(one, tmp_path / "s").save()
    FULL.study(experiment("table1"), tmp_path / "s").save()
    with pytest.raises(UserError, match="another study"):
        Scale(0.01).study(one, tmp_path / "s")


# Renderings ---------------------------------------------------------------------------------------


def test_a_table_has_ours_and_the_papers_and_says_what_it_is_not(tmp_path: Path) -> None:
    one = experiment("table-video-hard")
    cells = one.runs(SMALL)
    for task in ("walker_walk", "finger_spin"):
        for setting in one.settings:
            for number, run in enumerate(cells[task, setting]):
                level = {"walker_walk": 100.0, "finger_spin": 300.0}[task] + 20 * number
                write_results(tmp_path, run, {"train": 1.0, "video_hard": level})
    page, text = render(gather(one, SMALL, tmp_path), tmp_path / "paper")
    assert page.name == "table-video-hard-scaled-0.01.md"
    lines = {line.split(" | ")[0]: line for line in text.splitlines() if line.startswith("| ")}
    # two seeds, 100 and 120: mean 110, deviation 14.1; the paper's DrQ: 104 ± 22
    assert "| 110 ± 14 [104 ± 22] |" in lines["| walker_walk"]
    assert "| 310 ± 14 [335 ± 58] |" in lines["| finger_spin"]
    assert "| – [138 ± 9] |" in lines["| cartpole_swingup"]
    assert "SCALED" in text and "INCOMPLETE" in text and "few seeds: 2" in text
    with (tmp_path / "paper" / "table-video-hard-scaled-0.01.csv").open() as file:
        rows = [r for r in csv.DictReader(file) if r["setting"] == "DrQ" and r["seeds"] == "2"]
    assert {(r["task"], float(r["mean"]), r["scale"]) for r in rows} == {
        ("walker_walk", 110.0, "0.01"),
        ("finger_spin", 310.0, "0.01"),
    }


def test_changed_settings_are_marked_like_a_scale(tmp_path: Path) -> None:
    changed = Scale(1.0, seeds="0", changes={"batch_size": 64})
    one = experiment("fig-q-gap")
    run = one.runs(changed)["walker_walk", one.settings[0]][0]
    assert run.config.batch_size == 64
    write_results(tmp_path, run, {"train": 5.0})
    _, text = render(gather(one, changed, tmp_path), tmp_path / "paper")
    assert "CHANGED from the paper's settings: batch_size=64" in text


def test_an_unfinished_run_counts_in_curves_but_not_in_tables(tmp_path: Path) -> None:
    one = experiment("fig-components")
    run = one.runs(SMALL)["walker_walk", one.settings[0]][0]
    write_results(tmp_path, run, {"train": 5.0, "color_hard": 4.0})
    config = json.loads((tmp_path / "runs" / run.name / "config.json").read_text())
    config["decisions"] = 10 * run.decisions
    (tmp_path / "runs" / run.name / "config.json").write_text(json.dumps(config))
    evidence = gather(one, SMALL, tmp_path)
    assert math.isnan(evidence.cell("walker_walk", one.settings[0], "train").mean)
    page, _ = render(evidence, tmp_path / "paper")
    pictures = sorted(path.name for path in page.parent.glob("*.png"))
    assert pictures == [
        "fig-components-scaled-0.01-walker_walk-color_hard.png",
        "fig-components-scaled-0.01-walker_walk-train.png",
    ]


@pytest.mark.parametrize("name", ["fig-km", "fig-distracting", "fig-distracting-tasks"])
def test_figures_over_several_tasks(name: str, tmp_path: Path) -> None:
    one = experiment(name)
    for (task, setting), runs in one.runs(SMALLEST).items():
        level = 100.0 + 50 * one.settings.index(setting) + 10 * TASKS.index(task)
        for run in runs:
            write_results(tmp_path, run, dict.fromkeys(("train", *one.modes), level))
    page, text = render(gather(one, SMALLEST, tmp_path), tmp_path / "paper")
    pictures = list(page.parent.glob("*.png"))
    assert len(pictures) == {"fig-km": 2, "fig-distracting": 1, "fig-distracting-tasks": 5}[name]
    if name == "fig-distracting":  # the mean of 100, 110, ... 140, beside the plot's 320
        assert "| DrQ | 120 [~320] |" in text


def rewrite(path: Path, change: Any) -> None:
    """Change every record of a file of JSON lines."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(record | change(record)) + "\n" for record in records))


def test_the_robot_table_is_of_success_not_of_returns(tmp_path: Path) -> None:
    one = experiment("table-robot")
    for share, setting in ((2, one.settings[0]), (5, one.settings[2])):
        for run in one.runs(SMALL)["robot_push", setting]:
            write_results(tmp_path, run, {"train": 9.0, "test": 5.0})
            place = tmp_path / "runs" / run.name / "eval.jsonl"
            rewrite(place, lambda record, share=share: {"success": record["episode"] % share == 0})
    _, text = render(gather(one, SMALL, tmp_path), tmp_path / "paper")
    test_table = text.split("| test |")[1]
    row = next(line for line in test_table.splitlines() if line.startswith("| robot_push"))
    cells = [cell.strip() for cell in row.split("|")[2:-1]]
    assert cells[0] == "0.50 ± 0.00 [0.26]" and cells[2] == "0.20 ± 0.00 [0.48]"
    assert cells[1] == "– [0.12]"


def test_q_figures_are_drawn_from_what_the_runs_logged(tmp_path: Path) -> None:
    variance, gap = experiment("fig-q-variance"), experiment("fig-q-gap")
    for (task, setting), (run,) in variance.runs(SMALLEST).items():
        write_results(tmp_path, run, {"train": 9.0, "color_hard": 5.0})
        level = 10.0 * (1 + variance.settings.index(setting)) + TASKS.index(task)
        metrics = tmp_path / "runs" / run.name / "metrics.jsonl"
        rewrite(metrics, lambda r, v=level: {"q_target_variance": v} if r["kind"] == "eval" else {})
    render(gather(variance, SMALLEST, tmp_path), tmp_path / "paper")
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
    _, text = render(gather(gap, SMALLEST, tmp_path), tmp_path / "paper")
    assert "| conv | 3 |" in text and "| shift | 0.25 |" in text


# Claims -------------------------------------------------------------------------------------------


def test_the_rule_for_twelve_of_fifteen_gives_twelve_on_the_papers_own_tables() -> None:
    def printed(task: str, setting: Setting, mode: str) -> float:
        cell = published.lookup(task, mode, setting.method, setting.augment)
        return cell.mean if cell is not None else math.nan

    assert best_cells(printed) == (12, 15)


def test_claims_without_runs_say_what_they_need(tmp_path: Path) -> None:
    found = verdicts(FULL, tmp_path)
    assert [v.claim.paper for v in found] == [
        "27 of 30", "12 of 15", "+42 %", "6x", "+706 %", "+233 %",
    ]  # fmt: skip
    assert all(verdict.ours.startswith("needs the runs of svea paper") for verdict in found)


def test_claims_are_decided_by_their_rules(tmp_path: Path) -> None:
    def fill(name: str, level: Any, modes: tuple[str, ...], seconds: Any = lambda s: 100.0) -> None:
        for (task, setting), runs in experiment(name).runs(SMALLEST).items():
            for run in runs:
                heights = {mode: level(task, setting) for mode in modes}
                if not (tmp_path / "runs" / run.name).exists():
                    write_results(tmp_path, run, heights, seconds(setting))

    loses = {("walker_walk", "blur"), ("finger_spin", "conv")}

    def stability(task: str, setting: Setting) -> float:
        wins = (task, setting.augment) not in loses
        return 200.0 if (setting.method == "svea") == wins else 100.0

    fill("fig-stability", stability, ("train",))
    fill("fig-vit", lambda t, s: 300.0 if s.method == "svea" else 100.0, ("train", "color_hard"))
    ours = {v.claim.paper: v.ours for v in verdicts(SMALLEST, tmp_path)}
    assert len(TASKS) * len(AUGMENTS) == 30
    assert ours["27 of 30"] == "28 of 30 (scaled-0.01)"
    assert ours["+706 %"] == ours["+233 %"] == "+200 % (scaled-0.01)"


def test_wall_time_is_that_of_the_first_drq_that_reaches_svea(tmp_path: Path) -> None:
    heights = {"SVEA (conv)": 100.0, "DrQ [K=1,M=1]": 50.0, "DrQ [K=2,M=2]": 101.0}
    seconds = {"SVEA (conv)": 10.0, "DrQ [K=2,M=2]": 35.0}
    for (_, setting), runs in experiment("fig-km").runs(SMALLEST).items():
        for run in runs:
            height = heights.get(setting.label, 500.0)
            write_results(tmp_path, run, {"train": height}, seconds.get(setting.label, 20.0))
    ours = {v.claim.paper: v.ours for v in verdicts(SMALLEST, tmp_path)}
    assert ours["6x"] == "3.5x (DrQ [K=2,M=2]) (scaled-0.01)"


def test_every_claim_has_a_rule_and_known_experiments() -> None:
    for claim in CLAIMS:
        assert claim.rule and all(name in EXPERIMENTS for name in claim.experiments)


# The verb -----------------------------------------------------------------------------------------


def test_paper_list_and_dry_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["paper", "list"]) == 0
    shown = capsys.readouterr().out
    assert [line.split()[0] for line in shown.splitlines()[1:]] == list(EXPERIMENTS)
    flags = ["--scale", "0.01", "--dry-run", "--decisions-per-second", "5"]
    assert cli.main(["paper", "fig-q-gap", *flags]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("SCALED") and shown.count("svea train") == 25
    assert max(len(line) for line in shown.splitlines() if "svea train" in line) < 80
    assert "\n25 runs\n" in shown
    assert list(tmp_path.iterdir()) == []


def test_paper_claims_prints_every_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["paper", "claims", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert all(claim.rule in shown and claim.paper in shown for claim in CLAIMS)
    assert cli.main(["paper", "claims", "--out", str(tmp_path / "nowhere")]) == 2
    assert "nowhere', which is no folder; allowed:" in capsys.readouterr().err
