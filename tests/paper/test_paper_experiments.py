"""The paper's experiments: the right grids, honest scaling, and the verb."""

from pathlib import Path

import pytest
from paper_runs import every_run

from svea import cli
from svea.core.errors import UserError
from svea.paper import Paper
from svea.paper.experiments import EXPERIMENTS, Edition
from svea.results import published

FULL = Edition()


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


def test_experiments_share_their_runs() -> None:
    """Table 4's SVEA (overlay) and DrQ are Table 1's, evaluated in another mode."""
    first, fourth = every_run(["table1"]), every_run(["table-video-hard"])
    assert set(fourth) <= set(first)
    assert len(every_run(EXPERIMENTS)) < sum(len(every_run([name])) for name in EXPERIMENTS) / 1.5


@pytest.mark.parametrize("name", ["table1", "table-video-hard", "table-ablations", "table-robot"])
def test_every_cell_of_the_papers_tables_has_its_runs(name: str) -> None:
    one = EXPERIMENTS[name]
    table = {"table1": "Table 1", "table-video-hard": "Table 4", "table-ablations": "Table 3",
             "table-robot": "Table 2"}[name]  # fmt: skip
    planned = {
        (task, mode, s.method, s.augment, s.set.get("encoder", "cnn"))
        for task in one.tasks
        for mode in one.modes
        for s in one.settings
    }
    printed = {key for key, cell in published.PAPER_RESULTS.items() if cell.table == table}
    assert printed <= planned
    missing = {key for key in planned if key not in published.PAPER_RESULTS}
    assert missing == set()


def test_robot_agents_meet_every_test_world_equally_often() -> None:
    for scale, episodes in ((FULL, "all"), (Edition(0.01), 25)):
        assert {run.episodes for run in every_run(["table-robot"], scale).values()} == {episodes}


def test_views_of_the_km_figure_are_all_strong() -> None:
    for run in every_run(["fig-km"]).values():
        assert run.config.augment == "conv"
        assert run.config.recipe.K == run.config.recipe.M
    assert {run.config.recipe.K for run in every_run(["fig-km"]).values()} == {1, 2, 5}


def test_a_scaled_run_is_smaller_and_says_so() -> None:
    run = next(iter(every_run(["fig-base"], Edition(0.01)).values()))
    config = run.config
    assert config.decisions == run.decisions == 5000
    assert config.eval_every == 1000 and config.eval_episodes == 3 and config.warmup == 1000
    assert "scaled-0.01" in run.name and "scaled-0.01" in str(Paper(0.01).folder)
    assert run.episodes == 3
    vit = next(iter(every_run(["fig-vit"], Edition(0.01)).values()))
    assert vit.decisions == 3000


def test_full_and_scaled_runs_never_share_a_folder(tmp_path: Path) -> None:
    full, scaled = Paper(), Paper(0.01)
    full.folder = scaled.folder = tmp_path / "s"
    for name in ("fig-q-gap", "table1"):
        full.study(name).save()
    with pytest.raises(UserError, match="holds the study 'paper'"):
        scaled.study("fig-q-gap")


def test_paper_list_and_dry_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert cli.main(["paper", "list"]) == 0
    shown = capsys.readouterr().out
    assert [line.split()[0] for line in shown.splitlines()[1:]] == list(EXPERIMENTS)
    flags = ["--scale", "0.01", "--dry-run"]
    assert cli.main(["paper", "fig-q-gap", *flags]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("SCALED") and shown.count("svea train") == 25
    assert max(len(line) for line in shown.splitlines() if "svea train" in line) < 80
    assert "\n25 runs, " in shown
    assert list(tmp_path.iterdir()) == []
