"""How long the runs of an edition take on this machine, before any of them has been trained."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

import torch

from svea import speed
from svea.agents import make_agent
from svea.bench import ACTIONS, CPU, noise_replay
from svea.bench.decisions import time_environments
from svea.bench.update import least_work, time_update
from svea.config import Config
from svea.core.machine import usable_cores
from svea.core.terminal import Steps
from svea.core.words import duration, plural
from svea.evaluation.episodes import episodes_in
from svea.studies import PlannedRun

DECISIONS = 25  # that are timed of each task


def forecast(runs: Sequence[PlannedRun]) -> list[str]:
    """Hours of runs on one core, from the time of one kind of update and of decisions here.

    Other kinds of updates take longer by their arithmetic, and evaluations as long as the decisions
    that they make. Augmentations, harder modes, start-up and saving are left out.
    """
    kinds = {_kind(run.config): run.config for run in runs}
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
        update_ms = {}
        for kind, config in kinds.items():
            update_ms[kind] = share * timed["ms"] * _gflop(_bare(config)) / timed["gflop"]
            steps.finish("counting")
    torch.set_num_threads(threads)
    decision_ms = {row["task"]: share * row["ms"] for row in rows}
    seconds = [
        (run.decisions * update_ms[_kind(run.config)] + _played(run) * decision_ms[run.config.task])
        / 1e3
        for run in runs
    ]
    cores, total, longest = usable_cores(), sum(seconds), max(seconds)
    least, most = min(decision_ms.values()), max(decision_ms.values())
    return [
        f"forecast for this machine: {total / 3600:,.1f} hours of one core for "
        f"{plural(len(runs), 'run')}, the longest {duration(longest)}; with {cores} at once about "
        f"{duration(max(total / cores, longest))} (timed now, one thread: an update of "
        f"{timed['method']} {share * timed['ms']:.1f} ms, decisions {least:.1f} to {most:.1f} ms)"
    ]


def _played(run: PlannedRun) -> int:
    """Decisions that a run makes, those of its evaluations too."""
    config = run.config
    times = -(-config.decisions // config.eval_every) + config.eval_first
    final = sum(int(episodes_in(run.episodes, mode)) for mode in run.modes)
    episodes = times * len(config.eval_modes) * config.eval_episodes + final
    return config.decisions + episodes * config.episode_length


def _kind(config: Config) -> tuple[object, ...]:
    """What the arithmetic of an update depends on."""
    return config.method, config.base, config.encoder, config.recipe


def _bare(config: Config) -> Config:
    """A configuration whose strong augmentation, if any, needs no pictures."""
    return config if config.augment == "none" else dataclasses.replace(config, augment="conv")


def _gflop(config: Config) -> float:
    """The arithmetic of an update."""
    replay = noise_replay(config, CPU, 200)
    learner = speed.Learner(make_agent(config, ACTIONS, CPU), replay, config.batch_size)
    return least_work(learner)[0] / 1e9
