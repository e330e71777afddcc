"""The other end of ``svea.envs.vector``: one environment, one process, one loop."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import math
import os
import signal
import socket
import sys
import traceback
from typing import Any

import gymnasium as gym
import numpy as np

from svea.envs import make_env, rendering
from svea.envs.vector import COUNT_FORMAT, Shared
from svea.errors import NumericsError


def main() -> None:
    """Serve commands until the socket closes."""
    end_with_parent()
    last_words = os.fdopen(int(sys.argv[2]), "wb", buffering=0)
    faulthandler.enable(last_words)  # a crash in native code leaves its stack there
    faulthandler.register(signal.SIGUSR1, last_words)  # and so does a hang, when asked
    for number in (signal.SIGINT, signal.SIGTERM):  # they are the parent's to handle
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as end, contextlib.suppress(BrokenPipeError):
        lines = end.makefile("rb")
        greeting = json.loads(lines.readline())
        try:
            serve(end, lines, greeting)
        except Exception as error:  # everything reaches the user through the parent
            tell(
                end,
                error=type(error).__name__,
                message=str(error),
                trace="".join(traceback.format_exc()),
            )


def serve(end: socket.socket, lines: Any, greeting: dict[str, Any]) -> None:
    """Make the environment, share memory, and obey."""
    rendering.before_first_picture = lambda: tell(end, drawing=True)
    environment = make_env(**greeting["environment"])
    index = greeting["index"]
    shape = list(environment.observation_space.shape or ())
    actions, choices = describe_actions(environment.action_space)
    provenance = getattr(environment.unwrapped, "provenance", {})
    tell(end, observation=shape, actions=actions, choices=choices, provenance=provenance)
    message, files, _, _ = socket.recv_fds(end, COUNT_FORMAT.size, 1)
    if not message:  # the parent gave up while we were starting
        return
    shared = Shared(files[0], COUNT_FORMAT.unpack(message)[0], shape, actions)
    os.close(files[0])
    observation = shared.observations[index]
    for line in lines:
        command = json.loads(line)
        if command["do"] == "reset":
            observation[:], _ = environment.reset(seed=command["seed"])
            tell(end)
        elif command["do"] == "replay":
            observation[:], _ = environment.reset(seed=command["seed"])
            for action in command["actions"]:
                observation[:], *_ = environment.step(as_action(environment, action))
            tell(end)
        else:
            answer = step(environment, shared, index, command["next_seed"])
            tell(end, **answer)
    environment.close()


def step(environment: Any, shared: Shared, index: int, next_seed: int | None) -> dict[str, Any]:
    """One decision; at an episode's end also the next episode's first observation."""
    action = as_action(environment, shared.actions[index].copy())
    seen, reward, terminated, truncated, info = environment.step(action)
    if not math.isfinite(reward):
        raise NumericsError(f"the reward of environment {index} is {reward}; it must be finite")
    shared.observations[index] = seen
    if terminated or truncated:
        shared.finals[index] = seen
        if next_seed is not None:
            shared.observations[index], _ = environment.reset(seed=next_seed)
    plain = {
        key: value for key, value in info.items() if isinstance(value, int | float | str | bool)
    }
    return {
        "reward": float(reward),
        "terminated": bool(terminated),
        "truncated": bool(truncated),
        "info": plain,
    }


def describe_actions(space: gym.Space[Any]) -> tuple[int, int]:
    """Numbers in an action, and choices if it is one of several (0: a vector in [-1, 1])."""
    if isinstance(space, gym.spaces.Discrete):
        return 1, int(space.n)
    return int(np.prod(space.shape or ())), 0


def as_action(environment: Any, action: Any) -> Any:
    """What the environment's ``step`` takes, from the numbers that lie in shared memory."""
    if isinstance(environment.action_space, gym.spaces.Discrete):
        return int(environment.action_space.start) + int(action[0])
    return np.asarray(action, np.float32)


def tell(end: socket.socket, **answer: Any) -> None:
    """Send a line to the parent."""
    end.sendall(json.dumps(answer).encode() + b"\n")


def end_with_parent() -> None:
    """Ask the kernel to end this process when its parent dies; elsewhere the socket's end does."""
    if sys.platform == "linux":
        parent_death_signal = 1
        ctypes.CDLL(None).prctl(parent_death_signal, signal.SIGKILL)


if __name__ == "__main__":
    main()
