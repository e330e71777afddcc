"""PAD at test time: a copy of the agent that keeps learning, without rewards, from what it sees.

Every episode starts from the trained agent; after every decision one gradient step is made on
augmented copies of the newest transition. The trained agent itself is never touched.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from svea.agents.agent import Agent
from svea.agents.auxiliary import PAD
from svea.config import Config
from svea.core.errors import UserError
from svea.evaluation.play import EpisodeResult, Policy, agent_policy


def deployed_policy(agent: Agent, config: Config) -> Policy:
    """The agent as it is tested: PAD's keeps learning from what it sees, any other just acts."""
    if config.auxiliary == "pad":
        return AdaptingPolicy(agent, explore=config.eval_actions == "sampled")
    return agent_policy(agent, config)


class AdaptingPolicy:
    """A policy for `play`: every episode has an agent of its own, fresh at its start.

    Agents learn and act one by one, so an episode does not depend on those played with it.
    """

    def __init__(self, agent: Agent, explore: bool = False) -> None:
        """Adapt copies of an agent that was trained with PAD.

        Args:
            agent: the trained agent; it stays as it is.
            explore: whether actions are drawn, as in training.
        """
        if not isinstance(agent.auxiliary, PAD):
            raise UserError(
                "test-time adaptation needs an agent trained with PAD; train one with --method pad"
            )
        self._trained, self._explore = agent, explore
        self._width = 1 if agent.discrete else agent.actions
        self._adapted: dict[int, Agent] = {}
        self._before: dict[int, tuple[NDArray[np.uint8], NDArray[np.float32]]] = {}
        self._seconds: dict[int, float] = {}

    def __call__(
        self, observations: NDArray[np.uint8], episodes: Sequence[EpisodeResult | None]
    ) -> NDArray[np.float32]:
        """Learn from every episode's newest transition, then act in it."""
        actions = np.zeros((len(observations), self._width), np.float32)  # of idle rows: any
        for row, episode in enumerate(episodes):
            if episode is not None:
                actions[row] = self._act(row, observations[row], episode)
        return actions

    def seconds(self, episode: EpisodeResult) -> float:
        """Wall time that adaptation alone took in an episode."""
        return self._seconds[episode.seed]

    def _act(
        self, row: int, observation: NDArray[np.uint8], episode: EpisodeResult
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

    def many(array: NDArray) -> Tensor:
        return torch.as_tensor(array).to(agent.device).expand(copies, *array.shape)

    now, after = agent.views(many(observation)), agent.views(many(successor))
    view = agent.streams.prediction[0]
    if auxiliary.options.task == "rotation":
        loss = auxiliary.rotation_loss(after[view])
    else:
        loss = auxiliary.inverse_dynamics_loss(now[view], after[view], many(action))
    return agent.step("auxiliary", loss)["auxiliary_loss"]
