"""Configurations of runs on the toy environment that take a second."""

from pathlib import Path
from typing import Any

from svea.config import Config, configure

TINY: dict[str, Any] = {
    "method": "svea",
    "image_size": 16,
    "shift": 1,
    "network": {"layers": 2, "filters": 4, "projection": 8, "hidden": 16},
    "batch_size": 8,
    "decisions": 40,
    "warmup": 12,
    "episode_frames": 10,
    "eval_every": 15,
    "eval_episodes": 2,
    "eval_envs": 1,
    "log_every": 7,
    "save_every": 10,
    "device": "cpu",
    "precision": "float32",
}


def tiny(out: Path, task: str = "toy:make", **changes: Any) -> Config:
    return configure(task, **(TINY | {"out": str(out)} | changes))
