"""Environments in processes of their own, stepping while the learner learns.

Each worker is a fresh interpreter (``python -m svea.envs.workers.process``), never a fork: a fork
would copy GL and CUDA contexts and deadlock, and a multiprocessing spawn would re-run the user's
script. Observations and actions lie in memory that all processes share (an anonymous file, so
nothing is left behind); commands and rewards are lines of JSON over a socket pair. A worker ends
when its socket closes or its parent dies.

A worker hosts one environment, or several that draw their pictures together
(``svea.envs.rendering.shared``): it gets one line with a command for some of them, and answers with
one line when all are done.

An episode is a function of its seed and its actions. So a worker keeps no state worth saving: to
resume, it replays the episode. In the same way a worker that dies or hangs is replaced by another
one, which plays its open episodes again and carries on: nobody can tell from the results.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from svea.envs.rendering import backend, renderer
from svea.envs.workers.memory import COUNT_FORMAT, Shared, anonymous_file
from svea.errors import NumericsError, RendererError, SveaError, UserError, WorkerError

START_SECONDS = 120.0  # import and compile, on a busy machine
HANG_SECONDS = 30.0  # a decision that takes longer is never answered
CLOSE_SECONDS = 5.0
RESTARTS, RESTART_SECONDS = 5, 600.0  # at most so many restarts in so long a time
DRAWN_TOGETHER = 8  # environments in a process where one GPU learns and draws
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


@dataclass
class Episode:
    """All it takes to play an open episode again."""

    seed: int
    actions: list[list[float]]  # that were answered

    @property
    def command(self) -> dict[str, Any]:
        """What to tell a worker."""
        return {"do": "begin", "seed": self.seed, "actions": self.actions}

    @property
    def seconds(self) -> float:
        """How long it may take."""
        return START_SECONDS + HANG_SECONDS * math.ceil(len(self.actions) / 50)


@dataclass
class Worker:
    """A process, the environments in it, and what it takes to put another one in its place."""

    first: int  # index of the first environment
    environments: list[dict[str, Any]]  # arguments of make_env
    process: subprocess.Popen[bytes]
    socket: socket.socket
    lines: Any
    last_words: IO[bytes]  # where the process writes the stack of a crash
    ready: bool = False  # it has described its spaces
    pending: dict[int, dict[str, Any]] = field(default_factory=dict)  # commands not yet answered

    @property
    def indices(self) -> range:
        """Of the environments."""
        return range(self.first, self.first + len(self.environments))

    def __str__(self) -> str:
        if len(self.indices) == 1:
            return f"environment {self.first}"
        return f"environments {self.first} to {self.indices[-1]}"


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
        together: int = 1,
    ) -> None:
        """Start the processes, all at once.

        Args:
            environments: the arguments of ``make_env``, one set per environment.
            on_incident: called with a record of each restart and each simulation that diverged;
                prints a warning if None.
            together: the most environments in one process, which draw their pictures together.
        """
        self.on_incident = on_incident or print_incident
        self._workers: list[Worker] = []
        self._episodes: dict[int, Episode] = {}  # open ones, by environment
        self._waiting: dict[int, int | None] = {}  # environments that step, and their next seeds
        self._restarts: list[float] = []  # when they were
        self._memory: IO[bytes] | None = None
        try:
            try:
                specs = self._start_all(environments, together)
            except RendererError as error:
                for worker in self._workers:
                    worker.process.kill()  # a stuck driver hears no request
                if not backend.can_fall_back():
                    raise
                backend.fall_back()
                print(f"warning: {error} Drawing with OSMesa (in software).", file=sys.stderr)
                self.close()
                specs = self._start_all(environments, 1)  # a core draws for one at a time
            self._share(specs)
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        """How many environments."""
        return sum(len(worker.environments) for worker in self._workers)

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
        pairs = zip(indices, seeds, strict=True)
        self._begin({index: Episode(seed, []) for index, seed in pairs})

    def replay(self, index: int, seed: int, actions: list[list[float]]) -> None:
        """Bring an environment into the middle of an episode, by playing it again."""
        self._begin({index: Episode(seed, list(actions))})

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
        for index, action in zip(indices, actions, strict=True):
            self._shared.actions[index] = action
        self._waiting = dict(zip(indices, next_seeds, strict=True))
        self._tell({i: {"do": "step", "next_seed": seed} for i, seed in self._waiting.items()})

    def receive(self) -> list[Step]:
        """Wait for the steps that were sent."""
        waiting, self._waiting = self._waiting, {}
        answers = self._answers(HANG_SECONDS)
        return [self._note_step(i, Step(**answers[i]), seed) for i, seed in waiting.items()]

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

    def _start_all(
        self, environments: Sequence[dict[str, Any]], together: int
    ) -> list[dict[str, Any]]:
        """Start every process, and return how the environments describe their spaces."""
        count = math.ceil(len(environments) / together)
        borders = [len(environments) * number // count for number in range(count + 1)]
        for first, end in itertools.pairwise(borders):
            hosted = list(environments[first:end])
            self._workers.append(Worker(first, hosted, *self._start(first, hosted)))
        specs = [spec for worker in self._workers for spec in self._answer(worker, START_SECONDS)]
        for worker in self._workers:
            worker.ready = True
        return specs

    def _start(
        self, first: int, environments: list[dict[str, Any]]
    ) -> tuple[subprocess.Popen[bytes], socket.socket, Any, IO[bytes]]:
        """Start a process and tell it what to be."""
        ours, theirs = socket.socketpair()
        last_words = anonymous_file("svea-last-words")
        with theirs:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "svea.envs.workers.process"),
                    *(str(theirs.fileno()), str(last_words.fileno())),
                ],
                pass_fds=[theirs.fileno(), last_words.fileno()],
                stdin=subprocess.DEVNULL,
                process_group=0,  # a terminal's Ctrl-C is for the parent, which saves first
                env=os.environ
                | backend.environment_of_workers()
                | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
            )
        _send_line(ours, {"first": first, "environments": environments})
        return process, ours, ours.makefile("rb"), last_words

    def _share(self, specs: list[dict[str, Any]]) -> None:
        """Make the shared memory, now that the spaces are known, and hand it to every worker."""
        self.provenance = specs[0].pop("provenance")  # what data the pictures are made with
        spaces = [(spec["observation"], spec["actions"], spec["choices"]) for spec in specs]
        if any(other != spaces[0] for other in spaces):
            raise UserError(f"environments of one set differ in their spaces: {spaces}")
        shape, actions = specs[0]["observation"], specs[0]["actions"]
        self.observation_shape, self.action_size = tuple(shape), int(actions)
        self.choices = int(specs[0]["choices"])  # of a discrete action; 0: a vector in [-1, 1]
        self._memory = anonymous_file("svea-environments")
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

    def _begin(self, episodes: dict[int, Episode]) -> None:
        """Play episodes from their beginning as far as they go."""
        self._tell({index: episode.command for index, episode in episodes.items()})
        self._answers(max((episode.seconds for episode in episodes.values()), default=0.0))
        self._episodes |= episodes

    def _tell(self, commands: dict[int, dict[str, Any]]) -> None:
        """Send commands, and remember them for the case that a process dies of them."""
        for worker in self._workers:
            worker.pending = {i: commands[i] for i in worker.indices if i in commands}
            if worker.pending:
                _send_line(worker.socket, list(worker.pending.items()))

    def _answers(self, seconds: float) -> dict[int, dict[str, Any]]:
        """Wait for what was asked last, by environment."""
        answers: dict[int, dict[str, Any]] = {}
        for worker in self._workers:
            if worker.pending:
                answers |= zip(worker.pending, self._answer(worker, seconds), strict=True)
                worker.pending = {}
        return answers

    def _note_step(self, index: int, step: Step, next_seed: int | None) -> Step:
        """Note a step as a part of the open episode."""
        if step.done and next_seed is not None:
            self._episodes[index] = Episode(next_seed, [])
        else:
            self._episodes[index].actions.append(self._shared.actions[index].tolist())
        if "physics_error" in step.info:
            cause = str(step.info["physics_error"])
            self.on_incident(
                {"what": "episode ended by its physics", "environment": index, "cause": cause}
            )
        return step

    def _answer(self, worker: Worker, seconds: float) -> list[dict[str, Any]]:
        """Wait for a worker's answers, if need be from another process in its place."""
        failure: WorkerError | None = None
        while True:
            try:
                if failure is not None:
                    self._replace(worker)
                return self._read(worker, seconds)
            except WorkerError as error:
                self._account_for(worker, error, failure)
                failure = error

    def _account_for(self, worker: Worker, error: WorkerError, before: WorkerError | None) -> None:
        """Decide whether a failure may be mended; raise it if not."""
        same = str(error) == str(before)  # an accident does not happen twice in the same words
        if isinstance(error, RaisedError) and (same or not worker.ready):
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
                "environment": worker.first if len(worker.indices) == 1 else list(worker.indices),
                "cause": str(error),
                "restart": len(self._restarts),
                "details": "\n".join(getattr(error, "__notes__", [])),
            }
        )

    def _replace(self, worker: Worker) -> None:
        """Put a new process in the place of a dead one, bring it as far, and ask it again."""
        worker.process.kill()
        worker.process.wait()
        for end in (worker.lines, worker.socket, worker.last_words):
            end.close()
        started = self._start(worker.first, worker.environments)
        worker.process, worker.socket, worker.lines, worker.last_words = started
        if not worker.ready:
            return
        self._read(worker, START_SECONDS)
        self._hand_memory(worker)
        begins = [index for index, command in worker.pending.items() if command["do"] == "begin"]
        left = [i for i in worker.indices if i in self._episodes and i not in begins]
        if left:
            _send_line(worker.socket, [(index, self._episodes[index].command) for index in left])
            self._read(worker, max(self._episodes[index].seconds for index in left))
        _send_line(worker.socket, list(worker.pending.items()))

    def _read(self, worker: Worker, seconds: float) -> list[dict[str, Any]]:
        """Read a worker's line; raise what an environment raised, or what became of the process."""
        drawing, patience = False, seconds
        while True:
            worker.socket.settimeout(patience)
            try:
                line = worker.lines.readline()
            except TimeoutError:
                if drawing and not worker.ready:
                    raise RendererError(
                        f"{worker}: no first picture in {patience:.0f} s; the OpenGL "
                        "driver is stuck. Set MUJOCO_GL=osmesa to draw in software."
                    ) from None
                raise self._hang(worker, patience) from None
            except OSError:
                raise self._death(worker) from None
            if not line:
                raise self._death(worker)
            said = json.loads(line)
            if "drawing" not in said:
                for answer in said["answers"]:
                    if "error" in answer:
                        raise _raised(answer)
                return said["answers"]
            drawing, patience = said["drawing"], seconds
            if drawing and backend.can_fall_back():  # else only patience is left
                patience = min(seconds, renderer.FIRST_PICTURE_SECONDS)

    def _hang(self, worker: Worker, seconds: float) -> WorkerError:
        """What to say of a worker that does not answer, with where it is stuck if it can tell."""
        process = worker.process
        with contextlib.suppress(OSError):
            process.send_signal(signal.SIGUSR1)  # asks for its stack
            time.sleep(0.5)
        error = WorkerError(
            f"{worker} (process {process.pid}) did not answer in {seconds:.0f} s. Is "
            "the machine overloaded, or the renderer stuck?"
        )
        _add_last_words(error, worker)
        return error

    def _death(self, worker: Worker) -> WorkerError:
        """What to say of a worker that is gone."""
        process = worker.process
        try:
            status: int | None = process.wait(timeout=2)
        except subprocess.TimeoutExpired:
            status = None
        how = f"signal {-status}" if status is not None and status < 0 else f"exit status {status}"
        error = WorkerError(
            f"{worker} (process {process.pid}) died with {how}. If the machine ran out "
            "of memory, use fewer environments (--envs)."
        )
        _add_last_words(error, worker)
        return error


