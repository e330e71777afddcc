"""Environments in processes of their own, stepping while the learner learns.

Each worker is a fresh interpreter (``python -m svea.envs.worker``), never a fork: a fork would copy
GL and CUDA contexts and deadlock, and a multiprocessing spawn would re-run the user's script.
Observations and actions lie in memory that all processes share (an anonymous file, so nothing is
left behind); commands and rewards are lines of JSON over a socket pair. A worker ends when its
socket closes or its parent dies.

An episode is a function of its seed and its actions. So a worker keeps no state worth saving: to
resume, it replays the episode. In the same way a worker that dies or hangs is replaced by another
one, which plays the open episode again and carries on: nobody can tell from the results.
"""

from __future__ import annotations

import contextlib
import json
import math
import mmap
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from svea.envs import rendering
from svea.errors import NumericsError, RendererError, SveaError, UserError, WorkerError

START_SECONDS = 120.0  # import and compile, on a busy machine
HANG_SECONDS = 30.0  # a decision that takes longer is never answered
CLOSE_SECONDS = 5.0
RESTARTS, RESTART_SECONDS = 5, 600.0  # at most so many restarts in so long a time
COUNT_FORMAT = struct.Struct("<q")  # of fixed size, so that reading it takes nothing that follows
_RAISED = {kind.__name__: kind for kind in (UserError, RendererError, NumericsError)}


class RaisedError(WorkerError):
    """An exception in an environment's own code."""


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


@dataclass
class Worker:
    """One environment's process, and what it takes to put another one in its place."""

    environment: dict[str, Any]  # arguments of make_env
    process: subprocess.Popen[bytes]
    socket: socket.socket
    lines: Any
    last_words: IO[bytes]  # where the process writes the stack of a crash
    ready: bool = False  # it has described its spaces
    pending: dict[str, Any] = field(default_factory=dict)  # the command it has not answered yet
    seed: int | None = None  # of the open episode
    actions: list[list[float]] = field(default_factory=list)  # answered ones of the open episode


