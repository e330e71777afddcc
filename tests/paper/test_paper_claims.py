"""The paper's claims: each decided by its rule, or by what is missing."""

import math
from pathlib import Path
from typing import Any

import pytest
from paper_runs import SMALLEST, write_results

from svea import cli
from svea.paper.claims import CLAIMS, best_cells, verdicts
from svea.paper.experiments import AUGMENTS, EXPERIMENTS, TASKS, Edition, Setting
from svea.results import published


def test_the_rule_for_twelve_of_fifteen_gives_twelve_on_the_papers_own_tables() -> None:
    def printed(task: str, setting: Setting, mode: str) -> float:
        cell = published.lookup(task, mode, setting.method, setting.augment)
        return cell.mean if cell is not None else math.nan

    assert best_cells(printed) == (12, 15)


def test_claims_without_runs_say_what_they_need(tmp_path: Path) -> None:
    found = verdicts(Edition(), tmp_path / "runs")
    in_the_text = {"27 of 30", "12 of 15", "+42 %", "6x", "+706 %", "+233 %"}
    assert in_the_text <= {v.claim.paper for v in found} and len(found) == len(CLAIMS)
    assert all(v.ours.startswith("needs the runs of svea paper") for v in found)
    assert {v.word for v in found} == {"undecided"}


def test_claims_are_decided_by_their_rules(tmp_path: Path) -> None:
    def fill(name: str, level: Any, modes: tuple[str, ...], seconds: Any = lambda s: 100.0) -> None:
        for (task, setting), runs in EXPERIMENTS[name].runs(SMALLEST).items():
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
    found = {v.claim.paper: v for v in verdicts(SMALLEST, tmp_path / "runs")}
    assert len(TASKS) * len(AUGMENTS) == 30
    assert found["27 of 30"].ours.startswith("28 of 30; ")
    for number in ("+706 %", "+233 %"):
        assert found[number].ours == "+200 %: 300 against 100, difference 200"
        assert found[number].word == "undecided", "one seed shows nothing"


def test_wall_time_is_that_of_the_first_drq_that_reaches_svea(tmp_path: Path) -> None:
    heights = {"SVEA (conv)": 100.0, "DrQ [K=1,M=1]": 50.0, "DrQ [K=2,M=2]": 101.0}
    seconds = {"SVEA (conv)": 10.0, "DrQ [K=2,M=2]": 35.0}
    for (_, setting), runs in EXPERIMENTS["fig-km"].runs(SMALLEST).items():
        for run in runs:
            height = heights.get(setting.label, 500.0)
            write_results(tmp_path, run, {"train": height}, seconds.get(setting.label, 20.0))
    ours = {v.claim.paper: v.ours for v in verdicts(SMALLEST, tmp_path / "runs")}
    assert ours["6x"].startswith("3.5x (DrQ [K=2,M=2]); ")


def test_paper_claims_prints_every_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["paper", "claims", "--out", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert all(claim.rule in shown and claim.paper in shown for claim in CLAIMS.values())
    assert cli.main(["paper", "claims", "--out", str(tmp_path / "nowhere")]) == 2
    assert "nowhere'; allowed:" in capsys.readouterr().err
