"""Reading run folders: whole ones, damaged ones, and folders that are none."""

import json
from pathlib import Path

import pytest
from fake_runs import write_lines, write_run

from svea.core.errors import UserError
from svea.results.read import find_runs, look_for_runs, read_run, read_runs


def test_a_whole_run_reads_without_a_warning(tmp_path):
    run = read_run(write_run(tmp_path / "demo", seed=3))
    assert run.warnings == ()
    assert (run.task, run.method, run.augment, run.seed) == ("walker_walk", "svea", "conv", 3)
    assert (run.decisions_done, run.action_repeat, run.seconds) == (6000, 4, 600.0)
    assert run.finished
    assert run.modes == ["train", "color_hard"]
    assert run.command == "svea train walker_walk --method svea --seed 3"


AGENT = '{"policy": "agent", "mode": "train", "episode": 99, '
BAD = ("NaN", "Infinity", "1e300", "1" + "0" * 300, "null", '"12"', "true")
ODD = ('"length": "long"}', '"mode": "\\ud800"}', '"return": 1' + "0" * 400 + "}")


@pytest.mark.parametrize(
    ("file", "line", "warning"),
    [
        ("metrics.jsonl", '{"kind": "eval", "decis', "metrics.jsonl ends in half a line"),
        ("eval.jsonl", AGENT + '"decision": 10, "seed": 1, "return": 1e6}\n', ""),
        *(("eval.jsonl", f'{AGENT}"decision": 6000, "return": {bad}}}\n', "1 return not finite")
          for bad in BAD),
        *(("eval.jsonl", AGENT + odd + "\n", "eval.jsonl has 1 damaged line, the first is line 21")
          for odd in ODD),
    ],
)  # fmt: skip
def test_what_is_no_final_return_is_left_out_and_named(tmp_path, file, line, warning):
    """Half a line, an earlier agent, what cannot be a return, odd records."""
    folder = write_run(tmp_path / "demo", final={"train": 300})
    whole = read_run(folder)
    with (folder / file).open("a") as opened:
        opened.write(line)
    run = read_run(folder)
    assert len(run.metrics) == len(whole.metrics)
    assert run.finals("train").mean() == pytest.approx(300)
    assert any(text.startswith(warning) for text in run.warnings) if warning else not run.warnings


@pytest.mark.parametrize("content", ["{", "[]", "\x00", "[" * 100_000])
def test_a_run_without_its_configuration_is_refused(tmp_path, content):
    folder = write_run(tmp_path / "demo")
    (folder / "config.json").write_text(content)
    with pytest.raises(UserError, match=r"demo.*config\.json"):
        read_run(folder)


def test_without_eval_records_returns_come_from_training_and_say_so(tmp_path):
    folder = write_run(tmp_path / "demo", final={"train": 120.0})
    (folder / "eval.jsonl").unlink()
    run = read_run(folder)
    assert run.finals("train").tolist() == [120.0, 120.0]
    assert run.warnings == (
        "not yet evaluated by `svea eval`: returns come from the last evaluation in training",
    )


def test_an_unfinished_run_says_how_far_it_came(tmp_path):
    folder = write_run(tmp_path / "demo")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "decisions": 500_000}))
    run = read_run(folder)
    assert not run.finished
    assert "unfinished: 6,000 of 500,000 decisions" in run.warnings


def test_an_empty_run_is_read_with_its_gaps_named(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    write_lines(tmp_path / "metrics.jsonl", [])
    run = read_run(tmp_path)
    assert {"metrics.jsonl holds no record", "eval.jsonl is missing"} <= set(run.warnings)
    assert run.modes == []
    assert run.decisions_done == 0


def test_no_run_says_what_was_looked_for(tmp_path):
    with pytest.raises(UserError, match=r"config\.json is missing"):
        read_run(tmp_path)
    with pytest.raises(UserError, match="not there"):
        read_run(tmp_path / "absent")
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="a file, not a folder"):
        read_run(tmp_path / "file")


def test_a_folder_of_runs_stands_for_the_runs_beneath(tmp_path):
    folders = [write_run(tmp_path / "sweep" / name) for name in ("a", "b")]
    assert find_runs([tmp_path, folders[0]]) == folders


def write_export(folder, run, **changes):
    """An export of a run, or of one that differs from it."""
    folder.mkdir(parents=True)
    (folder / "actor.safetensors").touch()
    stored = json.loads((run / "config.json").read_text()) | {"decision": 6000, "files": {}}
    (folder / "config.json").write_text(json.dumps(stored | changes))
    return folder


def test_an_export_next_to_its_run_is_not_another_run(tmp_path):
    run = write_run(tmp_path / "runs" / "a", seed=1)
    own = write_export(tmp_path / "agents" / "own", run)
    other = write_export(tmp_path / "agents" / "other", run, seed=2)
    assert find_runs([tmp_path]) == [other, run]
    assert find_runs([tmp_path / "agents"]) == [other, own]
    assert find_runs([run, own]) == [run, own]  # who names both wants both
    assert find_runs([tmp_path, own]) == [other, own, run]


@pytest.mark.parametrize("order", [1, -1])
def test_an_export_is_not_another_run_in_a_folder_of_its_own_either(tmp_path, order):
    run = write_run(tmp_path / "runs" / "a", seed=1)
    own = write_export(tmp_path / "runs" / "exports" / "a", run)
    given = [run, tmp_path / "runs" / "exports"][::order]
    assert find_runs(given) == [run]
    assert look_for_runs(given)[1] == {own: run}


def test_an_evaluated_export_is_not_left_out_silently_for_a_run_that_is_not(tmp_path):
    run = write_run(tmp_path / "runs" / "a")
    export = write_export(tmp_path / "agents" / "a", run)
    assert read_runs([tmp_path])[1] == []
    (run / "eval.jsonl").rename(export / "eval.jsonl")
    runs, (problem,) = read_runs([tmp_path])
    assert [one.folder for one in runs] == [run]
    assert problem.startswith(f"{export} is left out as an export of {run}, but it is evaluated")
    assert read_runs([run, export])[1] == []


def test_a_run_under_two_spellings_is_one_run(tmp_path, monkeypatch):
    run = write_run(tmp_path / "runs" / "a")
    (tmp_path / "link").symlink_to(run)
    monkeypatch.chdir(tmp_path)
    spellings = [Path("runs/a"), run, run / ".." / "a", tmp_path / "link", tmp_path]
    assert find_runs(spellings) == [Path("runs/a")]


def test_one_bad_folder_does_not_hide_the_others(tmp_path):
    good = write_run(tmp_path / "good")
    runs, (problem,) = read_runs([good, tmp_path / "absent"])
    assert [run.folder for run in runs] == [good] and "absent" in problem
    with pytest.raises(UserError, match="absent"):
        read_runs([tmp_path / "absent"])
