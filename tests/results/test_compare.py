"""Two methods side by side: pairing, scores, and what is refused."""

import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_runs import change_records, write_run

from svea.cli import main
from svea.core import files
from svea.core.errors import UserError
from svea.results.compare import Comparison, compare, compare_in, matches
from svea.results.compare import find_side as find
from svea.results.groups import Group
from svea.results.tables import to_rows


def find_side(text: str, beneath: Path) -> list[Group]:
    return find(text, beneath)[0]


def svea_and_drq(beneath: Path, mode: str, measure: Any = "return") -> Comparison:
    pairs, _ = matches(find_side("svea", beneath), find_side("drq", beneath))
    found = compare_in(pairs, mode, measure)
    assert found is not None
    return found


def printed(capsys: pytest.CaptureFixture[str], beneath: Path, *flags: str) -> str:
    """What `svea compare svea drq` prints."""
    assert main(["compare", "svea", "drq", "--verbose", "--runs", str(beneath), *flags]) == 0
    return capsys.readouterr().out


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """SVEA beats DrQ on walker in every seed, and loses to it on finger in every seed."""
    returns = {
        ("walker_walk", "svea", "conv"): [300, 320, 340],
        ("walker_walk", "drq", "none"): [100, 120],
        ("finger_spin", "svea", "conv"): [50, 60],
        ("finger_spin", "drq", "none"): [70, 80],
    }
    for (task, method, augment), scores in returns.items():
        for seed, score in enumerate(scores):
            who = {"task": task, "method": method, "augment": augment, "seed": seed}
            final = {"train": score, "color_hard": score / 2}
            write_run(tmp_path / "runs" / f"{task}-{method}-{seed}", **who, final=final)
    return tmp_path / "runs"


def test_scores_differences_and_chances(runs: Path) -> None:
    pairs, alone = matches(find_side("svea", runs), find_side("drq", runs))
    assert [pair.name for pair in pairs] == ["finger_spin", "walker_walk"] and not alone
    found = svea_and_drq(runs, "color_hard")
    np.testing.assert_allclose(found.ours[1], [150, 160, 170])
    np.testing.assert_allclose(found.theirs[1], [50, 60])
    for kind in (found.over_seeds, found.over_worlds):
        assert [one.point for one in kind.differences] == pytest.approx([-10, 105])
        assert [one.point for one in kind.chances] == [0.0, 1.0]
        assert (kind.chance.point, kind.difference.point) == (0.5, pytest.approx(47.5))
    assert found.shown is found.over_worlds
    assert found.wins == 1
    written = json.loads(json.dumps(found.to_json()))
    assert written["wins"] == 1 and written["probability"]["point"] == 0.5
    assert written["matches"][0]["ours"] == pytest.approx([25, 30])
    assert written["matches"][0]["difference"]["point"] == pytest.approx(-10)
    assert written["matches"][1]["probability_over_worlds"]["point"] == 1
    assert written["difference_over_worlds"]["point"] == pytest.approx(47.5)


def test_a_group_of_modes_is_what_both_sides_have_of_it(tmp_path: Path) -> None:
    ours, theirs = {"train": 9, "shift_easy": 5, "rotate_easy": 7}, {"train": 8, "rotate_easy": 6}
    for method, final in (("svea", ours), ("drq", theirs)):
        write_run(tmp_path / method, method=method, augment="none", final=final)
    made = compare("svea", "drq", runs=tmp_path, modes=["geometry", "train"]).comparisons
    assert [one.mode for one in made] == ["rotate_easy", "train"]
    found = compare("svea", "drq", runs=tmp_path, modes=["train", "lights"])
    assert [one.mode for one in found.comparisons] == ["train"]
    assert any("lights: no return on both sides" in note for note in found.notes)


