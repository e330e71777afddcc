"""How long the runs of an edition take on this machine, before any of them has been trained."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Sequence

import torch

from svea import speed
from svea.agents import make_agent
from svea.bench.decisions import time_environments
from svea.bench.timing import ACTIONS, CPU, noise_replay
from svea.bench.update import least_work, time_update
from svea.config import Config
from svea.core.machine import usable_cores
from svea.core.terminal import Steps
from svea.core.words import duration, plural
from svea.evaluation.episodes import episodes_in
from svea.studies import PlannedRun

DECISIONS = 25  # that are timed of each task
OF_ALL = 100  # episodes of a mode, where every world is shown once


def forecast(runs: Sequence[PlannedRun]) -> list[str]:
    """Hours of runs on one core, from the time of one kind of update and of decisions here.

    Other kinds of updates take longer by their arithmetic, and evaluations as long as the decisions
    that they make. Augmentations, harder modes, start-up and saving are left out.
    """
    kinds = {_kind(run.config): run.config for run in reversed(runs)}
    tasks = dict.fromkeys(run.config.task for run in runs)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with Steps("kinds of updates", len(kinds)) as steps:
        steps.doing("timing")
        wall, used = time.perf_counter(), time.process_time()
        timed = time_update(_bare(runs[0].config), CPU, "auto", "auto", 10, parts=False)
        rows = time_environments(tasks, ["train"], DECISIONS, 1, image_size=48)
        # Of a busy machine: by how much a core by itself would have been faster.
        share = min(1.0, (time.process_time() - used) / (time.perf_counter() - wall))
        gflop = {}
        for kind, config in kinds.items():
            gflop[kind] = _gflop(_bare(config))
            steps.finish("counting")
    torch.set_num_threads(threads)
    update_ms, decision_ms = share * timed.ms, {row.task: share * row.ms for row in rows}
    seconds = [
        run.decisions * update_ms / 1e3 * gflop[_kind(run.config)] / timed.gflop
        + _played(run) * decision_ms[run.config.task] / 1e3
        for run in runs
    ]
    cores, longest = usable_cores(), max(seconds)
    return [
        f"forecast for this machine: {sum(seconds) / 3600:,.1f} hours of one core for "
        f"{plural(len(runs), 'run')}, the longest {duration(longest)}; with {cores} at once about "
        f"{duration(max(sum(seconds) / cores, longest))}",
        f"(timed now, at a load of {os.getloadavg()[0]:.1f} on {plural(cores, 'core')}: an update "
        f"of {timed.method} {update_ms:.1f} ms of a core, a decision "
        f"{min(decision_ms.values()):.1f} to {max(decision_ms.values()):.1f} ms)",
    ]


def _played(run: PlannedRun) -> int:
    """Decisions that a run makes, those of its evaluations too."""
    config, episodes = run.config, 0
    if config.eval_every:
        times = -(-config.decisions // config.eval_every) + config.eval_first
        episodes = times * len(config.eval_modes) * config.eval_episodes
    for mode in run.modes:
        final = episodes_in(run.episodes, mode)
        episodes += final if isinstance(final, int) else OF_ALL
    return config.decisions + episodes * config.episode_length


def _kind(config: Config) -> tuple[object, ...]:
    """What the arithmetic of an update depends on."""
    return config.method, config.base, config.encoder, config.recipe


def _bare(config: Config) -> Config:
    """A configuration whose strong augmentation, if any, needs no pictures."""
    return config if config.augment == "none" else dataclasses.replace(config, augment="conv")


def _gflop(config: Config) -> float:
    """The arithmetic of an update."""
    agent = make_agent(config, ACTIONS, CPU)
    learner = speed.Learner(agent, noise_replay(config, CPU, 200), config.batch_size)
    return least_work(learner)[0] / 1e9
