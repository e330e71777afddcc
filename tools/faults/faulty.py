"""The toy environment with faults in it: task ``faults.faulty:make``.

The variable ``SVEA_FAULTS`` names a JSON file with a list of faults: the seed of an episode, the
decision in it, and what happens then, once. Each fault marks that it has happened in a file beside
the list, before it does, so that another process in the same place goes on.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import time
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from toy import Toy

KINDS = ("kill", "segfault", "exit", "raise", "memory", "stop", "hang")


class Faulty(Toy):
    """A toy that fails by a plan."""

    def __init__(self, image_size: int) -> None:
        super().__init__(image_size)
        self.list = Path(os.environ["SVEA_FAULTS"])
        self.faults = json.loads(self.list.read_text())
        self.episode: int | None = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.episode = seed
        return super().reset(seed=seed, options=options)

    def step(self, action: Any) -> Any:
        for number, (seed, clock, kind) in enumerate(self.faults):
            mark = self.list.with_name(f"{self.list.stem}-{number}")
            if (seed, clock) == (self.episode, self.clock) and not mark.exists():
                mark.touch()
                happen(kind)
        return super().step(action)


def happen(kind: str) -> None:
    """Fail, or be slow."""
    if kind == "raise":
        raise RuntimeError(f"an accident in process {os.getpid()}")
    if kind == "memory":
        held = 2**30
        resource.setrlimit(resource.RLIMIT_AS, (held, held))
        bytearray(2 * held)
    if kind == "exit":
        os._exit(7)
    if kind in ("hang", "slow"):
        time.sleep(3600 if kind == "hang" else 2)
        return
    numbers = {"kill": signal.SIGKILL, "segfault": signal.SIGSEGV, "stop": signal.SIGSTOP}
    os.kill(os.getpid(), numbers[kind])


def make(image_size: int = 16) -> Faulty:
    """The environment."""
    return Faulty(image_size)


class Undefined(Toy):
    """A toy that shows floats, and answers NaN or infinity at one decision of one episode."""

    def __init__(self, image_size: int) -> None:
        super().__init__(image_size)
        self.observation_space = gym.spaces.Box(0, 1, (3, image_size, image_size), np.float32)
        self.what, self.seed, self.when, bad = json.loads(os.environ["SVEA_FAULTS"])
        self.bad, self.episode = float(bad), None

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.episode = seed
        seen, info = super().reset(seed=seed, options=options)
        return self.floats(seen), info

    def step(self, action: Any) -> Any:
        now = (self.episode, self.clock) == (self.seed, self.when)
        seen, reward, terminated, truncated, info = super().step(action)
        picture = self.floats(seen)
        if now and self.what == "reward":
            reward = self.bad
        if now and self.what == "observation":
            picture[1, 2, 3] = self.bad
        return picture, reward, terminated, truncated, info

    def floats(self, seen: Any) -> Any:
        """The newest frame in [0, 1]."""
        return (seen[-3:] / 255).astype(np.float32)


def make_undefined(image_size: int = 16) -> Undefined:
    """The environment that answers NaN."""
    return Undefined(image_size)
