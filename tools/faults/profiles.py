"""The tiny runs that faults are tried on, and what tells two of them apart."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from tiny_runs import TINY

from svea.config import Config, configure
from svea.runs import checkpoint

WALL_CLOCK = {"seconds", "log_offset", "updates_per_second", "decisions_per_second"}

TOY: dict[str, Any] = TINY | {
    "task": "toy:make",
    "network": TINY["network"] | {"filters": 16},  # our own kernels have 16
    "decisions": 240,
    "warmup": 20,
    "eval_every": 80,
    "log_every": 15,
    "save_every": 20,
}
CARTPOLE: dict[str, Any] = TOY | {
    "task": "cartpole_swingup",
    "rendering": "fast",
    "episode_frames": 160,
    "decisions": 100,
    "eval_mode": "train",
    "eval_episodes": 1,
    "eval_every": 50,
}

GPU: dict[str, Any] = TOY | {
    "device": "cuda",
    "precision": "bfloat16",
    "speed": "captured",
    "deterministic": True,
}


def config(profile: dict[str, Any], out: Path, **changes: Any) -> Config:
    """A profile as a configuration."""
    values = profile | {"out": str(out)} | changes
    return configure(values.pop("task"), **values)


def command(profile: dict[str, Any], out: Path) -> list[str]:
    """A profile as a command line."""
    words = [sys.executable, "-m", "svea", "train", profile["task"], "--out", str(out)]
    for name, value in profile.items():
        inner = value if isinstance(value, dict) else {"": value}
        for key, given in inner.items() if name != "task" else ():
            flag = f"--{name}.{key}".rstrip(".").replace("_", "-")
            words += [flag] if given is True else [flag, str(given)]
    return words


def start(profile: dict[str, Any], out: Path) -> subprocess.Popen[str]:
    """Run a profile's command."""
    return subprocess.Popen(
        command(profile, out),
        env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(profile: dict[str, Any], out: Path) -> None:
    """Run a profile's command to the end."""
    process = start(profile, out)
    _, errors = process.communicate(timeout=900)
    if process.returncode:
        raise AssertionError(f"exit status {process.returncode}: {errors}")


def metrics(run: Path) -> list[dict[str, Any]]:
    """The whole lines of a run's log."""
    path = run / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith(b"\n")]


def digest(run: Path) -> str:
    """A hash of all that a run leaves behind, without the times of the clock on the wall."""
    saved = checkpoint.load(run)
    if saved is None:
        raise AssertionError(f"{run} has no checkpoint")
    total = hashlib.sha256(f"decision {saved.decision}".encode())
    segments = [load_file(run / "replay" / segment["name"]) for segment in saved.segments]
    stored = {k: torch.cat([s[k] for s in segments]) for k in segments[0] if k != "span"}
    for name, tensor in sorted({**saved.agent, **stored}.items()):
        flat = tensor.contiguous().reshape(-1).view(torch.uint8)
        total.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        total.update(flat.numpy().data)
    for part in (saved.state, metrics(run)):
        total.update(json.dumps(timeless(part), sort_keys=True).encode())
    return total.hexdigest()


def timeless(value: Any) -> Any:
    """JSON without the values of the clock on the wall."""
    if isinstance(value, dict):
        return {k: timeless(v) for k, v in value.items() if k not in WALL_CLOCK}
    return [timeless(v) for v in value] if isinstance(value, list) else value


def left_behind(run: Path) -> list[str]:
    """Half-written files."""
    return [str(path) for path in run.rglob(".*")]


NO_FILMS = "this ffmpeg was built without libx264: no videos can be made"


def can_film() -> bool:
    """Whether this machine's ffmpeg can make the videos that some parts damage."""
    from svea.data import ffmpeg

    try:
        ffmpeg.encoder()
    except ffmpeg.FfmpegError:
        return False
    return True
