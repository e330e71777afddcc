"""Editions of the paper: the miniature's plan, and that no edition is taken for another."""

import csv
import itertools
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from paper_runs import FULL, every_run, rewrite, write_results

from svea import cli, studies
from svea.config.modes import ROBOT_TASKS
from svea.core.errors import UserError
from svea.paper import Paper
from svea.paper.claims import CLAIMS, Claim, Difference, verdicts
from svea.paper.experiments import EDITIONS, EXPERIMENTS, PAPER, Edition
from svea.paper.pages import DRAWN, gather
from svea.studies import Grid

MINI = Edition(seeds="0-2", name="mini")


def test_the_miniature_has_every_experiment_of_the_paper_at_one_size() -> None:
    assert MINI.experiments.keys() >= EXPERIMENTS.keys()
    runs = every_run(MINI.experiments, MINI).values()
    sizes = {(r.config.preset, r.config.image_size, r.config.batch_size, r.decisions) for r in runs}
    assert sizes == {("quick", 48, 64, 20_000)}
    tasks = {*MINI.sizes["tasks"], *MINI.sizes["robots"]}
    assert {run.config.task for run in runs} == tasks and len(tasks) == 5
    assert {run.config.seed for run in runs} == {0, 1, 2}
    for run in runs:
        assert run.episodes == (25 if run.config.task in ROBOT_TASKS else 20)
        assert run.config.replay_capacity == run.decisions
    assert all(one.kind in DRAWN for one in MINI.experiments.values())


def test_nothing_is_tuned_for_a_method() -> None:
    """Runs of a task differ in what their experiment compares, and in what methods are."""
    common = {name for run in every_run(MINI.experiments, MINI).values() for name in run.values}
    compared = {"encoder", "recipe.K", "recipe.M", "envs", "base", "action_bins"}
    assert common == {"task", "method", "augment", "seed", *MINI.sizes["set"], *compared}


def test_runs_are_those_of_a_plain_sweep() -> None:
    grid = Grid(["walker_walk"], ["drq"], ["conv"], "0-2", {"recipe.K": 2, "recipe.M": 2})
    swept = studies.plan_runs([grid], MINI.sizes["set"])
    setting = next(s for s in EXPERIMENTS["fig-km"].settings if s.set)
    planned = FULL.experiments["fig-km"].runs(MINI)["walker_walk", setting]
    assert [(r.name, r.values) for r in planned] == [(r.name, r.values) for r in swept]


def test_all_is_every_run_once_with_the_modes_of_every_experiment() -> None:
    runs = {run.name: run for run in Paper(edition="mini", seeds="0").runs("all")}
    assert runs.keys() == every_run(MINI.experiments, Edition(seeds="0", name="mini")).keys()
    drq = runs[f"{MINI.sizes['tasks'][0]}-drq-none-s0"]
    assert {"train", "video_hard", "distracting_cs:0.1"} <= {*drq.modes}
    assert drq.analyses == ("q-gap",)


@pytest.mark.parametrize("edition", EDITIONS)
def test_claims_compare_settings_that_there_are(edition: str) -> None:
    for claim in CLAIMS.values():
        one = Edition(name=edition).experiment(claim.experiments[0])
        assert {*claim.sides} <= {setting.label for setting in one.settings}
        assert not claim.sides or claim.mode in one.modes


# Mistakes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["table1 --yes", "table1 --render", "claims"])
def test_editions_do_not_share_a_folder(verb, tmp_path, capsys):
    full = Paper()
    full.folder = tmp_path
    full.study("fig-q-gap").save()
    before = sorted(tmp_path.rglob("*"))
    assert cli.main(["paper", *verb.split(), "--edition", "mini", "--out", str(tmp_path)]) == 2
    assert "'paper mini'" in capsys.readouterr().err
    assert sorted(tmp_path.rglob("*")) == before


def finished(folder: Path, paper: Paper, name: str = "fig-q-gap", **final: float) -> list[Any]:
    """Runs of an experiment, and what was planned."""
    runs = every_run([name], paper.edition).values()
    for run in runs:
        write_results(folder, run, final or dict.fromkeys(run.modes, 100.0))
    return [*runs]


