"""Checkpoints are whole or absent, and damage never passes for data."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from faults.disks import Hooked, hooked
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file

from svea.core import files
from svea.core.errors import NumericsError, StorageError
from svea.replay import Replay
from svea.replay.segments import counters
from svea.runs import checkpoint, tensors


class Run:
    """A run that only stores and saves."""

    def __init__(self, folder: Path, capacity: int = 20) -> None:
        self.folder, self.decision = folder, 0
        self.replay = Replay(capacity, 16, 1, episode_length=1000)
        self.replay.begin(0, self.frame())
        self.segments: list[dict[str, Any]] = []
        self.weight = 0.0

    def frame(self) -> Any:
        return np.full((3, 16, 16), self.decision, np.uint8)

    def go(self, decisions: int) -> None:
        for _ in range(decisions):
            self.decision += 1
            action = np.array([self.decision], np.float32)
            self.replay.append(0, action, self.decision, False, self.frame())

    def save(self) -> None:
        weights = {"w": torch.arange(300.0) + self.decision + self.weight}
        state = {"replay": counters(self.replay), "text": "state"}
        self.segments = checkpoint.save(
            self.folder, self.decision, weights, state, self.replay, self.segments
        )


def restore(folder: Path, capacity: int = 20) -> tuple[checkpoint.Checkpoint, Replay]:
    saved = checkpoint.load(folder)
    assert saved is not None
    replay = Replay(capacity, 16, 1, episode_length=1000)
    checkpoint.restore_replay(folder, saved, replay)
    return saved, replay


def contents(replay: Replay) -> list[float]:
    return replay.gather(torch.arange(len(replay))).rewards.tolist()


@pytest.fixture
def saved_run(tmp_path: Path) -> Run:
    run = Run(tmp_path / "run")
    for decisions in (5, 4, 6):
        run.go(decisions)
        run.save()
    return run


def test_what_is_saved_comes_back_from_two_generations(saved_run: Run) -> None:
    assert checkpoint.load(saved_run.folder / "missing") is None
    saved, replay = restore(saved_run.folder)
    assert saved.decision == 15 and saved.state["text"] == "state"
    assert torch.equal(saved.agent["w"], torch.arange(300.0) + 15)
    assert contents(replay) == list(range(1, 16))
    names = sorted(p.name for p in (saved_run.folder / "checkpoints").iterdir())
    assert names == ["000000009", "000000015"]
    assert len(list((saved_run.folder / "replay").iterdir())) == 3


def test_each_frame_is_written_once(saved_run: Run) -> None:
    before = {p: p.stat().st_mtime_ns for p in (saved_run.folder / "replay").iterdir()}
    saved_run.go(3)
    saved_run.save()
    for path, time in before.items():
        assert path.stat().st_mtime_ns == time
    frames = [len(load_file(p)["frames"]) for p in sorted((saved_run.folder / "replay").iterdir())]
    assert frames == [6, 4, 6, 3]


def test_overwritten_segments_are_dropped_and_the_rest_rebuilds_the_ring(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", capacity=12)
    for _ in range(15):
        run.go(4)
        run.save()
        _, replay = restore(run.folder, capacity=12)
        assert contents(replay) == contents(run.replay)
    assert len(list((run.folder / "replay").iterdir())) <= 9, "the disk does not fill up"


def test_saving_the_same_decision_again_is_the_newest(saved_run: Run) -> None:
    """It stands beside the first one: there is no moment without a whole checkpoint."""
    saved_run.weight = 7.0
    saved_run.save()
    saved, replay = restore(saved_run.folder)
    assert saved.decision == 15 and len(replay) == 15 and saved.name == "000000015.1"
    assert torch.equal(saved.agent["w"], torch.arange(300.0) + 15 + 7)
    names = sorted(p.name for p in (saved_run.folder / "checkpoints").iterdir())
    assert names == ["000000015", "000000015.1"]
    assert not [p for p in saved_run.folder.rglob(".*")], "nothing half-written is left"
    for _ in range(10):
        saved_run.save()
    assert restore(saved_run.folder)[0].name == "000000015.11", "in the order of numbers"
    checkpoint.remove_newer(saved_run.folder, saved)
    saved_run.go(1)
    saved_run.save()
    assert restore(saved_run.folder)[0].name == "000000016"


def test_what_a_killed_process_left_is_swept_away(saved_run: Run) -> None:
    for part in ("checkpoints", "replay"):
        left = saved_run.folder / part / ".000000020.77.partial"
        left.mkdir()
        (left / "agent.safetensors").touch()
    saved_run.go(1)
    saved_run.save()
    assert not [p for p in saved_run.folder.rglob(".*")]


def test_what_is_not_finite_is_never_saved(saved_run: Run) -> None:
    saved_run.go(1)
    for saved_run.weight in (float("nan"), float("inf")):
        with pytest.raises(NumericsError, match="w became"):
            saved_run.save()
    assert restore(saved_run.folder)[0].decision == 15


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


def test_everything_is_synced_before_it_gets_its_name_and_the_name_after(saved_run: Run) -> None:
    """What a power cut needs: data, then name, then folder."""
    saved_run.go(1)
    with hooked(Hooked()) as hook:
        saved_run.save()
    calls = hook.calls
    names = [place for place, call in enumerate(calls) if call == "replace"]
    assert len(names) == 2, "a segment of the replay and a checkpoint"
    for place in names:
        written = max(k for k in range(place) if calls[k] == "write")
        assert "fsync" in calls[written:place], "data first"
        assert calls[place + 1 : place + 4] == ["open", "fsync", "close"], "then the folder"
    assert calls.count("fsync") >= calls.count("mkdir") + 4


def files_in(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file())


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_flipped_byte_is_noticed(saved_run: Run, data: st.DataObject) -> None:
    """The newest checkpoint comes back exact, or the one before it does, or an error."""
    damaged = saved_run.folder.with_name("damaged")
    shutil.rmtree(damaged, ignore_errors=True)
    shutil.copytree(saved_run.folder, damaged)
    path = data.draw(st.sampled_from(files_in(damaged)))
    content = bytearray(path.read_bytes())
    where = data.draw(st.integers(0, len(content) - 1))
    content[where] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    try:
        saved, replay = restore(damaged)
    except StorageError:
        assert path.parent.name == "replay", "only what both stand on can damage both"
        return
    assert saved.decision == 15 or "000000015" in str(path) or path.parent.name == "replay"
    assert torch.equal(saved.agent["w"], torch.arange(300.0) + saved.decision)
    assert contents(replay) == list(range(1, saved.decision + 1))
    assert saved.segments[-1]["transitions"] == saved.decision


def test_any_flipped_bit_of_a_manifest_is_noticed(saved_run: Run) -> None:
    """It is the one file that no other file vouches for."""
    path = saved_run.folder / "checkpoints" / "000000015" / "manifest.json"
    content = path.read_bytes()
    for where in range(0, len(content), 3):
        path.write_bytes(content[:where] + bytes([content[where] ^ 1]) + content[where + 1 :])
        saved = checkpoint.load(saved_run.folder, replay=False)
        assert saved is not None
        marks = [segment["transitions"] for segment in saved.segments]
        assert (saved.decision, marks) in [(15, [5, 9, 15]), (9, [5, 9])]


@pytest.mark.parametrize("name", ["agent.safetensors", "state.json", "manifest.json"])
def test_damaged_files_are_skipped(
    saved_run: Run, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = saved_run.folder / "checkpoints" / "000000015" / name
    for content in (path.read_bytes()[:-9], b"", b"\x00\xff" * 40, b"[1]", None):
        path.unlink()
        if content is not None:
            path.write_bytes(content)
        assert restore(saved_run.folder)[0].decision == 9
        assert "000000015" in capsys.readouterr().err


def test_a_damaged_replay_does_not_matter_for_evaluation(saved_run: Run) -> None:
    newest = sorted((saved_run.folder / "replay").iterdir())[-1]
    newest.write_bytes(newest.read_bytes()[:-1])
    found = [checkpoint.load(saved_run.folder, replay=replay) for replay in (False, True)]
    assert [saved and saved.decision for saved in found] == [15, 9]
