"""Whole runs on the toy environment, and what two of them must have in common."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from svea.config import Config
from svea.replay import Replay
from svea.runs import checkpoint
from svea.runs.load import load_config
from svea.training import Trainer, train

WALL_CLOCK = ("seconds", "updates_per_second", "decisions_per_second")


def metrics(run: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k not in WALL_CLOCK} for line in lines]


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
        "state": {k: v for k, v in saved.state.items() if k not in ("seconds", "log_offset")},
        "metrics": metrics(run),
    }


def assert_same(one: Path, two: Path) -> None:
    first, second = outcome(one), outcome(two)
    assert first["metrics"] == second["metrics"]
    assert first["state"] == second["state"]
    for part in ("tensors", "replay"):
        assert first[part].keys() == second[part].keys()
        for name, tensor in first[part].items():
            assert torch.equal(tensor, second[part][name]), f"{part}: {name}"


def train_until(
    monkeypatch: pytest.MonkeyPatch, config: Config, stop: Callable[[Trainer], bool]
) -> None:
    """Train as if the time limit came when a condition is met."""
    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "must_stop", stop)
        train(config)
