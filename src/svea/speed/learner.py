"""The learner that the training loop calls: one batch, one update, in the way --speed says."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from svea.replay import Batch, Replay
from svea.speed.accelerate import accelerate
from svea.speed.device import precision_context, repeat_exactly, wing
from svea.speed.graphs import Batches, CapturedUpdate
from svea.speed.host import prepare

if TYPE_CHECKING:
    from svea.agents.agent import Agent, Losses, Phase

WARM_UP = 3  # updates of a kind before it is captured: they compile, choose kernels and allocate


class Learner:
    """Samples and updates.

    Captured updates are replayed from CUDA graphs, one for each kind of update (with or without
    policy, target and auxiliary task). The first few of a kind run as written: they are updates
    like all others, so nothing is lost or done twice. Capturing itself computes nothing. The
    replay's size and all generators are read at replay, so every update makes new draws from a
    buffer that grows.
    """

    def __init__(
        self,
        agent: Agent,
        replay: Replay,
        batch_size: int,
        *,
        precision: torch.dtype = torch.float32,
        exact: bool = False,
        speed: str = "eager",
        deterministic: bool = False,
        say: Callable[[str], None] = lambda message: None,
    ) -> None:
        """Prepare the agent for a way of updating.

        Args:
            agent: what learns.
            replay: what it learns from.
            batch_size: transitions per update.
            precision: of the networks' arithmetic.
            exact: no TF32 in float32, on a GPU; holds for the whole process.
            speed: ``eager``, ``compiled`` or ``captured``, as `choose_speed` resolved it.
            deterministic: the same bits every time, also on a GPU.
            say: called with a line when something takes long.
        """
        self.agent, self.replay, self.batch_size = agent, replay, batch_size
        self.precision, self.speed, self._say = precision, speed, say
        self._counts: dict[Phase, int] = {}
        self._graphs: dict[Phase, CapturedUpdate] = {}
        prepare(agent.device, exact)
        if deterministic and agent.device.type != "cpu":  # there updates repeat in any case
            repeat_exactly(agent.device)
        accelerate(agent, speed, precision)
        # The networks that kernels keep copies of.
        forwards = [network.forward for network in agent.networks.values()]
        self._heads: list[Any] = [f for f in forwards if hasattr(f, "check_copies")]
        if speed == "captured" and (kernels := wing()):
            kernels.sample(replay)

    def step(self, decision: int) -> Losses:
        """One update; the losses are overwritten by a later update of the same kind."""
        phase = self.agent.schedule(decision)
        self.replay.flush()
        seen = self._counts[phase] = self._counts.get(phase, 0) + 1
        if seen == 1 and self.speed != "eager" and self.agent.device.type != "cpu":
            self._say("compiling an update (kept in a cache for later runs)")
        if self.speed != "captured" or seen <= WARM_UP:
            return self._update(self.sample_for(phase), phase)
        for head in self._heads:  # a graph does not ask whether a state was loaded meanwhile
            head.refresh()
        if phase not in self._graphs:
            for head in self._heads:
                head.check_copies()
            self._graphs[phase] = self._capture(phase)
        return self._graphs[phase].replay()

    def _update(self, batches: Batches, phase: Phase) -> Losses:
        """The agent's update in the chosen precision."""
        batch, auxiliary_batch = batches
        with self.context():
            return self.agent.update(batch, phase, auxiliary_batch)

    def sample(self) -> Batch:
        """A batch on the agent's device."""
        return self.replay.sample(self.batch_size).to(self.agent.device)

    def sample_for(self, phase: Phase) -> Batches:
        """The batches of an update: the agent's, and the auxiliary task's if it wants its own."""
        batch, auxiliary = self.sample(), self.agent.auxiliary
        if auxiliary is None or not phase.auxiliary or not auxiliary.batch_size:
            return batch, None
        return batch, self.replay.sample(auxiliary.batch_size).to(self.agent.device)

    def context(self) -> contextlib.AbstractContextManager[object]:
        """The context in which updates are computed: the chosen precision."""
        return precision_context(self.agent.device, self.precision)

    def _capture(self, phase: Phase) -> CapturedUpdate:
        """An update as a CUDA graph; its sampling too if the replay is on the same device."""
        inside = self.replay.device == self.agent.device
        generators = (
            {self.agent.generator, self.replay.generator} if inside else {self.agent.generator}
        )
        return CapturedUpdate(
            lambda: self.sample_for(phase),
            lambda batches: self._update(batches, phase),
            generators,
            sample_inside=inside,
            pool=next((graph.pool for graph in self._graphs.values()), None),
        )
