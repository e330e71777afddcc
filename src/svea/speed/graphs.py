"""CUDA graphs and streams: updates that are replayed, work that overlaps."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from svea.replay import Batch

if TYPE_CHECKING:
    from svea.agents.agent import Losses

Batches = tuple[Batch, Batch | None]
"""What an update takes: the agent's batch, and one for the auxiliary task if it wants its own."""

LANES = 8  # runs that compute at once; torch has 32 streams to give, and a lane takes two


class CapturedUpdate:
    """One kind of update as a CUDA graph, its sampling included where the replay is on the GPU."""

    def __init__(
        self,
        sample: Callable[[], Batches],
        update: Callable[[Batches], Losses],
        generators: Iterable[torch.Generator],
        *,
        sample_inside: bool,
        pool: Any = None,
    ) -> None:
        """Record an update; the networks stay as they are.

        Args:
            sample: makes the batches.
            update: computes on them.
            generators: that the graph draws from.
            sample_inside: whether sampling is part of the graph, or copied into it.
            pool: memory of another graph, to be shared.
        """
        self._sample = sample
        self._batches = None if sample_inside else sample()
        self._graph = torch.cuda.CUDAGraph()
        for generator in generators:
            self._graph.register_generator_state(generator)
        with (
            without_collection(),
            torch.cuda.graph(self._graph, pool=pool, stream=capture_stream()),
        ):
            self._losses = update(self._batches or sample())

    @property
    def pool(self) -> Any:
        """The graph's memory."""
        return self._graph.pool()

    def replay(self) -> Losses:
        """Do the update."""
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
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class SideStream:
    """Computes something on a second CUDA stream: small layers leave half of a GPU idle.

    What the function reads was made before it started, and what it returns is used after it was
    waited for. The main stream waits before it continues, so memory is never reused too early.
    """

    def __call__(self, function: Callable[[], torch.Tensor]) -> Callable[[], torch.Tensor]:
        """Start, and return how to wait for the result."""
        main = torch.cuda.current_stream()
        side = side_stream(main.cuda_stream)
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
    return torch.cuda.stream(lane_stream(number % LANES))


@cache
def lane_stream(number: int) -> torch.cuda.Stream:
    """The lane's stream."""
    return torch.cuda.Stream()


@cache
def side_stream(main: int) -> torch.cuda.Stream:
    """The second stream of a main stream."""
    return torch.cuda.Stream()


def capture_stream() -> torch.cuda.Stream | None:
    """Where to capture a graph: in a lane on its own stream, else on torch's, which all share.

    A library's scratch memory belongs to the stream that a graph was captured on, and kernels wait
    for one another in it: of two such graphs at work at once, one waited forever.
    """
    current = torch.cuda.current_stream()
    return None if current == torch.cuda.default_stream() else current
