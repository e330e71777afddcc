"""Environments in processes of their own, stepping while the learner learns.

Each worker is a fresh interpreter (``svea.core.process``), never a fork: a fork
would copy GL and CUDA contexts and deadlock, and a multiprocessing spawn would re-run the user's
script. Observations and actions lie in memory that all processes share (an anonymous file, so
nothing is left behind); commands and rewards are lines of JSON over a socket pair. A worker ends
when its socket closes or its parent dies.

A worker hosts one environment, or several that draw their pictures together
(``svea.envs.rendering.context``): it gets one line with a command for some of them, and answers
with one line when all are done.

An episode is a function of its seed and its actions. So a worker keeps no state worth saving: to
resume, it replays the episode. In the same way a worker that dies or hangs is replaced by another
one, which plays its open episodes again and carries on: the results do not show it.
"""

import contextlib
import functools
import itertools
import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from svea.config.modes import is_foreign
from svea.config.parts import Parts
from svea.core.errors import NumericsError, RendererError, SveaError, UserError, WorkerError
from svea.core.terminal import warn
from svea.envs.rendering import backend
from svea.envs.workers.worker import RaisedError, Shared, Worker, anonymous_file

START_SECONDS = 120.0  # import and compile, on a busy machine
HANG_SECONDS = 30.0  # a decision that takes longer is never answered, if no limit is given
CLOSE_SECONDS = 5.0
RESTARTS, RESTART_SECONDS = 5, 600.0  # at most this many restarts in this time
PER_GPU_PROCESS = 8  # environments in a process where one GPU computes and draws


def environments_per_process(task: str, device: str) -> int:
    """How many environments share a process, so that a GPU that computes is asked less often.

    In training and in evaluations; `device` is where the agent computes: cuda, mps or cpu. User
    environments get a process each, because they may not be thread-safe.
    """
    shares = device == "cuda" and not is_foreign(task) and backend.draws_on_gpu()
    return PER_GPU_PROCESS if shares else 1


@dataclass
class OpenEpisode:
    """An environment's open episode: its seed and actions are all it takes to play it again."""

    seed: int
    number: int = 0  # of episodes that this environment played before
    actions: list[list[float]] = field(default_factory=list)  # that were answered
    total: float = 0.0  # of the rewards

    @property
    def command(self) -> dict[str, Any]:
        """What to tell a worker, so that it plays the episode as far as it went."""
        return {"do": "begin", "seed": self.seed, "actions": self.actions}


@dataclass(frozen=True)
class Step:
    """What one environment answered."""

    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]
    episode: OpenEpisode  # that the step belongs to, this step included

    @property
    def done(self) -> bool:
        """Whether the episode ended with this step."""
        return self.terminated or self.truncated


