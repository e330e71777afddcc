"""What this machine can do: augmentations, environments, updates and training, timed.

Benchmarks return rows and print nothing; `svea bench` prints them. Here is what they and the
scripts of benchmarks/ share: how a call is timed, on what machine, on what replay.
"""

import os
import platform
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch

from svea.config import Config
from svea.core.words import plural
from svea.replay import Replay
from svea.speed import synchronise

Row = dict[str, Any]
"""A measurement: what was measured, and milliseconds (`ms`) and other numbers by their names."""
CPU = torch.device("cpu")
ACTIONS = 6  # of a replay of noise: walker's; for DQN as many choices


def times_ms(
    calls: Sequence[Callable[[], object]], repeats: int, device: torch.device = CPU
) -> np.ndarray:
    """Milliseconds of calls to their completion on the device: a row per round, after one.

    The calls take turns, so that other work on the machine disturbs all of them equally.
    """
    times = np.zeros((repeats + 1, len(calls)))
    for turn in range(repeats + 1):
        for index, call in enumerate(calls):
            synchronise(device)
            start = time.perf_counter()
            call()
            synchronise(device)
            times[turn, index] = time.perf_counter() - start
    return 1e3 * times[1:]


def median_ms(call: Callable[[], object], device: torch.device, repeats: int) -> float:
    """The median time of a call in milliseconds, to its completion on the device."""
    return float(np.median(times_ms([call], repeats, device)))


def captured(
    call: Callable[[], object], generators: Iterable[torch.Generator] = ()
) -> torch.cuda.CUDAGraph:
    """A CUDA graph of a call that draws from these generators, after calls that do not count."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):  # compile and allocate outside the capture
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    for generator in generators:
        graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        call()
    return graph


def peak_gigabytes(device: torch.device) -> float | None:
    """The most memory of a GPU that was in use."""
    return torch.cuda.max_memory_allocated() / 1e9 if device.type == "cuda" else None


def machine() -> str:
    """The machine and its load, on one line."""
    load = f"load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "load unknown"
    threads = plural(torch.get_num_threads(), "thread")
    host = f"{platform.processor() or platform.machine()}, {threads}, {load}"
    gpu = f"{torch.cuda.get_device_name()}, " if torch.cuda.is_available() else ""
    return f"{gpu}{host}, torch {torch.__version__}"


def noise_replay(config: Config, device: torch.device, decisions: int = 1_000) -> Replay:
    """A buffer of noise on the device, with episodes of 100 decisions."""
    options, size = config.options, config.rendered_size
    actions = 1 if config.base == "dqn" else ACTIONS
    replay = Replay(
        decisions, size, actions, 1, 100, device,
        discount=options.discount, n_step=options.n_step,
    )  # fmt: skip
    random = np.random.default_rng(0)

    def frame() -> np.ndarray:
        return random.integers(0, 256, (3, size, size), dtype=np.uint8)

    for decision in range(decisions):
        if decision % 100 == 0:
            replay.begin(0, frame())
        action = random.uniform(0, 1, actions).astype(np.float32)
        replay.append(0, action, float(action[0]), False, frame(), decision % 100 == 99)
    return replay
