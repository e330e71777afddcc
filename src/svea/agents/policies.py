"""How agents act in whole episodes: as trained, or (PAD) learning on from what they see.

What is drawn or learned in an episode depends on its seed, not on those played at the same time.
"""

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from svea.agents.agent import Agent
from svea.agents.auxiliary import PAD
from svea.config import Config


class Episode(Protocol):
    """What a policy reads of an episode that is being played."""

    seed: int
    length: int
    """Decisions so far."""


Policy = Callable[[NDArray[np.uint8], Sequence[Any]], NDArray[np.float32]]
"""Actions for a row of observations and the `Episode`s they are from (None: an idle row)."""


def deployed_policy(agent: Agent, config: Config) -> Policy:
    """The agent as it is tested: PAD's keeps learning from what it sees, any other just acts."""
    if config.auxiliary == "pad":
        return AdaptingPolicy(agent, explore=config.eval_actions == "sampled")
    return agent_policy(agent, config)


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


@dataclass
class EpisodeGenerators:
    """A generator for every episode, which `make` makes from the episode's seed."""

    make: Callable[[int], Any]
    _rows: dict[int, Any] = field(default_factory=dict)

    def __call__(self, episodes: Sequence[Episode | None]) -> list[Any]:
        """The generators of the episodes that are being played, row by row."""
        for row, episode in enumerate(episodes):
            if row not in self._rows or (episode is not None and episode.length == 0):
                self._rows[row] = self.make(episode.seed if episode is not None else 0)
        return [self._rows[row] for row in range(len(episodes))]


class AdaptingPolicy:
    """PAD at test time: a copy of the agent keeps learning, without rewards, from what it sees.

    Every episode starts from the trained agent, which is never touched; after every decision one
    gradient step is made on augmented copies of the newest transition. Agents learn and act one by
    one.
    """

    def __init__(self, agent: Agent, explore: bool = False) -> None:
        """Take the trained agent, and whether actions are drawn, as in training."""
        self._trained, self._explore = agent, explore
        self._width = 1 if agent.discrete else agent.actions
        self._adapted: dict[int, Agent] = {}
        self._before: dict[int, tuple[NDArray[np.uint8], NDArray[np.float32]]] = {}
        self._seconds: dict[int, float] = {}

    def __call__(
        self, observations: NDArray[np.uint8], episodes: Sequence[Episode | None]
    ) -> NDArray[np.float32]:
        """Learn from every episode's newest transition, then act in it."""
        actions = np.zeros((len(observations), self._width), np.float32)  # of idle rows: any
        for row, episode in enumerate(episodes):
            if episode is not None:
                actions[row] = self._act(row, observations[row], episode)
        return actions

    def seconds(self, episode: Episode) -> float:
        """Wall time of adaptation in an episode."""
        return self._seconds[episode.seed]

    def _act(
        self, row: int, observation: NDArray[np.uint8], episode: Episode
    ) -> NDArray[np.float32]:
        """The next action in an episode: forget the last episode, or learn from this one."""
        if episode.length == 0:
            self._adapted[row] = fresh_copy(self._trained, episode.seed)
            self._seconds[episode.seed] = 0.0
        else:
            began = time.perf_counter()
            loss = adapt(self._adapted[row], *self._before[row], observation)
            float(loss)  # waits for the device
            self._seconds[episode.seed] += time.perf_counter() - began
        action = self._adapted[row].act(observation, explore=self._explore)
        self._before[row] = (observation.copy(), action)
        return action


def fresh_copy(agent: Agent, seed: int = 0) -> Agent:
    """A copy with an optimiser that has seen nothing, and draws of its own."""
    auxiliary = agent.auxiliary
    assert isinstance(auxiliary, PAD)
    other = copy.copy(agent)
    other.generator = torch.Generator(agent.device).manual_seed(seed)
    # What follows the trunk in actor and critic is read only, so it is shared.
    other.trunk, other.optimisers = copy.deepcopy(agent.trunk), {}
    other.auxiliary = copy.copy(auxiliary)
    other.auxiliary._modules = copy.deepcopy(auxiliary._modules)
    other.auxiliary.share(other)
    return other


def adapt(
    agent: Agent,
    observation: NDArray[np.uint8],
    action: NDArray[np.float32],
    successor: NDArray[np.uint8],
) -> Tensor:
    """One gradient step on augmented copies of one transition; returns the loss."""
    auxiliary = agent.auxiliary
    assert isinstance(auxiliary, PAD)
    copies = auxiliary.options.copies

    def many(array: Any) -> Tensor:
        return torch.as_tensor(array).to(agent.device).expand(copies, *array.shape)

    # The task sees only pictures.
    now, after = (agent.views(many(agent.split(seen)[0])) for seen in (observation, successor))
    view = agent.streams.prediction[0]
    if auxiliary.options.task == "rotation":
        loss = auxiliary.rotation_loss(after[view])
    else:
        loss = auxiliary.inverse_dynamics_loss(now[view], after[view], many(action))
    return agent.step("auxiliary", loss)["auxiliary_loss"]