class Workers(contextlib.AbstractContextManager["Workers"]):
    """A set of environment processes.

    A process that dies, hangs or raises is replaced, at most `RESTARTS` times in `RESTART_SECONDS`;
    `on_incident` is told. An exception that comes back in the replacement is a mistake in the
    environment and ends the run.
    """

    def __init__(
        self,
        environments: Sequence[dict[str, Any]],
        on_incident: Callable[[dict[str, Any]], None] | None = None,
        per_process: int = 1,
        step_timeout: float = HANG_SECONDS,
        wait: bool = True,
    ) -> None:
        """Start the processes, all at once, given the arguments of `make_env` for each environment.

        `per_process` is the most environments in one process. One that does not answer to a step in
        `step_timeout` seconds is killed and replaced; 0: never, and starting has no limit either.
        Without `wait`, they start while the caller does something else, and the method of that name
        must be called before they are used.
        """
        self.on_incident = on_incident or print_incident
        self.options: dict[str, Any] | None = None
        """Of `reset`, for the episodes that are begun from here on; None of them may be open."""
        self._step_seconds = step_timeout or math.inf
        self._start_seconds = max(START_SECONDS, self._step_seconds)  # or to begin an episode
        self._workers: list[Worker] = []
        self._episodes: dict[int, OpenEpisode] = {}  # open ones, by environment
        self._waiting: dict[int, int | None] = {}  # environments that step, and their next seeds
        self._restarts: list[float] = []  # when they were
        self._memory: IO[bytes] | None = None
        # Chosen here, so that what is missing is said once and not by every process.
        self._environments = [
            one
            if is_foreign(str(one["task"]))
            else one | {"renderer": backend.choose_renderer(one.get("renderer", backend.AUTO))}
            for one in environments
        ]
        self._drew_in_software = False
        self._start_all(per_process)
        if wait:
            self.wait()

    def wait(self) -> None:
        """Wait until the environments are ready; a renderer that fails is replaced by OSMesa."""
        if self._memory is not None:
            return
        try:
            try:
                specs = self._introductions()
            except RendererError as error:
                for worker in self._workers:
                    worker.process.kill()  # a stuck driver does not react to a closed socket
                others_fell_back = backend.fallen_back and not self._drew_in_software
                if not (backend.can_fall_back() or others_fell_back):
                    raise
                backend.fallen_back = True
                if not others_fell_back:
                    warn(f"{error} Drawing with OSMesa (in software).")
                self.close()
                self._start_all(1)  # a core draws for one at a time
                specs = self._introductions()
            self._share(specs)
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._environments)

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def episodes(self) -> list[OpenEpisode]:
        """The open episode of each environment."""
        return [self._episodes[index] for index in range(len(self))]

    def reset(self, seeds: Sequence[int], indices: Sequence[int] | None = None) -> None:
        """Start an episode from each seed, in all environments or in some."""
        indices = range(len(self)) if indices is None else indices
        pairs = zip(indices, seeds, strict=True)
        self._begin({index: OpenEpisode(seed) for index, seed in pairs})

    def restore(self, index: int, episode: OpenEpisode) -> None:
        """Bring an environment into the middle of an episode, by playing it again."""
        self._begin({index: episode})

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
        try:
            answers = self._answers(self._step_seconds)
        except (NumericsError, UserError) as error:
            self._name(error)
            raise
        return [self._take_step(i, answers[i], seed) for i, seed in waiting.items()]

    def _name(self, error: SveaError) -> None:
        """Say in which episode and at which step the error came."""
        if error.environment in self._episodes:
            episode = self._episodes[error.environment]
            where = f"environment {error.environment}, episode {episode.number + 1}"
            step = len(episode.actions) + 1
            error.args = (f"{where} (seed {episode.seed}), step {step}: {error}",)

    def close(self) -> None:
        """Stop every process: closing the socket asks it to end; a kill follows if it does not."""
        for worker in self._workers:
            worker.disconnect()
        deadline = time.monotonic() + CLOSE_SECONDS
        for worker in self._workers:
            worker.process.end(deadline - time.monotonic())
        self._workers = []
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def _start_all(self, per_process: int) -> None:
        environments = self._environments
        count = math.ceil(len(environments) / per_process)
        borders = [len(environments) * number // count for number in range(count + 1)]
        self._drew_in_software = backend.fallen_back
        for first, end in itertools.pairwise(borders):
            self._workers.append(Worker(first, environments[first:end], len(self)))

    def _introductions(self) -> list[dict[str, Any]]:
        """Wait for every process, and return how the environments describe their spaces."""
        workers, seconds = self._workers, self._start_seconds
        specs = [spec for worker in workers for spec in self._answer(worker, seconds)]
        for worker in self._workers:
            worker.ready = True
        return specs

    def _share(self, specs: list[dict[str, Any]]) -> None:
        """Make the shared memory, now that the spaces are known, and hand it to every worker."""
        self.provenance = specs[0].pop("provenance")  # what data the pictures are made with
        names = "observation", "parts", "actions", "choices"
        spaces = [[spec[name] for name in names] for spec in specs]
        if any(other != spaces[0] for other in spaces):
            raise UserError(f"environments of one set differ in their spaces: {spaces}")
        shape, actions = specs[0]["observation"], specs[0]["actions"]
        self.observation_shape, self.action_size = tuple(shape), int(actions)
        self.parts = Parts.read(specs[0]["parts"])  # of an observation
        self.choices = int(specs[0]["choices"])  # of a discrete action; 0: a vector in [-1, 1]
        self._memory = anonymous_file("svea-environments")
        self._shared = Shared(self._memory.fileno(), len(self), shape, actions, self.parts)
        self.observations = self._shared.observations
        """The current ones (N, 9, H, W), or N packed `Parts`, in shared memory: copy before the
        next send."""
        self.finals = self._shared.finals
        """The last ones of episodes that ended with the last step (valid where done)."""
        for worker in self._workers:
            worker.hand_memory(self._memory)

    def _begin(self, episodes: dict[int, OpenEpisode]) -> None:
        """Play episodes from their beginning as far as they go."""
        self._tell({index: self._command(episode) for index, episode in episodes.items()})
        self._answers(self._replay_seconds(episodes.values()))
        self._episodes |= episodes

    def _command(self, episode: OpenEpisode) -> dict[str, Any]:
        return episode.command | ({"options": self.options} if self.options else {})

    def _tell(self, commands: dict[int, dict[str, Any]]) -> None:
        """Send commands, and remember them for the case that a process dies of them."""
        for worker in self._workers:
            worker.pending = {i: commands[i] for i in worker.indices if i in commands}
            if worker.pending:
                worker.send(list(worker.pending.items()))

    def _answers(self, seconds: float) -> dict[int, dict[str, Any]]:
        """Wait for what was asked last, by environment."""
        answers: dict[int, dict[str, Any]] = {}
        for worker in self._workers:
            if worker.pending:
                answers |= zip(worker.pending, self._answer(worker, seconds), strict=True)
                worker.pending = {}
        return answers

    def _take_step(self, index: int, answer: dict[str, Any], next_seed: int | None) -> Step:
        step = Step(**answer, episode=self._episodes[index])
        step.episode.actions.append(self._shared.actions[index].tolist())
        step.episode.total += step.reward
        if step.done and next_seed is not None:
            self._episodes[index] = OpenEpisode(next_seed, step.episode.number + 1)
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
                return worker.read(
                    seconds, functools.partial(self._report, "environment takes long", worker)
                )
            except WorkerError as error:
                self._account_for(worker, error, failure)
                failure = error

    def _report(self, what: str, worker: Worker, error: WorkerError, **more: Any) -> None:
        """Report a restart, or that an environment takes long, and where it is."""
        whose = worker.first if len(worker.indices) == 1 else list(worker.indices)
        details = "\n".join(getattr(error, "__notes__", []))
        incident = {"what": what, "environment": whose, "cause": str(error)}
        self.on_incident(incident | more | {"details": details})

    def _account_for(self, worker: Worker, error: WorkerError, before: WorkerError | None) -> None:
        """Decide whether a restart may help; raise the error if not."""
        same = str(error) == str(before)  # an accident does not happen twice in the same words
        if isinstance(error, RaisedError) and (same or not worker.ready):
            raise error
        now = time.monotonic()
        self._restarts = [then for then in self._restarts if now - then < RESTART_SECONDS]
        if len(self._restarts) >= RESTARTS:
            many = f"Processes were restarted {RESTARTS} times in {RESTART_SECONDS:.0f} s"
            error.args = (f"{str(error).rstrip(':. ')}. {many}",)
            raise error
        self._restarts.append(now)
        self._report("worker restarted", worker, error, restart=len(self._restarts))

    def _replace(self, worker: Worker) -> None:
        """Start another process, bring its episodes as far, and ask it again."""
        worker.restart()
        if not worker.ready:
            return
        worker.read(self._start_seconds)
        assert self._memory is not None
        worker.hand_memory(self._memory)
        begins = [index for index, command in worker.pending.items() if command["do"] == "begin"]
        left = [i for i in worker.indices if i in self._episodes and i not in begins]
        if left:
            worker.send([(index, self._command(self._episodes[index])) for index in left])
            worker.read(self._replay_seconds(self._episodes[index] for index in left))
        worker.send(list(worker.pending.items()))

    def _replay_seconds(self, episodes: Iterable[OpenEpisode]) -> float:
        """How long a process may take to play episodes again."""
        longest = max((len(episode.actions) for episode in episodes), default=0)
        return self._start_seconds + self._step_seconds * (1 + longest // 50)


def print_incident(incident: dict[str, Any]) -> None:
    """Print one line about a restart, an episode that its physics ended, or a long wait."""
    many = f"{incident.get('restart')} of {RESTARTS} restarts in {RESTART_SECONDS:.0f} s"
    outcome = {
        "worker restarted": f"Restarted, and open episodes played again ({many}).",
        "environment takes long": "Waiting for it (--step-timeout sets a limit in seconds).",
        "episode ended by its physics": "The next episode begins.",
    }[incident["what"]]
    warn(f"{incident['cause'].rstrip(':. ')}. {outcome}")
