"""One seed, many independent streams: every purpose draws from a stream of its own."""

from __future__ import annotations

import functools
import zlib

import numpy as np

TRAINING, EVALUATION = 0, 1  # episodes of different purposes never share a seed


def seed_for(seed: int, purpose: str) -> int:
    """The seed of one purpose, well mixed and the same on every machine.

    With the raw seed everywhere, the replay's draws and the policy's noise would be the same
    numbers.

    >>> seed_for(0, "weights") != seed_for(0, "replay") != seed_for(1, "replay")
    True
    """
    mixed = np.random.SeedSequence([seed, zlib.crc32(purpose.encode())]).generate_state(2)
    return (int(mixed[0]) << 31 | int(mixed[1])) & (2**63 - 1)


@functools.lru_cache(maxsize=1024)  # asked in every turn of every environment, 30 µs each time
def episode_seed(seed: int, purpose: int, environment: int, episode: int) -> int:
    """The seed of an episode: well mixed, and the same on every machine."""
    mixed = np.random.SeedSequence([seed, purpose, environment, episode]).generate_state(1)[0]
    return int(mixed) & 0x7FFFFFFF


def evaluation_seeds(seed: int, episodes: int, worlds: int = 1) -> list[int]:
    """Seeds of an evaluation; the same for every agent and mode, so that comparisons are paired.

    Where the seed chooses one of several worlds, as its remainder, they are shown in turn.

    >>> [seed % 25 for seed in evaluation_seeds(0, 4, worlds=25)]
    [0, 1, 2, 3]
    """
    drawn = [episode_seed(seed, EVALUATION, 0, k) for k in range(episodes)]
    return [number - number % worlds + k % worlds for k, number in enumerate(drawn)]
