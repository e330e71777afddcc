"""The tiny runs that faults are tried on, and what this machine can try."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from tiny_runs import TINY
from whole_runs import digest

from svea.config import Config, configure

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


def flags(profile: dict[str, Any]) -> list[str]:
    """A profile's options as a command line has them."""
    words = []
    for name, value in profile.items():
        inner = value if isinstance(value, dict) else {"": value}
        for key, given in inner.items() if name != "task" else ():
            flag = f"--{name}.{key}".rstrip(".").replace("_", "-")
            words += [flag] if given is True else [flag, str(given)]
    return words


def command(profile: dict[str, Any], out: Path) -> list[str]:
    """What follows `svea` in a profile's command."""
    return ["train", profile["task"], "--out", str(out), *flags(profile)]


def start(profile: dict[str, Any], out: Path) -> subprocess.Popen[str]:
    """Run a profile's command."""
    return subprocess.Popen(
        [sys.executable, "-m", "svea", *command(profile, out)],
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


_KNOWN: dict[Path, tuple[str, float]] = {}


def reference(profile: dict[str, Any], folder: Path) -> tuple[str, float]:
    """Digest and seconds of a run that nobody interrupts, made once for a folder."""
    run = folder / f"whole-{profile['task'].replace(':', '-')}"
    if run not in _KNOWN:
        began = time.monotonic()
        finish(profile, run)
        _KNOWN[run] = digest(run), time.monotonic() - began
    return _KNOWN[run]


def left_behind(run: Path) -> list[str]:
    """Half-written files."""
    return [str(path) for path in run.rglob(".*")]


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[1]) == pid:
            found.append(int(stat.parent.name))
    return found


def memory(pid: int | str = "self", name: str = "VmRSS") -> int:
    """A size that the kernel knows of a process, in KB; 0 when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(name)), 0)


def no_gpu() -> str:
    """Why no GPU can be used."""
    return "" if torch.cuda.is_available() else "no NVIDIA GPU here"


def no_films() -> str:
    """Why no videos can be made."""
    from svea.data import ffmpeg

    try:
        ffmpeg.encoder()
    except ffmpeg.FfmpegError:
        return "this ffmpeg was built without libx264: no videos can be made"
    return ""


def no_pictures() -> str:
    """Why the simulator cannot draw."""
    from svea.core.errors import SveaError
    from svea.envs import prepare_simulator

    try:
        prepare_simulator()
    except (ImportError, SveaError):
        return "no OpenGL library here"
    return ""
