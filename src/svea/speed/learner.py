"""The learner that the training loop calls: one batch, one update, in the way --speed says.

A captured update is replayed from a CUDA graph; runs side by side work on streams of their own.
"""

import contextlib
import gc
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import torch

from svea.agents.agent import Agent, Losses, Phase
from svea.replay import Batch, Replay
from svea.speed.accelerate import accelerate
from svea.speed.device import precision_context, prepare, repeat_exactly, wing

Batches = tuple[Batch, Batch | None]
"""What an update takes: the agent's batch, and one for the auxiliary task if it wants its own."""

WARM_UP = 3  # updates of a kind before it is captured: they compile, choose kernels and allocate
LANES = 8  # runs that compute at once; torch has 32 streams to give, and a lane takes two


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
        """Prepare the agent for a way of updating, ``speed`` as `choose_speed` resolved it.

        ``exact`` is no TF32 in float32 on a GPU, for the whole process; ``deterministic`` the same
        bits every time, also there. ``say`` is called with a line when something takes long.
        """
        self.agent, self.replay, self.batch_size = agent, replay, batch_size
        self.precision, self.speed, self._say = precision, speed, say
        self._counts: dict[Phase, int] = {}
        self._graphs: dict[Phase, CapturedUpdate] = {}
        prepare(agent.device, exact)
        if deterministic and agent.device.type != "cpu":  # there updates repeat in any case
            repeat_exactly(agent.device)
        accelerate(agent, speed, precision)
        if speed == "captured":
            agent.overlap = beside
        # The networks that kernels keep copies of.
        forwards = [network.forward for network in agent.networks.values()]
        self._heads: list[Any] = [f for f in forwards if hasattr(f, "check_copies")]
        if speed == "captured" and (kernels := wing(agent.device)):
            kernels.sample(replay)

    def step(self, decision: int) -> Losses:
        """One update; the losses are overwritten by a later update of the same kind."""
        phase = self.agent.schedule(decision)
        self.replay.flush()
        seen = self._counts[phase] = self._counts.get(phase, 0) + 1
        if seen == 1 and self.speed != "eager" and self.agent.device.type != "cpu":
            self._say("compiling an update (kept in a cache for later runs)")
        if self.speed != "captured" or seen <= WARM_UP:
            return self.update(self.sample_for(phase), phase)
        for head in self._heads:  # a graph does not ask whether a state was loaded meanwhile
            head.refresh()
        if phase not in self._graphs:
            for head in self._heads:
                head.check_copies()
            pool = next((graph.pool for graph in self._graphs.values()), None)
            self._graphs[phase] = CapturedUpdate(self, phase, pool)
        return self._graphs[phase].replay()

    def update(self, batches: Batches, phase: Phase) -> Losses:
        """The agent's update in the chosen precision."""
        with self.context():
            return self.agent.update(batches[0], phase, batches[1])

    def sample(self) -> Batch:
        """A batch on the agent's device."""
        return self.replay.sample(self.batch_size).to(self.agent.device)

    def sample_for(self, phase: Phase) -> Batches:
        """The batches of an update: the agent's, and the auxiliary task's if it wants its own."""
        batch, task = self.sample(), self.agent.auxiliary
        count = task.batch_size if task is not None and phase.auxiliary else 0
        return batch, self.replay.sample(count).to(self.agent.device) if count else None

    def context(self) -> contextlib.AbstractContextManager[object]:
        """The context in which updates are computed: the chosen precision."""
        return precision_context(self.agent.device, self.precision)


# CUDA graphs and streams --------------------------------------------------------------------------


class CapturedUpdate:
    """One kind of update as a CUDA graph, its sampling included where the replay is on the GPU."""

    def __init__(self, learner: Learner, phase: Phase, pool: Any = None) -> None:
        """Record an update; nothing is computed. The pool is a graph's memory, to be shared."""
        agent, replay = learner.agent, learner.replay
        inside = replay.device == agent.device
        self._sample = partial(learner.sample_for, phase)
        self._batches = None if inside else self._sample()
        self._graph = torch.cuda.CUDAGraph()
        for generator in {agent.generator} | ({replay.generator} if inside else set()):
            self._graph.register_generator_state(generator)
        with (
            without_collection(),
            torch.cuda.graph(self._graph, pool=pool, stream=capture_stream()),
        ):
            self._losses = learner.update(self._batches or self._sample(), phase)
        self.pool = self._graph.pool()

    def replay(self) -> Losses:
        """Do the update, on fresh batches that are copied into the graph or sampled in it."""
        if self._batches is not None:
            for static, fresh in zip(self._batches, self._sample(), strict=True):
                if static is not None and fresh is not None:
                    for name, tensor in static:
                        tensor.copy_(getattr(fresh, name), non_blocking=True)
        self._graph.replay()
        return self._losses


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """Collect garbage now, and then not until the end.

    Whatever a discarded agent or graph holds on the GPU is freed when Python collects it, and that
    ends a capture under way with an error.
    """
    gc.collect()
    restore = gc.enable if gc.isenabled() else gc.disable
    gc.disable()
    try:
        yield
    finally:
        restore()


def beside(function: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
    """Start something on a second CUDA stream, and return how to wait for its result.

    Small layers leave half of a GPU idle. What the function reads was made before it started, and
    what it returns is used after it was waited for. The main stream waits before it continues, so
    memory is never reused too early.
    """
    main = torch.cuda.current_stream()
    side = stream_of("beside", main.cuda_stream)
    side.wait_stream(main)
    with torch.cuda.stream(side):
        value = function()

    def wait() -> torch.Tensor:
        torch.cuda.current_stream().wait_stream(side)
        return value

    return wait


def lane(device: torch.device, number: int) -> contextlib.AbstractContextManager[object]:
    """A context, to be entered many times, in which a GPU works while it works for other runs too.

    Runs of one lane wait for each other. A lane knows nothing of what was started outside it:
    `synchronise` first.
    """
    if device.type != "cuda":
        return contextlib.nullcontext()
    return torch.cuda.stream(stream_of("lane", number % LANES))


@cache
def stream_of(purpose: str, number: int) -> torch.cuda.Stream:
    """The lane's stream, or the one beside a main stream."""
    return torch.cuda.Stream()


def capture_stream() -> torch.cuda.Stream | None:
    """Where to capture a graph: in a lane on its own stream, else on torch's, which all share.

    A library's scratch memory belongs to the stream that a graph was captured on, and kernels wait
    for one another in it: of two such graphs at work at once, one waited forever.
    """
    current = torch.cuda.current_stream()
    return None if current == torch.cuda.default_stream() else current
