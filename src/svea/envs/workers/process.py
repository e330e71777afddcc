"""The other end of ``svea.envs.workers.pool``: one process, its environments, one loop."""

import contextlib
import dataclasses
import faulthandler
import functools
import json
import math
import os
import signal
import socket
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np

from svea.config.parts import Parts
from svea.core import given
from svea.core.errors import NumericsError
from svea.core.importing import where_raised
from svea.envs import make_env
from svea.envs.dmc import DMControlEnv, as_action, describe_actions
from svea.envs.looks import provenance_of
from svea.envs.rendering.context import SharedContext
from svea.envs.rendering.renderer import configure_drawing
from svea.envs.stacking import describe_observations
from svea.envs.workers.worker import Shared


def main(own_end: str, stacks: str) -> None:
    """Serve commands until the socket closes."""
    last_words = os.fdopen(int(stacks), "wb", buffering=0)
    faulthandler.enable(last_words)  # a crash in native code leaves its stack there
    faulthandler.register(signal.SIGUSR1, last_words)  # and so does a hang, when asked
    for number in (signal.SIGINT, signal.SIGTERM):  # they are the parent's to handle
        signal.signal(number, signal.SIG_IGN)
    with socket.socket(fileno=int(own_end)) as end, contextlib.suppress(ConnectionError):
        lines = end.makefile("rb")
        tell(end, drawing=False)  # from now on, the signal for a stack does not end this process
        greeting = json.loads(lines.readline())
        given.unpack(greeting["given"])
        serve(end, lines, greeting["first"], greeting["environments"], greeting["count"])


def serve(
    end: socket.socket, lines: Any, first: int, settings: list[dict[str, Any]], count: int
) -> None:
    """Make the environments, share memory, and obey; several environments share a GL context."""
    shared_context = SharedContext(len(settings)) if len(settings) > 1 else None
    configure_drawing(shared_context, lambda: tell(end, drawing=True))
    environments: dict[int, Any] = {}

    def introduce(index: int, arguments: dict[str, Any]) -> dict[str, Any]:
        # Episodes have seeds of their own; this one is for a user's function that takes a seed.
        environments[index] = make_env(**{"seed": 0} | arguments)
        tell(end, drawing=False)  # the next one may take its time until its first picture
        return describe(environments[index])

    specs = [attempt(index, introduce, index, one) for index, one in enumerate(settings, first)]
    tell(end, answers=specs)
    message, files, _, _ = socket.recv_fds(end, 1, 1)
    if not message:  # the parent gave up while we were starting
        return
    shape, actions, parts = (specs[0][name] for name in ("observation", "actions", "parts"))
    shared = Shared(files[0], count, shape, actions, Parts.read(parts))
    os.close(files[0])
    for line in lines:
        tasks = [
            functools.partial(attempt, index, obey, environments[index], shared, index, command)
            for index, command in json.loads(line)
        ]
        answers = shared_context.run(tasks) if shared_context else [task() for task in tasks]
        tell(end, answers=answers)
        if any("error" in answer for answer in answers):
            return  # the parent will not ask these environments again
    for environment in environments.values():
        environment.close()
    if shared_context:
        shared_context.close()


def attempt(index: int, work: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """What an environment answers; everything it raises reaches the user through the parent."""
    try:
        return work(*arguments)
    except Exception as error:
        return {
            "environment": index,
            "error": type(error).__name__,
            "message": str(error),
            "where": where_raised(error),
            "trace": traceback.format_exc(),
        }


def describe(environment: Any) -> dict[str, Any]:
    """The environment's spaces, and what its pictures are made with."""
    if isinstance(environment.unwrapped, DMControlEnv):
        environment.reset(seed=0)  # now it knows who draws its look
    actions, choices = describe_actions(environment.action_space)
    shape, parts = describe_observations(environment)
    return {
        "observation": shape,
        "parts": dataclasses.asdict(parts),
        "actions": actions,
        "choices": choices,
        "provenance": provenance_of(environment),
    }


def obey(environment: Any, shared: Shared, index: int, command: dict[str, Any]) -> dict[str, Any]:
    """Execute a command: a step, or the given actions of an episode from its beginning."""
    if command["do"] == "step":
        return step(environment, shared, index, command["next_seed"])
    seen, _ = environment.reset(seed=command["seed"], options=command.get("options"))
    for action in command["actions"]:
        seen, *_ = environment.step(as_action(environment, action))
    shared.observations[index] = shared.parts.pack(seen)
    return {}


def step(environment: Any, shared: Shared, index: int, next_seed: int | None) -> dict[str, Any]:
    """One decision; at an episode's end also the next episode's first observation."""
    action = as_action(environment, shared.actions[index].copy())
    seen, reward, terminated, truncated, info = environment.step(action)
    if not math.isfinite(reward):
        raise NumericsError(f"the reward of environment {index} is {reward}; it must be finite")
    pack = shared.parts.pack
    shared.observations[index] = seen = pack(seen)
    if terminated or truncated:
        shared.finals[index] = seen
        if next_seed is not None:
            shared.observations[index] = pack(environment.reset(seed=next_seed)[0])
    values = ((k, v.item() if isinstance(v, np.generic) else v) for k, v in info.items())
    plain = {key: value for key, value in values if isinstance(value, int | float | str | bool)}
    return {
        "reward": float(reward),
        "terminated": bool(terminated),
        "truncated": bool(truncated),
        "info": plain,
    }


def tell(end: socket.socket, **answer: Any) -> None:
    """Send a line to the parent."""
    end.sendall(json.dumps(answer).encode() + b"\n")