@pytest.mark.parametrize("change", [{"preset": PAPER}, {"decisions": 30_000}, {"batch_size": 65}])
def test_records_of_another_edition_are_never_shown(change: dict[str, Any], tmp_path: Path) -> None:
    paper = Paper(edition="mini", seeds="0")
    paper.folder = tmp_path
    runs = finished(tmp_path, paper)
    stranger = tmp_path / "runs" / runs[0].name / "config.json"
    stranger.write_text(json.dumps(json.loads(stranger.read_text()) | change))
    found = gather(paper.edition.experiment("fig-q-gap"), paper.edition, tmp_path / "runs")
    shown = [run.folder.name for cell in found.runs.values() for run in cell]
    assert shown == [run.name for run in runs[1:]]
    (problem,) = found.problems
    assert runs[0].name in problem and next(iter(change)) in problem
    with pytest.raises(UserError, match=next(iter(change))):
        paper.study("fig-q-gap")


@pytest.mark.parametrize("swept", [True, False])
def test_runs_of_plain_verbs_become_the_editions(swept: bool, tmp_path: Path) -> None:
    paper = Paper(edition="mini", seeds="0")
    paper.folder = tmp_path
    if swept:
        grid = Grid(MINI.sizes["tasks"][:1], ["drq"], ["none"])
        study = studies.open_study(tmp_path, studies.plan_runs([grid], MINI.sizes["set"]))
        study.save()
    else:
        finished(tmp_path, paper)
    paper.study("fig-q-gap").save()
    assert studies.read_study(tmp_path).title == "paper mini"


# What is shown ------------------------------------------------------------------------------------


