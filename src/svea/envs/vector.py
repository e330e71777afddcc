"""Environments in processes of their own, stepping while the learner learns.

Each worker is a fresh interpreter (``python -m svea.envs.worker``), never a fork: a fork would copy
GL and CUDA contexts and deadlock, and a multiprocessing spawn would re-run the user's script.
Observations and actions lie in memory that all processes share (an anonymous file, so nothing is
left behind); commands and rewards are lines of JSON over a socket pair. A worker ends when its
socket closes or its parent dies.

An episode is a function of its seed and its actions. So a worker keeps no state worth saving: to
resume, it replays the episode.
"""

from __future__ import annotations

import json
import mmap
import os
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from svea.errors import NumericsError, RendererError, SveaError, UserError, WorkerError

START_SECONDS = 120.0  # import, compile and first frame; software GL on a busy machine is slow
STEP_SECONDS = 60.0
COUNT_FORMAT = struct.Struct("<q")  # of fixed size, so that reading it takes nothing that follows
_RAISED = {kind.__name__: kind for kind in (UserError, RendererError, NumericsError)}


@dataclass(frozen=True)
class Step:
    """What one environment answered."""

    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]

    @property
    def done(self) -> bool:
        """Whether the episode ended with this step."""
        return self.terminated or self.truncated


class Shared:
    """Views into the shared memory: observations, last observations of ended episodes, actions."""

    def __init__(self, file: int, count: int, shape: Sequence[int], actions: int) -> None:
        pixels = count * int(np.prod(shape))
        self._map = mmap.mmap(file, self.size(count, shape, actions))
        self.observations = np.frombuffer(self._map, np.uint8, pixels).reshape(count, *shape)
        self.finals = np.frombuffer(self._map, np.uint8, pixels, pixels).reshape(count, *shape)
        self.actions = np.frombuffer(
            self._map, np.float32, count * actions, self._aligned(2 * pixels)
        ).reshape(count, actions)

    @classmethod
    def size(cls, count: int, shape: Sequence[int], actions: int) -> int:
        """Bytes needed."""
        return cls._aligned(2 * count * int(np.prod(shape))) + count * actions * 4

    @staticmethod
    def _aligned(size: int) -> int:
        return (size + 3) // 4 * 4


