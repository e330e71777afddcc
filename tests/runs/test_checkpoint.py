"""Checkpoints are whole or absent, and damage never passes for data."""

import hashlib
from pathlib import Path

import pytest
import torch
from faults.disks import Hooked, Saver, check_whole, hooked
from safetensors.torch import load_file

from svea.core import files
from svea.core.errors import NumericsError
from svea.runs import checkpoint, tensors


def loaded(run: Saver) -> checkpoint.Checkpoint:
    """The newest checkpoint, of which everything is right."""
    check_whole(run, run.decision)
    saved = checkpoint.load(run.folder)
    assert saved is not None
    return saved


def names(run: Saver, part: str) -> list[str]:
    return sorted(path.name for path in (run.folder / part).iterdir())


@pytest.fixture
def saved_run(tmp_path: Path) -> Saver:
    run = Saver(tmp_path / "run")
    for decisions in (5, 4, 6):
        run.go(decisions)
        run.save()
    return run


def test_what_is_saved_comes_back_from_two_generations(saved_run: Saver) -> None:
    assert checkpoint.load(saved_run.folder / "missing") is None
    assert loaded(saved_run).decision == 15
    assert names(saved_run, "checkpoints") == ["000000009", "000000015"]
    assert len(names(saved_run, "replay")) == 3


def test_each_frame_is_written_once(saved_run: Saver) -> None:
    before = {p: p.stat().st_mtime_ns for p in (saved_run.folder / "replay").iterdir()}
    saved_run.go(3)
    saved_run.save()
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())
    frames = [len(load_file(p)["frames"]) for p in sorted((saved_run.folder / "replay").iterdir())]
    assert frames == [6, 4, 6, 3]


def test_overwritten_segments_are_dropped_and_the_rest_rebuilds_the_ring(tmp_path: Path) -> None:
    run = Saver(tmp_path / "run", capacity=12)
    for _ in range(15):
        run.go(4)
        run.save()
        loaded(run)
    assert len(names(run, "replay")) <= 9, "the disk does not fill up"


def test_saving_the_same_decision_again_is_the_newest(saved_run: Saver) -> None:
    """It stands beside the first one: there is no moment without a whole checkpoint."""
    saved_run.save()
    saved = loaded(saved_run)
    assert (saved.decision, saved.name, saved.agent["r"]) == (15, "000000015.1", 3)
    assert names(saved_run, "checkpoints") == ["000000015", "000000015.1"]
    for _ in range(10):
        saved_run.save()
    assert loaded(saved_run).name == "000000015.11", "in the order of numbers"
    checkpoint.remove_newer(saved_run.folder, saved)
    saved_run.go(1)
    saved_run.save()
    assert loaded(saved_run).name == "000000016"


def test_what_a_killed_process_left_is_swept_away(saved_run: Saver) -> None:
    for part in ("checkpoints", "replay"):
        left = saved_run.folder / part / ".000000020.77.partial"
        left.mkdir()
        (left / "agent.safetensors").touch()
    saved_run.go(1)
    saved_run.save()
    assert not [p for p in saved_run.folder.rglob(".*")]


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_is_never_saved(saved_run: Saver, bad: float) -> None:
    with pytest.raises(NumericsError, match="w became"):
        checkpoint.save(saved_run.folder, 16, {"w": torch.tensor(bad)}, {}, saved_run.replay, [])
    assert loaded(saved_run).decision == 15


def test_tensors_are_written_as_safetensors(tmp_path: Path) -> None:
    made = {
        "flags": torch.tensor([True, False, True]),
        "one": torch.tensor(3.5),
        "half": torch.arange(5, dtype=torch.bfloat16),
        "frames": torch.arange(24, dtype=torch.uint8).reshape(2, 3, 4).permute(2, 0, 1),
        "count": torch.tensor([2**62]),
        "none": torch.zeros(0, 4),
    }
    path = tmp_path / "tensors.safetensors"
    fingerprint = files.write(path, tensors.blocks(made))
    assert fingerprint["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    read = load_file(path)
    assert read.keys() == made.keys()
    for name, tensor in made.items():
        assert read[name].dtype == tensor.dtype and torch.equal(read[name], tensor), name


def test_everything_is_synced_before_it_gets_its_name_and_the_name_after(saved_run: Saver) -> None:
    """What a power cut needs: data, then name, then folder."""
    saved_run.go(1)
    with hooked(Hooked()) as hook:
        saved_run.save()
    calls = hook.calls
    places = [place for place, call in enumerate(calls) if call == "replace"]
    assert len(places) == 2, "a segment of the replay and a checkpoint"
    for place in places:
        written = max(k for k in range(place) if calls[k] == "write")
        assert "fsync" in calls[written:place], "data first"
        assert calls[place + 1 : place + 4] == ["open", "fsync", "close"], "then the folder"
    assert calls.count("fsync") >= calls.count("mkdir") + 4


@pytest.mark.parametrize("name", ["agent.safetensors", "state.json", "manifest.json"])
def test_damaged_files_are_skipped(saved_run, name, capsys):
    path = saved_run.folder / "checkpoints" / "000000015" / name
    for content in (path.read_bytes()[:-9], b"", b"\x00\xff" * 40, b"[1]", None):
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        saved = checkpoint.load(saved_run.folder)
        assert saved and saved.decision == 9
        assert "000000015" in capsys.readouterr().err


def test_a_damaged_replay_does_not_matter_for_evaluation(saved_run: Saver) -> None:
    newest = sorted((saved_run.folder / "replay").iterdir())[-1]
    newest.write_bytes(newest.read_bytes()[:-1])
    found = [checkpoint.load(saved_run.folder, replay=replay) for replay in (False, True)]
    assert [saved and saved.decision for saved in found] == [15, 9]
