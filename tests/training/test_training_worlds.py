"""Training in other worlds: drawn per episode from the seed, recorded, resumable, and said."""

import json
from pathlib import Path
from typing import Any

import pytest
from fake_runs import write_run
from tiny_runs import tiny
from whole_runs import assert_same, metrics, train_until

from svea.cli import main
from svea.config import check, configure
from svea.config.presets import run_name
from svea.core.errors import UserError
from svea.evaluation.requests import evaluate
from svea.results.compare import compare
from svea.results.groups import all_caveats, group_runs
from svea.results.read import read_run
from svea.results.report import report
from svea.results.tables import SEEN, all_results, to_rows
from svea.runs.load import load_config
from svea.training import train

WORLDS = {
    "train_mode": "train:0.5,picture_colors:0.5",
    "train_vary": "picture.noise=0.05..0.1,picture.delay=0..2",
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tiny(tmp_path_factory.mktemp("worlds") / "run", **WORLDS))


def test_it_is_recorded_and_each_episode_shows_one_world(whole: Path, tmp_path: Path):
    config = load_config(whole)
    assert {name: getattr(config, name) for name in WORLDS} == WORLDS
    modes = [line["mode"] for line in metrics(whole) if line["kind"] == "episode"]
    assert set(modes) <= {"train", "picture_colors"} and modes
    plain = train(tiny(tmp_path / "plain"))
    assert not any("mode" in line for line in metrics(plain) if line["kind"] == "episode")
    assert [m for m in metrics(plain) if m["kind"] == "train"] != [
        m for m in metrics(whole) if m["kind"] == "train"
    ]


@pytest.mark.parametrize("stop", [17, 25])
def test_a_run_that_is_interrupted_continues_bit_for_bit(whole, tmp_path, monkeypatch, stop):
    config = tiny(tmp_path / "run", **WORLDS)
    train_until(monkeypatch, config, lambda trainer: trainer.decision >= stop)
    train(config)
    assert_same(whole, tmp_path / "run")
    with pytest.raises(UserError):
        train(tiny(tmp_path / "run", **WORLDS | {"train_vary": ""}))


def test_evaluations_are_in_the_training_world_and_records_say_what_was_seen(whole: Path):
    for name, seen in {"train": True, "picture_colors": True}.items():
        (record,) = evaluate(whole, [name], episodes=1, environments=1)
        assert ("trained_in" in record) == seen and "variation" not in record
        assert record["trained_in"] == ", ".join(WORLDS.values())
    (record,) = evaluate(whole, episodes=1, environments=1, policy="random")
    assert "trained_in" not in record


def test_by_default_nothing_changes():
    config = configure("walker_walk")
    assert config.training_environment == config.environment
    assert "variation" not in config.environment and "mode" not in config.environment
    trained = configure("walker_walk", train_mode="color_easy", train_vary="camera.roll=-9..9")
    assert trained.environment == config.environment
    assert trained.environment_in("train") == config.environment_in("train")
    assert trained.training_environment["variation"] == {"camera.roll": (-9, 9)}
    assert run_name(trained) != run_name(config)
    assert run_name(configure("walker_walk", train_mode="color_easy")) != run_name(
        configure("walker_walk", eval_mode="color_easy")
    )


@pytest.mark.parametrize("wrong, said", [
    ({"train_mode": "no_such"}, "no_such"), ({"train_mode": "train:0.7,color_easy:0.2"}, "0.9"),
    ({"train_mode": "train,color_easy"}, "MODE:SHARE"), ({"train_mode": "test"}, "does not fit"),
    ({"train_mode": "train:-1,color_easy:2"}, "shares above 0"), ({"train_mode": ""}, "mode"),
    ({"train_vary": "light.strenght=0..1"}, "light.strength"),
    ({"train_vary": "light.strength"}, "light.strength=0.3..1.5"),
    ({"train_vary": "light.strength=0.5"}, "range"), ({"train_vary": "camera.roll=9..-9"}, "first"),
    ({"train_vary": "light.strength=0..9"}, "0 to 3"),
    ({"train_vary": "light.strength=a..1"}, "0 to 3"),
    ({"train_vary": "camera.roll=0..1,camera.roll=0..2"}, "twice"),
    ({"task": "toy:make", "train_vary": "light.strength=0..1"}, "does not simulate"),
])  # fmt: skip
def test_worlds_that_cannot_be_are_refused(wrong: dict[str, Any], said: str, tmp_path: Path):
    options = {"task": "walker_walk", "out": str(tmp_path / "run")} | wrong
    with pytest.raises(UserError, match=said):
        check(configure(**options))
    assert not (tmp_path / "run").exists()


@pytest.fixture
def both(tmp_path: Path) -> Path:
    final = {"train": 300.0, "color_easy": 290.0, "color_hard": 200.0}
    write_run(tmp_path / "plain", method="drq", augment="none", final=final)
    write_run(tmp_path / "older", method="drq", augment="none", final=final, seed=1)
    config = json.loads((tmp_path / "plain/config.json").read_text())
    config |= {"train_mode": "train", "train_vary": ""}
    (tmp_path / "plain/config.json").write_text(json.dumps(config))
    write_run(tmp_path / "seen", method="drq", augment="none", final=final, train_mode="color_easy")
    return tmp_path


def test_no_table_shows_them_without_the_mark(both: Path, capsys: pytest.CaptureFixture[str]):
    groups = group_runs([read_run(both / name) for name in ("plain", "older", "seen")])
    assert [len(group.runs) for group in groups] == [2, 1], "older runs do not say where"
    zero_shot, seen = groups
    assert zero_shot.label == "drq" and "TRAINED IN color_easy" in seen.label
    assert any("trained in color_easy" in text for text in all_caveats(groups, None, True))
    rows = {(r["setting"], r["mode"].split()[0]): r["mode"] for r in to_rows(all_results(groups))}
    for (setting, mode), shown in rows.items():
        assert (SEEN in shown) == (setting == seen.label and mode == "color_easy")
    page = report(both, both / "page.html").read_text()
    assert "trained in color_easy" in page and SEEN in page
    assert main(["compare", seen.label, "drq", "--runs", str(both)]) == 0
    assert "trained in color_easy" in capsys.readouterr().out


def test_a_bare_name_never_means_an_agent_that_has_seen_a_test_world(both: Path):
    found = compare("drq", str(both / "seen"), runs=both)
    assert found.comparisons[0].matches[0].ours.label == "drq"
    assert any("trained in color_easy" in note for note in found.brief_notes)
    with pytest.raises(UserError, match="TRAINED IN"):
        compare("drq", "drq", runs=both / "seen")
