"""Playing whole episodes in parallel, each a function of its seed, and the record of each."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from svea.agents.agent import Agent
from svea.agents.policies import Policy
from svea.core.errors import SveaError, UserError, WorkerError
from svea.core.importing import where_raised
from svea.core.machine import usable_cores
from svea.core.seeds import evaluation_seeds
from svea.envs.dmc import as_action
from svea.envs.looks import provenance_of
from svea.envs.workers.pool import Workers
from svea.runs.load import has_critic

SUCCESS = ("is_success", "success")
"""Where an environment's `info` says whether the task is solved; the last one counts."""


class Interrupted(Exception):
    """Evaluation was asked to stop before its end."""


@dataclass
class EpisodeResult:
    """The outcome of an episode, as far as it is played."""

    seed: int
    total: float = 0.0
    length: int = 0
    success: bool | None = None
    """None where the task has no notion of success."""
    world: int | str | None = None
    """Which of a mode's worlds it shows, by number or clip; None where there is only one."""
    drawn_by: str | None = None
    """Who drew its pictures, where that was not the usual renderer of its environment."""

    def add(self, reward: float, info: Mapping[str, Any]) -> None:
        """Count one more decision."""
        self.total += reward
        self.length += 1
        self.world = info.get("world", self.world)
        self.drawn_by = info.get("drawn_by")
        for name in SUCCESS:
            if name in info:
                self.success = bool(info[name])


def parallel_environments(requested: int, episodes: int | str) -> int:
    """How many environments evaluate at once: as asked, or one per core."""
    count = requested or min(16, usable_cores())
    return count if isinstance(episodes, str) else min(episodes, count)


def play(
    policy: Policy,
    workers: Workers,
    seeds: Iterable[int],
    should_stop: Callable[[], bool] = lambda: False,
    on_episode: Callable[[EpisodeResult], None] = lambda episode: None,
) -> list[EpisodeResult]:
    """Play one episode per seed; a worker that ends one takes the next.

    The policy always sees the observations of *all* workers, so that every action is computed in a
    batch of the same size: other sizes take other kernels, whose last bits differ.
    """
    episodes = [EpisodeResult(seed) for seed in seeds]
    waiting = iter(episodes)
    playing: list[EpisodeResult | None] = [None] * len(workers)

    def start(idle: Iterable[int]) -> None:  # all at once: an episode's first picture takes long
        if should_stop():
            raise Interrupted
        taken = dict(zip(idle, waiting, strict=False))
        for worker, episode in taken.items():
            playing[worker] = episode
        if taken:
            workers.reset([episode.seed for episode in taken.values()], list(taken))

    start(range(len(workers)))
    while active := [worker for worker, episode in enumerate(playing) if episode is not None]:
        if should_stop():
            raise Interrupted
        actions = policy(workers.observations, playing)
        workers.send(actions[active], [None] * len(active), active)
        ended = []
        for worker, step in zip(active, workers.receive(), strict=True):
            episode = playing[worker]
            assert episode is not None
            episode.add(step.reward, step.info)
            if step.done:
                on_episode(episode)
                playing[worker] = None
                ended.append(worker)
        start(ended)
    return episodes


class OneEpisode:
    """An episode of an evaluation in an environment of this process, decision by decision."""

    def __init__(
        self, environment: Any, policy: Policy, seed: int, number: int = 0, rows: int = 1
    ) -> None:
        """Begin it, with the seed of the evaluation and the number that its record has.

        Actions are computed in batches of as many rows as `play` has workers.
        """
        worlds = provenance_of(environment).get("worlds", 1)
        self.result = EpisodeResult(evaluation_seeds(seed, number + 1, worlds)[-1])
        self.done = False
        self._environment, self._policy, self._rows = environment, policy, rows
        self.observation, _ = environment.reset(seed=self.result.seed)

    def choose(self) -> NDArray[np.float32]:
        """The policy's next action."""
        rows = np.repeat(self.observation[None], self._rows, axis=0)
        return self._policy(rows, [self.result, *[None] * (self._rows - 1)])[0]

    def step(self, action: NDArray[np.float32]) -> None:
        """Take an action."""
        step = self._environment.step(as_action(self._environment, action))
        self.observation, reward, terminated, truncated, info = step
        self.result.add(float(reward), info)
        self.done = bool(terminated or truncated)


@contextmanager
def naming_users_code(task: str) -> Iterator[None]:
    """A region in which an exception of a user's environment becomes a message with its place."""
    try:
        yield
    except SveaError:
        raise
    except Exception as error:
        if not (where := where_raised(error)):
            raise
        said = f"{task} raised {type(error).__name__}: {error} ({where})"
        raise WorkerError(said) from error


def expected_return(
    agent: Agent | None, observation: NDArray[np.uint8], action: NDArray[np.float32]
) -> float:
    """The Q-value of an observation and an action; nan without critic."""
    if agent is None or not has_critic(agent):
        return math.nan
    return float(agent.q_value(torch.as_tensor(observation)[None], torch.as_tensor(action)[None]))


def check_actions(agent: Agent, size: int, choices: int, task: str) -> None:
    """Refuse a task whose actions are not those that the agent learned."""
    kinds = ("a vector of", "one of")
    trained = f"{kinds[agent.discrete]} {agent.actions}"
    here = f"{kinds[bool(choices)]} {choices or size}"
    if trained != here:
        raise UserError(
            f"an action of task {task!r} is {here}, but the agent learned with {trained}; name a "
            "task with the same actions"
        )
