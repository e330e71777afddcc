"""One seed, many independent streams: every purpose draws from a stream of its own."""

import functools
import zlib

import numpy as np

TRAINING, EVALUATION = 0, 1  # episodes of different purposes never share a seed

ALL = "all"  # as a number of episodes: every world of the mode once (`episodes_of_all`)

ALL_OF_ONE_WORLD = 100  # episodes of `ALL` in a mode without several worlds, such as train
ALL_AT_LEAST = 10  # in a mode with few worlds, as distracting_cs has at low intensity


def seed_for(seed: int, purpose: str) -> int:
    """The seed of one purpose, well mixed: the replay and the policy draw unlike numbers."""
    mixed = np.random.SeedSequence([seed, zlib.crc32(purpose.encode())]).generate_state(2)
    return (int(mixed[0]) << 31 | int(mixed[1])) & (2**63 - 1)


@functools.lru_cache(maxsize=1024)  # asked in every turn of every environment, 30 µs each time
def episode_seed(seed: int, purpose: int, environment: int, episode: int) -> int:
    """The seed of an episode: well mixed, and the same on every machine."""
    mixed = np.random.SeedSequence([seed, purpose, environment, episode]).generate_state(1)[0]
    return int(mixed) & 0x7FFFFFFF


def evaluation_seeds(
    seed: int, episodes: int | str, worlds: int = 1, *, spread: bool = False
) -> list[int]:
    """Seeds of an evaluation; the same for every agent and mode, so that comparisons are paired.

    Where a mode has several worlds, an episode's seed chooses one as its remainder, in the order of
    `world_order`: N episodes show N worlds until all were seen. If `spread`, fewer episodes than
    worlds take them from the whole order at even distances; else 10 are the first of 30.
    """
    count = episodes_of_all(worlds) if episodes == ALL else int(episodes)
    drawn = [episode_seed(seed, EVALUATION, 0, k) for k in range(count)]
    order = world_order(worlds)
    if spread and count < worlds:
        order = [order[k * worlds // count] for k in range(count)]
    shown = [order[k % len(order)] for k in range(count)]
    return [number - number % worlds + world for number, world in zip(drawn, shown, strict=True)]


def world_order(worlds: int) -> list[int]:
    """The order in which evaluations show a mode's worlds: shuffled, and always the same.

    Shuffled, because worlds that are neighbours in a benchmark's list may look alike. By
    RandomState, because its stream is frozen for good.
    """
    return np.random.RandomState(worlds).permutation(worlds).tolist()


def episodes_of_all(worlds: int = 1) -> int:
    """How many episodes `ALL` is: every world once, and few worlds in several rounds."""
    return worlds * max(1, -(-ALL_AT_LEAST // worlds)) if worlds > 1 else ALL_OF_ONE_WORLD
