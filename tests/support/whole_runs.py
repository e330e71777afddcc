"""Whole runs on the toy environment, and what two of them must have in common."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from svea.config import Config
from svea.replay import Replay
from svea.runs import checkpoint
from svea.runs.load import load_config
from svea.training import Trainer, train

WALL_CLOCK = ("seconds", "log_offset", "updates_per_second", "decisions_per_second")


def timeless(value: Any) -> Any:
    """JSON without the values of the clock on the wall."""
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if k not in WALL_CLOCK}
    return [timeless(v) for v in value] if isinstance(value, list) else value


def metrics(run: Path) -> list[dict[str, Any]]:
    """The whole lines of a run's log."""
    path = run / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [timeless(json.loads(line)) for line in lines if line.endswith(b"\n")]


def outcome(run: Path) -> dict[str, Any]:
    """All that a run leaves behind, without the times of the clock on the wall."""
    config, saved = load_config(run), checkpoint.load(run)
    assert saved is not None
    decisions = max(config.decisions, saved.decision)
    replay = Replay(min(config.replay, decisions), config.image_size, 1, config.envs, 10)
    checkpoint.restore_replay(run, saved, replay)
    return {
        "decision": saved.decision,
        "tensors": saved.agent,
        "replay": vars(replay.gather(torch.arange(len(replay)))),
        "state": timeless(saved.state),
        "metrics": metrics(run),
    }


def digest(run: Path) -> str:
    """A hash of all that a run leaves behind."""
    found = outcome(run)
    total = hashlib.sha256()
    for name, tensor in sorted({**found.pop("tensors"), **found.pop("replay")}.items()):
        total.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        total.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    total.update(json.dumps(found, sort_keys=True).encode())
    return total.hexdigest()


def assert_same(one: Path, two: Path) -> None:
    first, second = outcome(one), outcome(two)
    assert first["metrics"] == second["metrics"]
    assert first["state"] == second["state"]
    for part in ("tensors", "replay"):
        assert first[part].keys() == second[part].keys()
        for name, tensor in first[part].items():
            assert torch.equal(tensor, second[part][name]), f"{part}: {name}"


def train_until(monkeypatch: Any, config: Config, stop: Callable[[Trainer], bool]) -> None:
    """Train as if the time limit came when a condition is met."""
    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "must_stop", stop)
        train(config)
