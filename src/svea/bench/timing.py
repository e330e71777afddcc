"""How benchmarks time a call, on what machine, and on what replay.

Every benchmark returns rows; `machine` describes what they were measured on, so that a number never
appears without the device, the batch and the conditions behind it.
"""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch

from svea.config import Config
from svea.core.words import plural
from svea.replay import Replay
from svea.speed import synchronise

ACTIONS = 6  # of a replay of noise: walker's; for DQN as many choices


def fastest_ms(call: Callable[[], object], repeats: int) -> float:
    """The fastest of several calls on the host, in milliseconds, after two that do not count.

    Other work on the machine disturbs the fastest one least.
    """
    times = []
    for _ in range(repeats + 2):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return 1e3 * min(times[2:])


def median_ms(call: Callable[[], object], device: torch.device, repeats: int) -> float:
    """The median time of a call in milliseconds, to its completion on the device."""
    times = []
    for _ in range(repeats + 1):
        synchronise(device)
        start = time.perf_counter()
        call()
        synchronise(device)
        times.append(time.perf_counter() - start)
    return 1e3 * statistics.median(times[1:])


def median_ms_in_turns(
    calls: Sequence[Callable[..., object]], repeats: int, seeded: bool = False
) -> list[float]:
    """The median time of each call, in milliseconds, after one round that does not count.

    The calls take turns, so that other work on the machine disturbs all of them equally.
    """
    times = np.zeros((repeats + 1, len(calls)))
    for turn in range(repeats + 1):
        for index, call in enumerate(calls):
            start = time.perf_counter()
            call(seed=turn) if seeded else call()
            times[turn, index] = time.perf_counter() - start
    return [float(ms) for ms in 1e3 * np.median(times[1:], axis=0)]


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
