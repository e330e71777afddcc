"""Evaluations during training: the environments they are played in, and what the log says."""

import itertools
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch

from svea.agents.agent import Agent
from svea.agents.diagnostics import q_target_variance
from svea.agents.policies import agent_policy
from svea.config import Config
from svea.core.seeds import evaluation_seeds, seed_for
from svea.envs.workers.pool import Workers, environments_per_process
from svea.evaluation.play import EpisodeResult, parallel_environments, play
from svea.replay import Replay

VARIANCE_BATCH, VARIANCE_DRAWS = 64, 8  # transitions and views of each, at every evaluation
KEPT = 3
"""Modes whose environments stay between evaluations; the processes of a set take gigabytes."""


class Evaluators:
    """One set of environments per mode; those of the first `KEPT` modes are kept."""

    def __init__(
        self,
        config: Config,
        stack: ExitStack,
        on_incident: Callable[[dict[str, Any]], None],
        device: torch.device,
    ) -> None:
        """The processes, which `start` or the first evaluation starts, end with the stack."""
        self._config, self._on_incident, self._device = config, on_incident, device
        self._sets: dict[str, Workers] = {}
        self.modes = config.eval_modes
        stack.callback(self._close)

    def play(
        self,
        mode: str,
        agent: Agent,
        should_stop: Callable[[], bool],
        show: Callable[[str], None],
    ) -> dict[str, Any]:
        """Play whole episodes in a mode, shown as they end, and return the values of a log line.

        If it has to stop it raises `Interrupted`.
        """
        config, ended = self._config, itertools.count(1)

        def count(_: EpisodeResult) -> None:
            show(f"evaluating in {mode}: {next(ended)} of {config.eval_episodes} episodes")

        show(f"evaluating in {mode}")
        self._close(keep=(*self.modes[:KEPT], mode))
        workers = self._started(mode)
        workers.wait()
        worlds = workers.provenance.get("worlds", 1)
        seeds = evaluation_seeds(config.seed, config.eval_episodes, worlds, spread=True)
        played = play(agent_policy(agent, config), workers, seeds, should_stop, count)
        returns = [episode.total for episode in played]
        shown = [episode.world for episode in played if episode.world is not None]
        successes = [episode.success for episode in played if episode.success is not None]
        return {
            "return_mean": float(np.mean(returns)),
            **({"return_std": float(np.std(returns, ddof=1))} if len(returns) > 1 else {}),
            "episodes": len(returns),
            "returns": returns,
            **({"worlds": shown} if shown else {}),
            "provenance": workers.provenance,
            **({"success_rate": float(np.mean(successes))} if successes else {}),
        }

    def start(self) -> None:
        """Let the processes of all modes start now, while something else is done."""
        for mode in self.modes[:KEPT]:
            self._started(mode)

    def _close(self, keep: tuple[str, ...] = ()) -> None:
        """Stop the processes of all modes but these."""
        for mode in [mode for mode in self._sets if mode not in keep]:
            self._sets.pop(mode).close()

    def _started(self, mode: str) -> Workers:
        if mode not in self._sets:
            config = self._config
            count = parallel_environments(config.eval_envs, config.eval_episodes)
            together = environments_per_process(config.task, self._device.type)
            environments = [config.environment_in(mode)] * count
            self._sets[mode] = Workers(
                environments, self._on_incident, together, config.step_timeout, wait=False
            )
        return self._sets[mode]


def target_variance(agent: Agent, replay: Replay, seed: int, decision: int) -> dict[str, float]:
    """The paper's Fig. 1 (top) at this decision, from draws of its own: training is unchanged.

    In float32: bfloat16's rounding would count as variance.
    """
    if not len(replay):
        return {}
    own_seed = seed_for(seed, f"Q-target variance at {decision}")
    rows = np.random.default_rng(own_seed).integers(len(replay), size=VARIANCE_BATCH)
    batch = replay.gather(torch.from_numpy(rows).to(replay.device)).to(agent.device)
    generator = torch.Generator(agent.device).manual_seed(own_seed)
    value = q_target_variance(agent, batch, VARIANCE_DRAWS, generator)
    return {"q_target_variance": value}