def test_returns_of_several_suites_have_no_common_difference(tmp_path: Path) -> None:
    for task, level in (("walker_walk", 800.0), ("robot_reach", 40.0)):
        for method, share in (("svea", 1.0), ("drq", 0.5)):
            final, success = {"train": level * share}, {"train": share}
            folder = tmp_path / f"{task}-{method}"
            write_run(folder, task=task, method=method, final=final, success=success)
    returns, success = (svea_and_drq(tmp_path, "train", by) for by in ("return", "success"))
    assert success.shown.difference is not None
    assert returns.shown.difference is None and returns.to_json()["difference"] is None
    assert returns.shown.chance.point == 1.0
    assert success.shown.difference.point == pytest.approx(0.5)
    found = compare("svea", "drq", runs=tmp_path, modes=["train"])
    last = to_rows(found.table())[-1]
    assert (last["task"], last["return of svea"], last["difference [95 %]"]) == ("all 2", "–", "–")


def test_two_agents_are_compared_over_the_worlds_they_share(tmp_path: Path) -> None:
    """One seed each. Worlds do 0 to 90 points to both, so only what differs counts."""
    levels = np.arange(10) * 10.0
    for method, gains in (("svea", [5.0, 6.0] * 5), ("drq", [0.0] * 10)):

        def play(record: Any, gains: list[float] = gains) -> Any:
            world = record["episode"]
            return record | {"world": world, "return": levels[world] + gains[world]}

        change_records(write_run(tmp_path / method, method=method), play)
    found = svea_and_drq(tmp_path, "color_hard")
    assert found.over_worlds is not None
    seeds, both = found.over_seeds.differences[0], found.over_worlds.differences[0]
    assert seeds.point == pytest.approx(5.5) and math.isnan(seeds.low), "one seed has no spread"
    assert 5 <= both.low < 5.5 < both.high <= 6
    (match,) = found.to_json()["matches"]
    assert match["difference"] == {"point": pytest.approx(5.5), "low": None, "high": None}
    assert match["difference_over_worlds"]["low"] == both.low
    json.dumps(found.to_json(), allow_nan=False)


def test_one_episode_on_each_side_is_compared_without_an_interval(tmp_path, capsys):
    for method, level in (("svea", 300.0), ("drq", 200.0)):
        run = write_run(tmp_path / method, method=method, final={"train": level})
        change_records(run, lambda r: None if r["episode"] or r["policy"] == "random" else r)
    said = printed(capsys, tmp_path)
    row = next(line for line in said.splitlines() if line.startswith("walker_walk"))
    assert "[" not in row and row.split()[-2:] == ["105", "1.00"]
    assert "note: few episodes: 1 in train" in said
    written = json.loads(
        printed(capsys, tmp_path, "--json"), parse_constant=lambda text: pytest.fail(text)
    )
    assert written[0]["probability_over_worlds"] == {"point": 1.0, "low": None, "high": None}
    area = printed(capsys, tmp_path, "--measure", "area")
    assert "few episodes" not in area, "a curve is not of these episodes"


def test_areas_end_where_the_shortest_run_ends(tmp_path: Path) -> None:
    # Both climb in a straight line to 300 at their end: up to 2000 the mean height is 150 and 50.
    write_run(tmp_path / "a" / "0", final={"train": 300}, decisions=2000)
    write_run(tmp_path / "b" / "0", method="drq", final={"train": 300}, decisions=6000)
    pairs, _ = matches(*(find_side(str(tmp_path / side), tmp_path) for side in "ab"))
    found = compare_in(pairs, "train", "area")
    assert found is not None
    assert (found.ours[0][0], found.theirs[0][0]) == pytest.approx((150, 50))
    assert found.over_worlds is None and "difference_over_worlds" not in found.to_json()
    assert found.shown is found.over_seeds


