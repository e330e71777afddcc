"""Names in a run folder: above all, which checkpoint is the newest."""

from pathlib import Path

import pytest

from svea.runs import layout


def saved(run: Path, *names: str) -> Path:
    for name in names:
        (run / "checkpoints" / name).mkdir(parents=True)
    return run


def test_a_folder_without_checkpoints_has_no_newest_one(tmp_path: Path) -> None:
    assert layout.checkpoints(tmp_path) == []
    assert layout.newest_checkpoint(tmp_path) == -1
    assert layout.next_checkpoint(tmp_path, 5).name == "000000005"


@pytest.mark.parametrize(
    ("names", "newest", "following"),
    [
        (("000000100",), 100, "000000100.1"),
        (("000000100.1", "000000100.2"), 100, "000000100.3"),
        (("000000100.10", "000000100.9"), 100, "000000100.11"),
        (("000000050.7", "000000100"), 100, "000000100.1"),
        (("1000000000", "000000100"), 1_000_000_000, "000000100.1"),
    ],
)
def test_repetitions_of_a_decision_count(tmp_path, names, newest, following):
    run = saved(tmp_path, *names)
    assert layout.newest_checkpoint(run) == newest
    assert layout.next_checkpoint(run, 100).name == following


def test_other_names_are_not_checkpoints(tmp_path: Path) -> None:
    run = saved(tmp_path, "notes", "100.", "100.x", "1.2.3", ".000000200.17.partial", "000000007")
    assert [path.name for path in layout.checkpoints(run)] == ["000000007"]


def test_what_makes_a_run_and_an_export(tmp_path: Path) -> None:
    assert not layout.is_run(tmp_path)
    (tmp_path / layout.CONFIG).touch()
    assert layout.is_run(tmp_path) and not layout.is_export(tmp_path)
    (tmp_path / layout.ACTOR).touch()
    assert layout.is_export(tmp_path)
