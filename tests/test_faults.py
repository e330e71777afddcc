"""A seeded minute of the fault kit; `make faults` runs all of it."""

from __future__ import annotations

import mmap
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

if sys.platform != "linux":
    pytest.skip("the kit reads /proc", allow_module_level=True)

import torch
from faults import (
    configurations,
    damage,
    disks,
    environments,
    hostile,
    kills,
    special,
    undefined,
)
from faults.tally import Part, Tally, run, shards

from svea.core import files
from svea.runs import layout

SEED = 1  # another than the full kit's
torch.set_num_threads(1)

MINUTE = {  # which cases of each part
    kills.kills: range(1, 2),
    disks.save_kills: range(0, 1000, 9),
    disks.storage_errors: range(0, 1000, 17),
    damage.truncations: range(25),
    damage.bit_flips: range(25),
    damage.media_truncations: range(3),
    damage.media_bit_flips: range(3),
    hostile.hostile: range(100),
    special.special_files: range(0, len(special.CASES), 8),
    undefined.nan_injections: range(6, 9),
    undefined.physics: range(9),
    environments.worker_failures: range(1, 3),
    environments.cycles: range(4),
    configurations.fuzzed: range(90),
}


@pytest.mark.parametrize("part", MINUTE, ids=lambda part: part.__name__)
def test_nothing_is_lost(part: Any, tmp_path: Path) -> None:
    tally = part(MINUTE[part], SEED, tmp_path)
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


def test_a_file_that_runs_a_program_would_be_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "canary"
    hostile_file = ("canary", tmp_path, lambda: mark.touch())
    monkeypatch.setattr(hostile, "files_in", lambda folder, mark: [hostile_file])
    assert "it ran a program" in hostile.hostile(range(1), SEED, tmp_path).losses[0]


def test_a_file_that_takes_the_memory_would_be_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def take() -> None:
        """Fresh pages: memory that this process once freed may be kept for it, and be no growth."""
        pages = mmap.mmap(-1, 300 * 2**20)
        pages[:: mmap.PAGESIZE] = b"x" * (300 * 2**20 // mmap.PAGESIZE)

    monkeypatch.setattr(hostile, "files_in", lambda folder, mark: [("greedy", tmp_path, take)])
    assert "MB" in hostile.hostile(range(1), SEED, tmp_path).losses[0]


def test_damage_that_no_hash_notices_would_be_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "verify", lambda path, wanted, limit: None)
    kinds = damage.data_kinds
    monkeypatch.setattr(damage, "data_kinds", lambda folder: {"weights": kinds(folder)["weights"]})
    tally = damage.bit_flips(range(20), SEED, tmp_path)
    assert len(tally.losses) > 10


def test_a_verb_that_accepts_a_special_file_would_be_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("svea.cli.main", lambda words: 0)
    assert "exit code 0" in special.special_files(range(1), SEED, tmp_path).losses[0]


def test_shards_cover_every_case_once() -> None:
    part = Part("p", "a part", 1000, 300, lambda cases, seed, folder: Tally())
    assert [case for cases in shards(part, 0.7) for case in cases] == list(range(700))
    assert [len(cases) for cases in shards(part, 0.0001)] == [1]
    plan = list("abcdefg") * 100
    taken = [disks.chosen(plan, range(start, start + 250)) for start in range(0, 1000, 250)]
    assert [item for share in taken for item in share] == plan


def test_an_interrupted_campaign_runs_what_is_missing(tmp_path: Path) -> None:
    part = Part("p", "a part", 10, 4, lambda cases, seed, folder: Tally())
    asked: list[range] = []

    def start(part: Part, cases: range, seed: int) -> Tally:
        asked.append(cases)
        lost = ["the reason"] if cases.start == 4 else []
        return Tally(len(cases), len(cases) - len(lost), lost)

    log = tmp_path / "log.jsonl"
    run([part], 1, 0.8, 0, start, log)
    with log.open("a") as file:
        file.write('{"part": "p", "cas')  # killed here
    [(_, tally)] = run([part], 1, 1.0, 0, start, log)
    assert asked == [range(0, 4), range(4, 8), range(8, 10)]
    assert (tally.tried, tally.survived, tally.losses) == (10, 9, ["the reason"])
    assert run([part], 1, 1.0, 0, start, log)[0][1] == tally and len(asked) == 3


def test_counts_add_up(tmp_path: Path) -> None:
    one, two = Tally(), Tally()
    for tally, good in ((one, True), (two, False)):
        with tally.case("case", 3):
            assert good
        tally.measure("seconds", 1.0 + good)
    one.add(two)
    assert (one.tried, one.survived, len(one.losses)) == (6, 3, 1)
    assert one.measured == {"seconds": 2.0}
    shutil.rmtree(tmp_path)