def test_augmentations_pair_where_both_sides_vary_them(tmp_path: Path) -> None:
    for method in ("svea", "drq"):
        for augment in ("conv", "blur"):
            write_run(tmp_path / f"{method}-{augment}", method=method, augment=augment)
    write_run(tmp_path / "svea-overlay", augment="overlay")
    pairs, alone = matches(find_side("svea", tmp_path), find_side("drq", tmp_path))
    assert [pair.name for pair in pairs] == ["walker_walk blur", "walker_walk conv"]
    assert all(p.ours.runs[0].augment == p.theirs.runs[0].augment for p in pairs)
    assert alone == ["walker_walk overlay: only on one side, left out"]
    with pytest.raises(UserError, match=r"'svea \+ blur' or 'sv"):
        matches(find_side("svea", tmp_path), find_side("drq+conv", tmp_path))
    pairs, _ = matches(find_side("svea+overlay", tmp_path), find_side("drq+conv", tmp_path))
    assert [pair.name for pair in pairs] == ["walker_walk"]


def test_a_name_that_several_settings_share_is_refused_with_names_that_work(tmp_path: Path) -> None:
    write_run(tmp_path / "drq", method="drq", augment="none")
    for decisions in (6000, 9000):
        write_run(tmp_path / str(decisions), decisions=decisions)
    for shared in ("svea", "svea+conv", "svea + conv"):
        with pytest.raises(UserError) as refused:
            compare(shared, "drq", runs=tmp_path, modes=["train"])
        assert f"several settings of {shared!r} on walker_walk: " in str(refused.value)
        named = re.findall("'(svea [^']*)'", str(refused.value).partition("walker_walk")[2])
        assert named == ["svea + conv, decisions 6000", "svea + conv, decisions 9000"]
    for label in named:
        made = compare(label, "drq", runs=tmp_path, modes=["train"]).comparisons
        assert [(m.ours.label, m.theirs.label) for m in made[0].matches] == [(label, "drq")]


def test_agents_of_the_zoo_are_sides_once_they_are_evaluated(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SVEA_ZOO", str(tmp_path / "zoo"))
    for name, method in (("a", "svea"), ("b", "drq")):
        agent = write_run(tmp_path / "zoo" / name, method=method)
        config = json.loads((agent / "config.json").read_text())
        config["files"] = {"actor.safetensors": files.write(agent / "actor.safetensors", [b"w"])}
        (agent / "config.json").write_text(json.dumps(config))
    assert main(["compare", "zoo:a", "zoo:b", "--modes", "train"]) == 2
    assert "`svea eval` plays what is missing" in capsys.readouterr().err
    for name in "ab":
        shutil.copy(tmp_path / "zoo" / name / "eval.jsonl", tmp_path / "runs/zoo" / name)
    assert main(["compare", "zoo:a", "zoo:b", "--verbose", "--modes", "train"]) == 0
    assert "zoo:a is better in 0 of 1" in capsys.readouterr().out


def test_one_pair_of_seeds_is_not_shown_as_certain(runs, tmp_path, capsys):
    for method, level in (("svea", 300.0), ("drq", 200.0)):
        write_run(tmp_path / "one" / method, method=method, final={"train": level})
    note = "where both sides have one seed, the interval of the difference is over worlds"
    said = printed(capsys, tmp_path / "one")
    row = next(line for line in said.splitlines() if line.startswith("walker_walk"))
    assert row.split()[-1] == "1.00" and row.count("[") == 1 and note in said
    said = printed(capsys, runs, "--modes", "train")
    assert "1.00 [1.00, 1.00]" in said and note not in said


def test_what_cannot_be_compared_is_refused_by_name(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"unknown method or folder 'svae'\. Did you mean 'svea'"):
        find_side("svae", runs)
    with pytest.raises(UserError, match="is not a folder, and neither is"):
        find_side("svea", tmp_path / "nowhere")
    write_run(tmp_path / "other", task="cheetah_run")
    with pytest.raises(UserError, match="one side has finger_spin, walker_walk; the other cheetah"):
        matches(find_side("svea", runs), find_side(str(tmp_path / "other"), runs))
    pairs, _ = matches(find_side("svea", runs), find_side("drq", runs))
    assert compare_in(pairs, "video_hard", "return") is None
    assert compare_in(pairs, "train", "success") is None
