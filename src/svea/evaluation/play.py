"""Playing whole episodes with a policy, in parallel, each a function of its seed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from svea.agents.policies import Policy
from svea.core.machine import usable_cores
from svea.envs.workers.pool import Workers

SUCCESS = ("is_success", "success")
"""Where an environment's `info` says whether the task is solved; the last one counts."""


class Interrupted(Exception):
    """Evaluation was asked to stop before its end."""


@dataclass
class EpisodeResult:
    """The outcome of an episode, as far as it is played."""

    seed: int
    total: float = 0.0
    length: int = 0
    success: bool | None = None
    """None where the task has no notion of success."""
    world: int | str | None = None
    """Which of a mode's worlds it shows: the number of a colour setting or robot world, the name of
    a clip; None where there is only one."""
    drawn_by: str | None = None
    """Who drew its pictures, where that was not the usual renderer of its environment."""


def parallel_environments(requested: int, episodes: int | str) -> int:
    """How many environments evaluate at once: as asked, or one per core."""
    count = requested or min(16, usable_cores())
    return count if isinstance(episodes, str) else min(episodes, count)


def play(
    policy: Policy,
    workers: Workers,
    seeds: Iterable[int],
    should_stop: Callable[[], bool] = lambda: False,
    on_episode: Callable[[EpisodeResult], None] = lambda episode: None,
) -> list[EpisodeResult]:
    """Play one episode per seed; a worker that ends one takes the next.

    The policy always sees the observations of *all* workers, so that every action is computed in a
    batch of the same size: other sizes take other kernels, whose last bits differ.
    """
    episodes = [EpisodeResult(seed) for seed in seeds]
    waiting = iter(episodes)
    playing: list[EpisodeResult | None] = [None] * len(workers)

    def start(idle: Iterable[int]) -> None:  # all at once: an episode's first picture takes long
        if should_stop():
            raise Interrupted
        taken = dict(zip(idle, waiting, strict=False))
        for worker, episode in taken.items():
            playing[worker] = episode
        if taken:
            workers.reset([episode.seed for episode in taken.values()], list(taken))

    start(range(len(workers)))
    while active := [worker for worker, episode in enumerate(playing) if episode is not None]:
        if should_stop():
            raise Interrupted
        actions = policy(workers.observations, playing)
        workers.send(actions[active], [None] * len(active), active)
        ended = []
        for worker, step in zip(active, workers.receive(), strict=True):
            episode = playing[worker]
            assert episode is not None
            episode.total += step.reward
            episode.length += 1
            episode.world = step.info.get("world", episode.world)
            episode.drawn_by = step.info.get("drawn_by")
            for name in SUCCESS:
                if name in step.info:
                    episode.success = bool(step.info[name])
            if step.done:
                on_episode(episode)
                playing[worker] = None
                ended.append(worker)
        start(ended)
    return episodes
