"""A study's folder: what counts as the same study, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fake_studies import SHORT, short

from svea.errors import UserError
from svea.studies import Grid, open_study, plan_runs, read_study


def test_a_study_grows_but_is_never_another_one(tmp_path: Path) -> None:
    open_study(tmp_path / "s", short(seeds="0-1")).save()
    open_study(tmp_path / "s", short(seeds="1-3")).save()
    names = {run.name for run in read_study(tmp_path / "s").runs}
    assert names == {f"walker_walk-svea-conv-s{seed}" for seed in range(4)}
    changed = plan_runs([Grid(["walker_walk"])], {"decisions": 99})
    with pytest.raises(UserError, match=r"another study.*\n.*decisions 100 there, 99 here"):
        open_study(tmp_path / "s", changed)
    with pytest.raises(UserError, match="another study"):
        open_study(tmp_path / "s", short(("finger_spin",)))
    with pytest.raises(UserError, match="another study"):
        open_study(tmp_path / "s", short(), title="paper")


def test_modes_and_analyses_add_up(tmp_path: Path) -> None:
    for mode in ("color_hard", "video_easy"):
        runs = plan_runs([Grid(["walker_walk"])], SHORT, modes=[mode])
        open_study(tmp_path / "s", runs, "paper").save()
    assert read_study(tmp_path / "s").runs[0].modes == ("color_hard", "video_easy")


def test_folders_that_are_no_study_are_refused(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    with pytest.raises(UserError, match="not empty and not a study"):
        open_study(tmp_path / "full", short())
    with pytest.raises(UserError, match="is not a study"):
        read_study(tmp_path / "full")
    (tmp_path / "full" / "study.json").write_text('{"runs": [{"nam')
    with pytest.raises(UserError, match="cannot be read"):
        read_study(tmp_path / "full")


@pytest.mark.parametrize("episodes", [7, "all", {"train": "all", "default": 3}])
def test_a_study_comes_back_from_its_file(tmp_path: Path, episodes: Any) -> None:
    runs = plan_runs([Grid(["walker_walk"])], SHORT, modes=["train"], episodes=episodes)
    study = open_study(tmp_path / "s", runs)
    study.save()
    assert read_study(tmp_path / "s") == study
    path = tmp_path / "s" / "study.json"
    before = path.read_text().replace('"export": ""', '"export": "/elsewhere"')
    path.write_text(before)
    study.save()
    assert read_study(tmp_path / "s").runs[0].export == "/elsewhere", "it is kept, as modes are"
    content = json.loads(before)
    del content["runs"][0]["export"]
    path.write_text(json.dumps(content))
    assert read_study(tmp_path / "s") == study, "a plan from before exports"