class Workers:
    """A set of environment processes.

    Example:
        >>> workers = Workers([{"task": "walker_walk", "image_size": 48}] * 2)  # doctest: +SKIP
        >>> observations = workers.reset([0, 1])  # doctest: +SKIP
        >>> workers.send(actions, next_seeds=[2, 3])  # doctest: +SKIP
        >>> ...  # learn something meanwhile  # doctest: +SKIP
        >>> steps = workers.receive()  # doctest: +SKIP
    """

    def __init__(self, environments: Sequence[dict[str, Any]]) -> None:
        """Start one process for each set of ``make_env`` arguments, all at once."""
        self._processes: list[subprocess.Popen[bytes]] = []
        self._lines: list[Any] = []
        self._sockets: list[socket.socket] = []
        self._waiting: list[int] = []
        try:
            for environment in environments:
                self._start(environment)
            specs = [self._answer(index, START_SECONDS) for index in range(len(environments))]
            self._share(specs)
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        """How many environments."""
        return len(self._processes)

    def __enter__(self) -> Workers:
        """Use as a context, so that no process outlives it."""
        return self

    def __exit__(self, *exception: object) -> None:
        """Stop every process."""
        self.close()

    @property
    def observations(self) -> NDArray[np.uint8]:
        """The current observations (N, 9, H, W), in shared memory: copy before the next send."""
        return self._shared.observations

    @property
    def finals(self) -> NDArray[np.uint8]:
        """Last observations of episodes that ended with the last step (valid where done)."""
        return self._shared.finals

    def reset(self, seeds: Sequence[int], indices: Sequence[int] | None = None) -> None:
        """Start an episode from each seed, in all environments or in some."""
        indices = range(len(self)) if indices is None else indices
        for index, seed in zip(indices, seeds, strict=True):
            self._tell(index, {"do": "reset", "seed": seed})
        for index in indices:
            self._answer(index, START_SECONDS)

    def replay(self, index: int, seed: int, actions: list[list[float]]) -> None:
        """Bring an environment into the middle of an episode, by playing it again."""
        self._tell(index, {"do": "replay", "seed": seed, "actions": actions})
        self._answer(index, START_SECONDS + STEP_SECONDS * (1 + len(actions) / 100))

    def send(
        self,
        actions: NDArray[np.float32],
        next_seeds: Sequence[int | None],
        indices: Sequence[int] | None = None,
    ) -> None:
        """Let environments step. One that ends its episode starts the next from its next seed.

        With None as next seed it stays at the end of the episode.
        """
        indices = list(range(len(self)) if indices is None else indices)
        for index, action, seed in zip(indices, actions, next_seeds, strict=True):
            self._shared.actions[index] = action
            self._tell(index, {"do": "step", "next_seed": seed})
        self._waiting = indices

    def receive(self) -> list[Step]:
        """Wait for the steps that were sent."""
        answers = [self._answer(index, STEP_SECONDS) for index in self._waiting]
        self._waiting = []
        return [Step(**answer) for answer in answers]

    def close(self) -> None:
        """Stop every process: closing the socket is the request, a kill the last word."""
        for line in self._lines:
            line.close()
        for end in self._sockets:
            end.close()
        for process in self._processes:
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes, self._lines, self._sockets = [], [], []

    def _start(self, environment: dict[str, Any]) -> None:
        """Start a worker and tell it what to be."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "svea.envs.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                process_group=0,  # a terminal's Ctrl-C is for the parent, which saves first
                env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            )
        self._processes.append(process)
        self._sockets.append(ours)
        self._lines.append(ours.makefile("rb"))
        self._tell(len(self) - 1, {"environment": environment, "index": len(self) - 1})

    def _share(self, specs: list[dict[str, Any]]) -> None:
        """Make the shared memory, now that the spaces are known, and hand it to every worker."""
        self.provenance = specs[0].pop("provenance")  # what data the pictures are made with
        spaces = [(spec["observation"], spec["actions"]) for spec in specs]
        if any(other != spaces[0] for other in spaces):
            raise UserError(f"environments of one set differ in their spaces: {spaces}")
        shape, actions = specs[0]["observation"], specs[0]["actions"]
        self.observation_shape, self.action_size = tuple(shape), int(actions)
        with (
            tempfile.TemporaryFile()
            if not hasattr(os, "memfd_create")
            else os.fdopen(os.memfd_create("svea-environments"), "r+b") as file
        ):
            file.truncate(Shared.size(len(self), shape, actions))
            self._shared = Shared(file.fileno(), len(self), shape, actions)
            for end in self._sockets:
                socket.send_fds(end, [COUNT_FORMAT.pack(len(self))], [file.fileno()])

    def _tell(self, index: int, message: dict[str, Any]) -> None:
        """Send a line to a worker."""
        try:
            self._sockets[index].sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            raise self._death(index) from None

    def _answer(self, index: int, seconds: float) -> dict[str, Any]:
        """Wait for a worker's line; raise what it raised."""
        self._sockets[index].settimeout(seconds)
        try:
            line = self._lines[index].readline()
        except TimeoutError:
            raise WorkerError(
                f"environment {index} (process {self._processes[index].pid}) did not answer in "
                f"{seconds:.0f} s. Is the machine overloaded, or its renderer stuck?"
            ) from None
        except OSError:
            raise self._death(index) from None
        if not line:
            raise self._death(index)
        answer = json.loads(line)
        if "error" in answer:
            raise self._raised(index, answer)
        return answer

    def _raised(self, index: int, answer: dict[str, Any]) -> SveaError:
        """The error that a worker reports, in its own class where it is one of ours."""
        if answer["error"] in _RAISED:
            return _RAISED[answer["error"]](answer["message"])
        return WorkerError(
            f"environment {index} raised {answer['error']}: {answer['message']}\n{answer['trace']}"
        )

    def _death(self, index: int) -> WorkerError:
        """What to say of a worker that is gone."""
        try:
            status: int | None = self._processes[index].wait(timeout=2)
        except subprocess.TimeoutExpired:
            status = None
        how = f"signal {-status}" if status is not None and status < 0 else f"exit status {status}"
        return WorkerError(
            f"environment {index} (process {self._processes[index].pid}) died with {how}. If the "
            "machine ran out of memory, use fewer environments (--envs)"
        )
