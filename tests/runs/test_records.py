"""eval.jsonl: what is written is read back; incidents.jsonl: what went wrong, in words."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from faults.profiles import command
from tiny_runs import TINY, tiny

from svea.cli import main
from svea.core.errors import StorageError, UserError, WorkerError
from svea.runs import layout
from svea.runs.records import (
    PROTOCOL,
    append_records,
    differing,
    episode_key,
    latest,
    older_pictures,
    read_records,
    record_incident,
    recording_incidents,
    replayed,
)
from svea.training import train


def record(**changes: Any) -> dict[str, Any]:
    line = {"policy": "agent", "decision": 1, "mode": "train", "seed": 1, "return": 0.5}
    return line | changes


def test_records_come_back_in_order(tmp_path: Path) -> None:
    assert read_records(tmp_path) == []
    append_records(tmp_path, [record(), record(seed=2)])
    append_records(tmp_path, [record(seed=3)])
    assert read_records(tmp_path) == [record(), record(seed=2), record(seed=3)]


def test_lines_that_are_no_records_are_passed_over(tmp_path: Path) -> None:
    for junk in ("[1, 2]", "null", "[" * 100_000, "\x00\xff", json.dumps(record(length="long"))):
        (tmp_path / "eval.jsonl").write_text(f"{junk}\n{json.dumps(record())}\n", "latin-1")
        assert read_records(tmp_path) == [record()]


def test_a_key_tells_every_part_of_the_protocol_and_nothing_else() -> None:
    whole = {name: f"{name} here" for name in PROTOCOL}
    more = dict(reversed(whole.items())) | {"return": 3.0, "episode": 7}
    assert episode_key(whole) == episode_key(more)
    changed = [whole | {name: "other"} for name in PROTOCOL]
    assert len(set(map(episode_key, [whole, *changed]))) == 1 + len(PROTOCOL)
    assert episode_key(whole) == episode_key(whole | {"svea_version": "9"})


def test_of_two_records_of_one_episode_the_later_counts() -> None:
    again = record(weights="other", svea_version="9", **{"return": 2.0})
    others = [record(mode="color_hard"), record(policy="random"), record(decision=2)]
    assert latest([record(), *others, again]) == [again, *others]


def test_records_with_older_pictures_do_not_count_next_to_newer_ones() -> None:
    """A mean over two sets of clips, or over worlds drawn and worlds in turn, is of neither."""
    few, many = {"clips": 6}, {"clips": 6, "worlds": 6}
    old = [record(mode="video_easy", seed=seed, provenance=few) for seed in (1, 2, 3)]
    new = [record(mode="video_easy", seed=seed, provenance=many) for seed in (2, 5)]
    others = [
        record(mode="video_easy", decision=2, provenance=few),
        record(mode="video_easy", policy="random", provenance=few),
        record(mode="video_easy", seed=9),
    ]
    assert latest([*old, *others]) == [*old, *others], "records of old runs are still read"
    assert latest([*old, *others, *new]) == [*others, *new]


def test_what_other_pictures_were_is_said() -> None:
    """Records from before renderers were recorded, another renderer, and re-coded clips."""
    old = {"mode": "video_hard", "source": "dmcgb", "clips": 100, "stored": ["84 x 84"]}
    new = {**old, "identified": 100, "renderer": "svea raster 1", "episodes": 1}
    gl = {**new, "renderer": "OpenGL: llvmpipe, 4.5"}
    assert differing(old, new) == {
        "renderer": ("not recorded", "svea raster 1"),
        "source": ("dmcgb, re-coded", "dmcgb"),
    }
    assert differing(new, gl) == {"renderer": ("svea raster 1", "OpenGL: llvmpipe, 4.5")}
    assert list(differing(new, new | {"episodes": 2})) == ["episodes"]
    first = [record(mode="video_hard", seed=seed, provenance=old) for seed in (1, 2)]
    later = [record(mode="video_hard", seed=seed, provenance=new) for seed in (2, 3)]
    (why,) = older_pictures([*first, *later])
    assert older_pictures([*first, *later])[why] == 2 and "not recorded" in why
    assert replayed(later, first) == {why: 1}
    assert not older_pictures(later) and not replayed(later, [])


def test_a_folder_that_cannot_be_written_to_is_a_storage_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"eval\.jsonl"):
        append_records(tmp_path / "missing", [record()])
    (tmp_path / "eval.jsonl").mkdir()
    with pytest.raises(StorageError, match=r"eval\.jsonl"):
        read_records(tmp_path)


def test_a_return_that_is_not_a_number_is_never_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        append_records(tmp_path, [record(**{"return": float("nan")})])
    assert read_records(tmp_path) == []


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / layout.INCIDENTS).read_text().splitlines()]


def test_a_mistake_in_the_environment_is_one_line_and_a_traceback_in_the_folder(tmp_path, capsys):
    run = tmp_path / "run"
    assert main(command(TINY | {"task": "toy:make_broken"}, run)) == 5
    said = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("warning")]
    (line,) = said
    assert line.startswith("svea: environment 0 raised ZeroDivisionError: the toy broke (")
    assert re.search(r"toy.py, line \d+, in happen\) ", line), "where in the user's code"
    assert line.endswith(f"(details: {run / layout.INCIDENTS})")
    *restarts, end = lines(run)
    assert [line["what"] for line in restarts] == ["worker restarted"]
    assert end["what"] == "run ended" and end["error"] == "RaisedError"
    for line in (restarts[0], end):
        assert "toy.py" in line["details"] and "Traceback" in line["details"]


def test_simulations_that_diverge_are_counted_and_training_goes_on(tmp_path, capsys):
    run = train(tiny(tmp_path / "run", "toy:make_diverging", decisions=20, eval_every=100))
    logged = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    episodes = [line for line in logged if line["kind"] == "episode"]
    assert [line["decision"] for line in episodes] == [4, 8, 12, 16, 20]
    assert all(line["physics_error"] == "the toy diverged" for line in episodes)
    noted = [line["what"] for line in lines(run)]
    assert noted.count("episode ended by its physics") >= 5, "evaluations meet them, too"
    assert "warning: the toy diverged. The next episode begins." in capsys.readouterr().err


def test_errors_keep_their_class_and_know_where_their_details_are(tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    with pytest.raises(WorkerError) as caught, recording_incidents(tmp_path):
        raise WorkerError("environment 3 died")
    assert caught.value.details == tmp_path / layout.INCIDENTS
    with pytest.raises(ZeroDivisionError), recording_incidents(tmp_path):
        raise ZeroDivisionError("a mistake of ours")
    with pytest.raises(UserError), recording_incidents(tmp_path):
        raise UserError("unknown task")  # a mistake of the user is not noted
    causes = [line["cause"] for line in lines(tmp_path)]
    assert causes == ["environment 3 died", "a mistake of ours"]


def test_a_note_that_cannot_be_written_is_no_new_failure(tmp_path: Path) -> None:
    assert record_incident(tmp_path / "missing", what="x") is None
    assert record_incident(tmp_path, what="x") == tmp_path / layout.INCIDENTS