class Workers:
    """A set of environment processes.

    A process that dies, hangs or raises is replaced, at most `RESTARTS` times in `RESTART_SECONDS`;
    `on_incident` hears of it. An exception that comes back in the replacement is a mistake in the
    environment and ends the run.

    Example:
        >>> workers = Workers([{"task": "walker_walk", "image_size": 48}] * 2)  # doctest: +SKIP
        >>> observations = workers.reset([0, 1])  # doctest: +SKIP
        >>> workers.send(actions, next_seeds=[2, 3])  # doctest: +SKIP
        >>> ...  # learn something meanwhile  # doctest: +SKIP
        >>> steps = workers.receive()  # doctest: +SKIP
    """

    def __init__(
        self,
        environments: Sequence[dict[str, Any]],
        on_incident: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        """Start one process for each set of ``make_env`` arguments, all at once.

        Args:
            environments: the arguments, one set per process.
            on_incident: called with a record of each restart and each simulation that diverged;
                prints a warning if None.
        """
        self.on_incident = on_incident or print_incident
        self._workers: list[Worker] = []
        self._waiting: list[int] = []
        self._restarts: list[float] = []  # when they were
        self._memory: IO[bytes] | None = None
        try:
            try:
                specs = self._start_all(environments)
            except RendererError as error:
                for worker in self._workers:
                    worker.process.kill()  # a stuck driver hears no request
                if not rendering.can_fall_back():
                    raise
                rendering.fall_back()
                print(f"warning: {error} Drawing with OSMesa (in software).", file=sys.stderr)
                self.close()
                specs = self._start_all(environments)
            self._share(specs)
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        """How many environments."""
        return len(self._workers)

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

    @property
    def pids(self) -> list[int]:
        """The processes."""
        return [worker.process.pid for worker in self._workers]

    def reset(self, seeds: Sequence[int], indices: Sequence[int] | None = None) -> None:
        """Start an episode from each seed, in all environments or in some."""
        indices = range(len(self)) if indices is None else indices
        for index, seed in zip(indices, seeds, strict=True):
            self._tell(index, {"do": "reset", "seed": seed})
        for index, seed in zip(indices, seeds, strict=True):
            self._answer(index, START_SECONDS)
            self._workers[index].seed, self._workers[index].actions = seed, []

    def replay(self, index: int, seed: int, actions: list[list[float]]) -> None:
        """Bring an environment into the middle of an episode, by playing it again."""
        self._tell(index, {"do": "replay", "seed": seed, "actions": actions})
        self._answer(index, _replay_seconds(actions))
        self._workers[index].seed, self._workers[index].actions = seed, list(actions)

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
        if not np.isfinite(actions).all():
            raise NumericsError(
                f"an action is not finite ({np.asarray(actions).tolist()}): the policy's weights "
                "have diverged. The last checkpoint is from before"
            )
        for index, action, seed in zip(indices, actions, next_seeds, strict=True):
            self._shared.actions[index] = action
            self._tell(index, {"do": "step", "next_seed": seed})
        self._waiting = indices

    def receive(self) -> list[Step]:
        """Wait for the steps that were sent."""
        waiting, self._waiting = self._waiting, []
        return [self._receive(index) for index in waiting]

    def close(self) -> None:
        """Stop every process: closing the socket is the request, a kill the last word."""
        for worker in self._workers:
            worker.lines.close()
            worker.socket.close()
            worker.last_words.close()
        deadline = time.monotonic() + CLOSE_SECONDS
        for worker in self._workers:
            try:
                worker.process.wait(timeout=max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
        self._workers = []
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    # Starting ----------------------------------------------------------------------------------

    def _start_all(self, environments: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Start every process, and return how they describe their spaces."""
        for index, environment in enumerate(environments):
            self._workers.append(self._start(index, environment))
        specs = [self._answer(index, START_SECONDS) for index in range(len(self))]
        for worker in self._workers:
            worker.ready = True
        return specs

    def _start(self, index: int, environment: dict[str, Any]) -> Worker:
        """Start a process and tell it what to be."""
        ours, theirs = socket.socketpair()
        last_words = _anonymous_file("svea-last-words")
        with theirs:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "svea.envs.worker"),
                    *(str(theirs.fileno()), str(last_words.fileno())),
                ],
                pass_fds=[theirs.fileno(), last_words.fileno()],
                stdin=subprocess.DEVNULL,
                process_group=0,  # a terminal's Ctrl-C is for the parent, which saves first
                env=os.environ
                | rendering.environment_of_workers()
                | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            )
        _send_line(ours, {"environment": environment, "index": index})
        return Worker(environment, process, ours, ours.makefile("rb"), last_words)

    def _share(self, specs: list[dict[str, Any]]) -> None:
        """Make the shared memory, now that the spaces are known, and hand it to every worker."""
        self.provenance = specs[0].pop("provenance")  # what data the pictures are made with
        spaces = [(spec["observation"], spec["actions"], spec["choices"]) for spec in specs]
        if any(other != spaces[0] for other in spaces):
            raise UserError(f"environments of one set differ in their spaces: {spaces}")
        shape, actions = specs[0]["observation"], specs[0]["actions"]
        self.observation_shape, self.action_size = tuple(shape), int(actions)
        self.choices = int(specs[0]["choices"])  # of a discrete action; 0: a vector in [-1, 1]
        self._memory = _anonymous_file("svea-environments")
        self._memory.truncate(Shared.size(len(self), shape, actions))
        self._shared = Shared(self._memory.fileno(), len(self), shape, actions)
        for worker in self._workers:
            self._hand_memory(worker)

    def _hand_memory(self, worker: Worker) -> None:
        """Send the shared memory to a process."""
        assert self._memory is not None
        with contextlib.suppress(OSError):
            socket.send_fds(worker.socket, [COUNT_FORMAT.pack(len(self))], [self._memory.fileno()])

    # Talking -----------------------------------------------------------------------------------

    def _tell(self, index: int, command: dict[str, Any]) -> None:
        """Send a command, and remember it for the case that the process dies of it."""
        self._workers[index].pending = command
        _send_line(self._workers[index].socket, command)

    def _receive(self, index: int) -> Step:
        """Wait for one step, and note it as a part of the open episode."""
        step = Step(**self._answer(index, HANG_SECONDS))
        worker = self._workers[index]  # only now: it may be another one than was asked
        next_seed = worker.pending["next_seed"]
        if step.done and next_seed is not None:
            worker.seed, worker.actions = next_seed, []
        else:
            worker.actions.append(self._shared.actions[index].tolist())
        if "physics_error" in step.info:
            cause = str(step.info["physics_error"])
            self.on_incident(
                {"what": "episode ended by its physics", "environment": index, "cause": cause}
            )
        return step

    def _answer(self, index: int, seconds: float) -> dict[str, Any]:
        """Wait for a worker's answer, if need be from another process in its place."""
        failure: WorkerError | None = None
        while True:
            try:
                if failure is not None:
                    self._replace(index)
                return self._read(index, seconds)
            except WorkerError as error:
                self._account_for(index, error, failure)
                failure = error

    def _account_for(self, index: int, error: WorkerError, before: WorkerError | None) -> None:
        """Decide whether a failure may be mended; raise it if not."""
        same = str(error) == str(before)  # an accident does not happen twice in the same words
        if isinstance(error, RaisedError) and (same or not self._workers[index].ready):
            raise error
        now = time.monotonic()
        self._restarts = [then for then in self._restarts if now - then < RESTART_SECONDS]
        if len(self._restarts) >= RESTARTS:
            spent = WorkerError(
                f"{str(error).rstrip(':. ')}. Processes were restarted {RESTARTS} times in "
                f"{RESTART_SECONDS / 60:.0f} minutes"
            )
            for note in getattr(error, "__notes__", []):
                spent.add_note(note)
            raise spent from error
        self._restarts.append(now)
        self.on_incident(
            {
                "what": "worker restarted",
                "environment": index,
                "cause": str(error),
                "restart": len(self._restarts),
                "details": "\n".join(getattr(error, "__notes__", [])),
            }
        )

    def _replace(self, index: int) -> None:
        """Put a new process in the place of a dead one, bring it as far, and ask it again."""
        old = self._workers[index]
        old.process.kill()
        old.process.wait()
        for end in (old.lines, old.socket, old.last_words):
            end.close()
        new = self._workers[index] = self._start(index, old.environment)
        new.pending, new.seed, new.actions, new.ready = (
            old.pending, old.seed, old.actions, old.ready,
        )  # fmt: skip
        if not new.ready:
            return
        self._read(index, START_SECONDS)
        self._hand_memory(new)
        if new.pending["do"] == "step":
            _send_line(new.socket, {"do": "replay", "seed": new.seed, "actions": new.actions})
            self._read(index, _replay_seconds(new.actions))
        _send_line(new.socket, new.pending)

    def _read(self, index: int, seconds: float) -> dict[str, Any]:
        """Read a worker's line; raise what it raised, or what became of it."""
        worker, drawing = self._workers[index], False
        while True:
            worker.socket.settimeout(seconds)
            try:
                line = worker.lines.readline()
            except TimeoutError:
                if drawing and not worker.ready:
                    raise RendererError(
                        f"environment {index}: no first picture in {seconds:.0f} s; the OpenGL "
                        "driver is stuck. Set MUJOCO_GL=osmesa to draw in software."
                    ) from None
                raise self._hang(index, seconds) from None
            except OSError:
                raise self._death(index) from None
            if not line:
                raise self._death(index)
            answer = json.loads(line)
            if "error" in answer:
                raise self._raised(index, answer)
            if "drawing" not in answer:
                return answer
            drawing = True
            if rendering.can_fall_back():  # else only patience is left
                seconds = min(seconds, rendering.FIRST_PICTURE_SECONDS)

    def _raised(self, index: int, answer: dict[str, Any]) -> SveaError:
        """The error that a worker reports, in its own class where it is one of ours."""
        if answer["error"] in _RAISED:
            return _RAISED[answer["error"]](answer["message"])
        error = RaisedError(f"environment {index} raised {answer['error']}: {answer['message']}")
        error.add_note(answer["trace"])
        return error

    def _hang(self, index: int, seconds: float) -> WorkerError:
        """What to say of a worker that does not answer, with where it is stuck if it can tell."""
        process = self._workers[index].process
        with contextlib.suppress(OSError):
            process.send_signal(signal.SIGUSR1)  # asks for its stack
            time.sleep(0.5)
        error = WorkerError(
            f"environment {index} (process {process.pid}) did not answer in {seconds:.0f} s. Is "
            "the machine overloaded, or the renderer stuck?"
        )
        self._add_last_words(error, index)
        return error

    def _death(self, index: int) -> WorkerError:
        """What to say of a worker that is gone."""
        process = self._workers[index].process
        try:
            status: int | None = process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            status = None
        how = f"signal {-status}" if status is not None and status < 0 else f"exit status {status}"
        error = WorkerError(
            f"environment {index} (process {process.pid}) died with {how}. If the machine ran out "
            "of memory, use fewer environments (--envs)."
        )
        self._add_last_words(error, index)
        return error

    def _add_last_words(self, error: WorkerError, index: int) -> None:
        """Add the stack that a crashing process wrote."""
        file = self._workers[index].last_words
        file.seek(0)
        if said := file.read(16_384).decode(errors="replace").strip():
            error.add_note(said)


def print_incident(incident: dict[str, Any]) -> None:
    """One line about something that went wrong and was mended."""
    mended = (
        f"Restarted, and its episode played again ({incident['restart']} of {RESTARTS} restarts "
        f"in {RESTART_SECONDS / 60:.0f} minutes)."
        if "restart" in incident
        else "The next episode begins."
    )
    print(f"warning: {incident['cause'].rstrip(':. ')}. {mended}", file=sys.stderr)


def _send_line(end: socket.socket, message: dict[str, Any]) -> None:
    """Send one line of JSON; whether the process is gone or stuck, reading its answer will tell."""
    end.settimeout(HANG_SECONDS)
    with contextlib.suppress(OSError):
        end.sendall(json.dumps(message).encode() + b"\n")


def _replay_seconds(actions: list[list[float]]) -> float:
    """How long playing an episode again may take."""
    return START_SECONDS + HANG_SECONDS * math.ceil(len(actions) / 50)


def _anonymous_file(name: str) -> IO[bytes]:
    """A file without a place, so that nothing of it is left behind."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create(name), "r+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)
