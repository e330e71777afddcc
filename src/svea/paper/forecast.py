"""How long the runs of an edition take on this machine, before any of them has been trained."""

import time
from collections.abc import Sequence
from dataclasses import replace

import torch

from svea.bench import CPU
from svea.bench.decisions import time_environments
from svea.bench.update import time_update
from svea.config import Config
from svea.core.machine import usable_cores
from svea.core.terminal import Steps
from svea.core.words import duration, plural
from svea.evaluation import episodes_in
from svea.studies import PlannedRun

DECISIONS, UPDATES = 25, 5  # that are timed of each task and kind; of updates as many cycles


def forecast(runs: Sequence[PlannedRun]) -> list[str]:
    """Hours of runs on one core, from the time of their kinds of updates and of decisions here.

    Evaluations take as long as the decisions that they make. Augmentations, harder modes, start-up
    and saving are left out.
    """
    kinds = {_kind(run.config): run.config for run in runs}
    tasks = dict.fromkeys(run.config.task for run in runs)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with Steps("kinds of updates", len(kinds)) as steps:
        steps.begin("timing")
        wall, used = time.perf_counter(), time.process_time()
        rows = time_environments(tasks, ["train"], DECISIONS, 1, image_size=48)
        update_ms = {}
        for kind, config in kinds.items():
            # A strong augmentation that needs no pictures.
            plain = config if config.augment == "none" else replace(config, augment="conv")
            update_ms[kind] = time_update(plain, CPU, "auto", "auto", UPDATES, parts=False)["ms"]
            steps.finish("timing")
        # Of a busy machine: by how much a core by itself would have been faster.
        share = min(1.0, (time.process_time() - used) / (time.perf_counter() - wall))
    torch.set_num_threads(threads)
    decision_ms = {row["task"]: row["ms"] for row in rows}
    seconds = []
    for config, played in ((run.config, _played(run)) for run in runs):
        ms = config.decisions * update_ms[_kind(config)] + played * decision_ms[config.task]
        seconds.append(share * ms / 1e3)
    cores, total, longest = usable_cores(), sum(seconds), max(seconds)
    return [
        f"forecast for this machine: {total / 3600:,.1f} hours of one core for "
        f"{plural(len(runs), 'run')}, the longest {duration(longest)}; with {cores} at once about "
        f"{duration(max(total / cores, longest))} (timed now, with one thread)"
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
