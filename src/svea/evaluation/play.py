"""Playing whole episodes with a policy, in parallel, each a function of its seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from svea.agents.agent import Agent
from svea.config import Config
from svea.core.machine import usable_cores
from svea.envs.workers.pool import Workers

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
    """Which of a mode's worlds it shows: the number of a colour setting or robot world, the name of
    a clip; None where there is only one."""
    drawn_by: str | None = None
    """Who drew its pictures, where that was not the usual renderer of its environment."""


Policy = Callable[[NDArray[np.uint8], Sequence[EpisodeResult | None]], NDArray[np.float32]]
"""Actions for a row of observations and the episodes they are from (None: an idle row)."""


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
            episode.total += step.reward
            episode.length += 1
            episode.world = step.info.get("world", episode.world)
            episode.drawn_by = step.info.get("drawn_by")
            for name in SUCCESS:
                if name in step.info:
                    episode.success = bool(step.info[name])
            if step.done:
                on_episode(episode)
                playing[worker] = None
                ended.append(worker)
        start(ended)
    return episodes


def agent_policy(agent: Agent, config: Config) -> Policy:
    """The agent's actions as evaluations take them: the most likely ones, or sampled."""
    if config.eval_actions == "most_likely":
        return lambda observations, episodes: agent.act(observations)
    generators = EpisodeGenerators(lambda seed: torch.Generator(agent.device).manual_seed(seed))
    return lambda observations, episodes: agent.act(
        observations, explore=True, generator=generators(episodes)
    )


def random_policy(actions: int, choices: int = 0) -> Policy:
    """Actions drawn uniformly: a vector in [-1, 1], or one of several choices."""
    generators = EpisodeGenerators(np.random.default_rng)

    def draw(generator: np.random.Generator) -> NDArray[Any]:
        return generator.integers(choices, size=1) if choices else generator.uniform(-1, 1, actions)

    return lambda observations, episodes: np.stack(
        [draw(generator) for generator in generators(episodes)]
    ).astype(np.float32)


class EpisodeGenerators:
    """A generator for every episode, set by its seed.

    So what is drawn in an episode does not depend on how many are played at the same time.
    """

    def __init__(self, make: Callable[[int], Any]) -> None:
        """Take what makes a generator from a seed."""
        self._make = make
        self._rows: dict[int, Any] = {}

    def __call__(self, episodes: Sequence[EpisodeResult | None]) -> list[Any]:
        """The generators of the episodes that are being played, row by row."""
        for row, episode in enumerate(episodes):
            if row not in self._rows or (episode is not None and episode.length == 0):
                self._rows[row] = self._make(episode.seed if episode is not None else 0)
        return [self._rows[row] for row in range(len(episodes))]