def test_every_file_says_that_it_is_the_miniature(tmp_path, capsys):
    paper = Paper(edition="mini", seeds="0-1")
    paper.folder = tmp_path
    finished(tmp_path, paper, "fig-components")
    flags = ["--edition", "mini", "--seeds", "0-1", "--out", str(tmp_path)]
    assert cli.main(["paper", "all", *flags, "--render"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("MINIATURE EDITION") > 1 and shown.count("# fig-components, miniature") == 1
    files = sorted(path.name for path in (tmp_path / "paper").iterdir())
    assert files and all("-mini" in name for name in files)
    with (tmp_path / "paper/fig-components-mini.csv").open() as file:
        assert {row["edition"] for row in csv.DictReader(file)} == {"mini"}


def test_the_variance_and_the_area_have_tables(tmp_path: Path) -> None:
    paper = Paper(edition="mini", seeds="0-1")
    paper.folder = tmp_path
    for run in finished(tmp_path, paper, "fig-q-variance"):
        level = 4.0 + run.config.seed if run.config.method == "drq" else 1.0
        metrics = tmp_path / "runs" / run.name / "metrics.jsonl"
        rewrite(metrics, lambda r, v=level: {"q_target_variance": v} if r["kind"] == "eval" else {})
    ((_, text),) = paper.render("fig-q-variance")
    assert "| DrQ + conv | 4.5 ± 0.707 |" in text and "| SVEA (conv) | 1 ± 0 |" in text
    decided = {v.claim.text: v for v in verdicts(paper.edition, tmp_path / "runs")}
    variance = next(v for text, v in decided.items() if "varies more" in text)
    # three tasks, each 4 and 5: an error of sqrt(3 x 0.5 / 2) / 3, with 3 degrees of freedom
    assert variance.smallest == f"{3.182446 * 0.75**0.5 / 3:.3g}" and variance.word == "holds"


@pytest.mark.parametrize(
    ("ours", "theirs", "margin", "word"),
    [
        ([30, 31, 32], [10, 11, 12], 0.0, "holds"),
        ([10, 11, 12], [30, 31, 32], 0.0, "does not hold"),
        ([10, 30, 50], [10, 11, 12], 0.0, "undecided"),
        ([97, 98, 99], [100, 101, 102], 0.1, "holds"),
        ([99, 100, 101], [100, 101, 102], 0.0, "undecided"),
        ([30], [10, 11, 12], 0.0, "undecided"),
        ([30, 30], [10, 10], 0.0, "holds"),
    ],
)
def test_a_claim_is_decided_by_its_interval(ours, theirs, margin, word):
    found = Difference.of([(ours, theirs)])
    claim = Claim("", "", "", (), margin=margin)
    assert found is not None and found.verdict(claim).word == word


def test_what_was_shown_by_chance_is_called_so() -> None:
    """Of equal sides, 5 % seem to differ: the interval is as wide as it says, at three seeds."""
    import numpy as np

    draws = np.random.default_rng(0).normal(size=(1000, 3, 2, 3))
    found = [Difference.of(one.tolist()) for one in draws]
    words = [one.verdict(Claim("", "", "", ())).word for one in found if one]
    assert 0.02 < 1 - words.count("undecided") / len(words) < 0.08


def test_a_forecast_is_of_updates_and_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    from svea.paper import forecast

    runs = Paper(edition="mini", seeds="0").runs("fig-vit")
    monkeypatch.setattr(forecast, "time_update", lambda *_, **__: {"ms": 20.0})
    rows = [{"task": task, "ms": 2.0} for task in MINI.sizes["tasks"]]
    monkeypatch.setattr(forecast, "time_environments", lambda *_, **__: rows)
    clock, half = itertools.count(), itertools.count(0, 0.5)  # another program has half of a core
    clocks = SimpleNamespace(perf_counter=clock.__next__, process_time=half.__next__)
    monkeypatch.setattr(forecast, "time", clocks)
    lines = forecast.forecast(runs)
    # half of 20 ms an update; 4 evaluations x 2 modes x 6 episodes and 2 x 20 at the end
    played = sum(20_000 + 88 * run.config.episode_length for run in runs)
    hours = (len(runs) * 20_000 * 0.02 + played * 0.002) / 3600 / 2
    assert f"{hours:,.1f} hours of one core" in lines[0]


# The page -----------------------------------------------------------------------------------------


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "scripts")
    import miniature

    yield miniature
    for name in ("miniature", "model_cards", "published_runs"):
        sys.modules.pop(name)


def publish(root: Path, names: list[str]) -> None:
    """Finished runs in results/mini, each with its four files."""
    for run in every_run(names, MINI).values():
        level = {"svea": 400.0, "drq": 200.0}.get(run.config.method, 100.0) + run.config.seed
        write_results(root, run, dict.fromkeys(run.modes, level), at="results/mini")
        facts = {"command": f"svea train {run.config.task} --seed {run.config.seed}",
                 "asked_for_decisions": run.decisions, "reached_decisions": run.decisions,
                 "wall_seconds": 3600.0, "processor_seconds": 360.0}  # fmt: skip
        about = dict.fromkeys(sys.modules["published_runs"].FACTS, "") | facts
        (root / "results/mini" / run.name / "provenance.json").write_text(json.dumps(about))


def test_the_page_has_tables_claims_and_what_is_left(script: Any, tmp_path: Path) -> None:
    publish(tmp_path, ["fig-components"])
    text = script.page(tmp_path)
    assert "54 of 530 runs are published, 5.4 hours of one core" in text
    assert "| fig-components |" in text and " 54 of 90 |" in text
    heads = [line for line in text.splitlines() if line.startswith("## ")]
    assert len(heads) > 2 and all("miniature" in head for head in heads[1:])
    claim = next(line for line in text.splitlines() if "SVEA generalises better than DrQ |" in line)
    assert "+100 %: 401 against 201, difference 200 [199, 201]" in claim and "**holds**" in claim


def test_only_the_editions_own_runs_are_published(script: Any, tmp_path: Path) -> None:
    publish(tmp_path, ["fig-q-gap"])
    place = tmp_path / "results/mini"
    first = sorted(place.iterdir())[0]
    first.rename(place / "stranger-s0")
    with pytest.raises(SystemExit, match="stranger-s0"):
        script.page(tmp_path)
    (place / "stranger-s0").rename(first)
    config = json.loads((first / "config.json").read_text())
    (first / "config.json").write_text(json.dumps(config | {"warmup": 7}))
    with pytest.raises(UserError, match="warmup"):
        script.page(tmp_path)
