"""A study's folder: what counts as the same study, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_studies import SHORT, short

from svea.core.errors import UserError
from svea.studies import Grid, open_study, plan_runs, read_study


def test_a_study_grows_but_is_never_another_one(tmp_path: Path) -> None:
    open_study(tmp_path / "s", short(seeds="0-1")).save()
    open_study(tmp_path / "s", short(seeds="1-3")).save()
    names = {run.name for run in read_study(tmp_path / "s").runs}
    assert names == {f"walker_walk-svea-conv-s{seed}" for seed in range(4)}
    changed = plan_runs([Grid(["walker_walk"])], {"decisions": 99})
    with pytest.raises(UserError, match=r"another study.*\n.*decisions 100 there, 99 here"):
        open_study(tmp_path / "s", changed)
    with pytest.raises(UserError):
        open_study(tmp_path / "s", short(("finger_spin",)))
    with pytest.raises(UserError):
        open_study(tmp_path / "s", short(), title="paper")


def test_the_plan_of_a_run_is_what_was_asked_last(tmp_path: Path) -> None:
    asked: list[dict[str, Any]] = [
        {"modes": ["train", "color_hard"], "episodes": {"default": 2, "color_hard": 3},
         "analyses": ["q-gap"], "export": tmp_path / "exports"},
        {"modes": ["color_easy"], "episodes": 4},
    ]  # fmt: skip
    both, first = (plan_runs([Grid(["walker_walk"], seeds=s)], SHORT, **asked[0]) for s in "10")
    open_study(tmp_path / "s", (*first, *both)).save()
    again = plan_runs([Grid(["walker_walk"], seeds="0")], SHORT, **asked[1])
    open_study(tmp_path / "s", again).save()
    assert read_study(tmp_path / "s").runs == (*again, *both), "the other run keeps its plan"


def test_folders_that_are_no_study_are_refused(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    with pytest.raises(UserError):
        open_study(tmp_path / "full", short())
    with pytest.raises(UserError):
        read_study(tmp_path / "full")
    (tmp_path / "full" / "study.json").write_text('{"runs": [{"nam')
    with pytest.raises(UserError):
        read_study(tmp_path / "full")


@pytest.mark.parametrize("episodes", [7, "all", {"train": "all", "default": 3}])
def test_a_study_comes_back_from_its_file(tmp_path: Path, episodes: Any) -> None:
    runs = plan_runs([Grid(["walker_walk"])], SHORT, modes=["train"], episodes=episodes)
    study = open_study(tmp_path / "s", runs)
    study.save()
    assert read_study(tmp_path / "s") == study
    path = tmp_path / "s" / "study.json"
    content = json.loads(path.read_text())
    content["runs"][0]["drop_replay"] = True
    path.write_text(json.dumps(content))
    assert read_study(tmp_path / "s") == study, "a plan with an option that is no more"
