"""A seeded minute of the fault kit; `make faults` runs all of it."""

import mmap
import sys
from pathlib import Path
from typing import Any

import pytest

if sys.platform != "linux":
    pytest.skip("the kit reads /proc", allow_module_level=True)

from faults import (
    configurations,
    damage,
    disks,
    environments,
    hostile,
    kills,
    undefined,
)
from faults.tally import Part, Tally, shards

from svea.core import files
from svea.runs import layout

SEED = 1  # another than the full kit's

MINUTE = [  # which cases of each part
    pytest.param(kills.kills, range(1, 2), id="kills"),
    pytest.param(disks.save_kills, range(0, 1000, 9), id="save-kills"),
    pytest.param(disks.storage_errors, range(0, 1000, 17), id="storage"),
    pytest.param(damage.truncations, range(25), id="truncations"),
    pytest.param(damage.bit_flips, range(25), id="bit-flips"),
    pytest.param(damage.media_truncations, range(3), id="media-truncations"),
    pytest.param(damage.media_bit_flips, range(3), id="media-bit-flips"),
    pytest.param(hostile.hostile, range(100), id="hostile"),
    pytest.param(hostile.special_files, range(0, len(hostile.CASES), 12), id="special"),
    pytest.param(undefined.nan_injections, range(6, 9), id="nan"),
    pytest.param(undefined.physics, range(9), id="physics"),
    pytest.param(environments.worker_failures, range(1), id="workers"),
    pytest.param(environments.cycles, range(2), id="cycles"),
    pytest.param(configurations.fuzzed, range(90), id="configurations"),
]


@pytest.mark.parametrize(("part", "cases"), MINUTE)
def test_nothing_is_lost(part: Any, cases: range, tmp_path: Path) -> None:
    tally = part(cases, SEED, tmp_path)
    assert tally.losses == []
    assert tally.tried == tally.survived > 0 or tally.skipped


# The kit itself: one that cannot lose proves nothing. ---------------------------------------------


def test_saving_in_place_would_be_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As most projects save: into the file that the last save wrote."""
    same = layout.CHECKPOINTS + "/000000001"
    monkeypatch.setattr(layout, "next_checkpoint", lambda run, decision: run / same)
    monkeypatch.setattr(files, "partial", lambda path: path)
    monkeypatch.setattr(files, "rename", lambda source, target: None)
    tally = disks.save_kills(range(0, 1000, 40), SEED, tmp_path)
    assert len(tally.losses) > tally.tried / 4


def test_a_file_that_runs_a_program_would_be_lost(tmp_path, monkeypatch):
    mark = tmp_path / "canary"
    hostile_file = ("canary", tmp_path, lambda: mark.touch())
    monkeypatch.setattr(hostile, "files_in", lambda folder, mark: [hostile_file])
    assert "it ran a program" in hostile.hostile(range(1), SEED, tmp_path).losses[0]


def test_a_file_that_takes_the_memory_would_be_lost(tmp_path, monkeypatch):
    def take() -> None:
        """Fresh pages: memory that this process once freed may be kept for it, and be no growth."""
        pages = mmap.mmap(-1, 300 * 2**20)
        pages[:: mmap.PAGESIZE] = b"x" * (300 * 2**20 // mmap.PAGESIZE)

    monkeypatch.setattr(hostile, "files_in", lambda folder, mark: [("greedy", tmp_path, take)])
    assert "MB" in hostile.hostile(range(1), SEED, tmp_path).losses[0]


def test_damage_that_no_hash_notices_would_be_lost(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "verify", lambda path, wanted, limit: None)
    weights = lambda folder: {"weights": damage.data_kinds(folder)["weights"]}  # noqa: E731
    tally = damage.damage(range(20), SEED, tmp_path, harm=damage.flip, make_kinds=weights)
    assert len(tally.losses) > 10


def test_a_verb_that_accepts_a_special_file_would_be_lost(tmp_path, monkeypatch):
    monkeypatch.setattr("svea.cli.main", lambda words: 0)
    assert "exit code 0" in hostile.special_files(range(1), SEED, tmp_path).losses[0]


def test_shards_cover_every_case_once() -> None:
    part = Part("p", "a part", 1000, 300, lambda cases, seed, folder: Tally())
    assert [case for cases in shards(part, 0.7) for case in cases] == list(range(700))
    assert [len(cases) for cases in shards(part, 0.0001)] == [1]
    plan = list("abcdefg") * 100
    taken = [disks.chosen(plan, range(start, start + 250)) for start in range(0, 1000, 250)]
    assert [item for share in taken for item in share] == plan


def test_counts_add_up() -> None:
    one, two = Tally(), Tally()
    for tally, good in ((one, True), (two, False)):
        with tally.case("case", 3):
            assert good
        tally.measure("seconds", 1.0 + good)
    one.add(two)
    assert (one.tried, one.survived, len(one.losses)) == (6, 3, 1)
    assert one.measured == {"seconds": 2.0}
