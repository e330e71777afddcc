"""eval.jsonl: what is written is read back, whatever was there before."""

import json
from pathlib import Path
from typing import Any

import pytest

from svea.core.errors import StorageError
from svea.runs.records import (
    PROTOCOL,
    append_records,
    differing,
    latest,
    older_pictures,
    protocol_key,
    read_records,
    replayed,
)


def record(**changes: Any) -> dict[str, Any]:
    line = {"policy": "agent", "decision": 1, "mode": "train", "seed": 1, "return": 0.5}
    return line | changes


def test_records_come_back_in_order(tmp_path: Path) -> None:
    assert read_records(tmp_path) == []
    append_records(tmp_path, [record(), record(seed=2)])
    append_records(tmp_path, [record(seed=3)])
    assert read_records(tmp_path) == [record(), record(seed=2), record(seed=3)]


def test_half_a_line_of_a_killed_evaluation_costs_that_line_alone(tmp_path: Path) -> None:
    append_records(tmp_path, [record()])
    with (tmp_path / "eval.jsonl").open("a") as file:
        file.write('{"policy": "age')
    append_records(tmp_path, [record(seed=2)])
    assert read_records(tmp_path) == [record(), record(seed=2)]
    lines = (tmp_path / "eval.jsonl").read_text().splitlines()
    assert list(map(json.loads, lines)) == [record(), record(seed=2)], "for every other reader"


def test_lines_that_are_no_records_are_passed_over(tmp_path: Path) -> None:
    for junk in ("[1, 2]", "null", "[" * 100_000, "\x00\xff", json.dumps(record(length="long"))):
        (tmp_path / "eval.jsonl").write_text(f"{junk}\n{json.dumps(record())}\n", "latin-1")
        assert read_records(tmp_path) == [record()]


def test_a_key_tells_every_part_of_the_protocol_and_nothing_else() -> None:
    whole = {name: f"{name} here" for name in PROTOCOL}
    more = dict(reversed(whole.items())) | {"return": 3.0, "episode": 7}
    assert protocol_key(whole) == protocol_key(more)
    changed = [whole | {name: "other"} for name in PROTOCOL]
    assert len(set(map(protocol_key, [whole, *changed]))) == 1 + len(PROTOCOL)
    assert protocol_key(whole) == protocol_key(whole | {"svea_version": "9"})


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