def _raised(answer: dict[str, Any]) -> SveaError:
    """The error that an environment reports, in its own class where it is one of ours."""
    if answer["error"] in _RAISED:
        return _RAISED[answer["error"]](answer["message"])
    error = RaisedError(
        f"environment {answer['environment']} raised {answer['error']}: {answer['message']}"
    )
    error.add_note(answer["trace"])
    return error


def _add_last_words(error: WorkerError, worker: Worker) -> None:
    """Add the stack that a crashing process wrote."""
    worker.last_words.seek(0)
    if said := worker.last_words.read(16_384).decode(errors="replace").strip():
        error.add_note(said)


def print_incident(incident: dict[str, Any]) -> None:
    """One line about something that went wrong and was mended."""
    whose = "their episodes" if isinstance(incident.get("environment"), list) else "its episode"
    mended = (
        f"Restarted, and {whose} played again ({incident['restart']} of {RESTARTS} restarts "
        f"in {RESTART_SECONDS / 60:.0f} minutes)."
        if "restart" in incident
        else "The next episode begins."
    )
    print(f"warning: {incident['cause'].rstrip(':. ')}. {mended}", file=sys.stderr)


def _send_line(end: socket.socket, message: Any) -> None:
    """Send one line of JSON; whether the process is gone or stuck, reading its answer will tell."""
    end.settimeout(HANG_SECONDS)
    with contextlib.suppress(OSError):
        end.sendall(json.dumps(message).encode() + b"\n")
