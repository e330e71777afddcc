"""What a study will cost: time, disk and GPU hours, from measured speeds or not at all."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from svea import files
from svea.errors import UserError
from svea.studies import RunState, Study
from svea.words import duration

if TYPE_CHECKING:  # see svea.studies
    from svea.config import Config

ACTIONS = 8  # dimensions of an action, for sizes in which they hardly count
GENERATIONS = 3  # checkpoints on disk at once: two kept, one being written


@dataclass(frozen=True)
class Speed:
    """A measured speed of whole runs; the evaluations that go with them are extra."""

    device: str
    preset: str
    envs: int
    decisions_per_second: float
    source: str


# SVEA with its defaults, one run at a time. Other machines differ; `--speed` and the study's own
# runs count before these.
SPEEDS: tuple[Speed, ...] = (
    Speed("cpu", "quick", 1, 17.4, "as SVEA's on 2 vCPUs without GPU, docs/demo.md"),
    Speed("cuda", "paper", 16, 570.1, "as SVEA's on one H200 without evaluations, "
          "benchmarks/RESULTS.md"),
)  # fmt: skip


@dataclass(frozen=True)
class Forecast:
    """Estimates for what is left of a study."""

    runs: int
    finished: int
    seconds: float | None
    """Of all runs that are left, one after the other; None where no speed is known."""
    wall_seconds: float | None
    gpu_hours: float | None
    disk_bytes: int
    basis: str
    """Where the speed comes from."""

    def lines(self) -> list[str]:
        """For people."""
        left = self.runs - self.finished
        size = f"{self.runs} run{'s' * (self.runs != 1)}"
        if not left:
            return [f"{size}, all of them done"]
        time = "unknown" if self.wall_seconds is None else f"about {duration(self.wall_seconds)}"
        gpu = "unknown" if self.gpu_hours is None else f"about {self.gpu_hours:,.1f}"
        gpu = "none, because no GPU is used" if self.gpu_hours == 0 else gpu
        return [
            size + (f", {self.finished} of them done" if self.finished else ""),
            f"time for the {left} left: {time} ({self.basis})",
            f"GPU hours: {gpu}",
            f"disk: up to {self.disk_bytes / 1e9:,.1f} GB",
        ]


def forecast(
    study: Study,
    states: Sequence[RunState],
    at_once: int,
    speed: float = 0.0,
    gpus: float | None = 0.0,
) -> Forecast:
    """Estimate what is left of a study.

    Args:
        study: what to estimate.
        states: of its runs.
        at_once: how many runs work at the same time.
        speed: decisions per second of one run; 0: as measured in the study, else in the table.
        gpus: share of a GPU that one run takes; None: nobody knows before it starts.
    """
    left = [state for state in states if state.state != "done"]
    configs = [state.run.config for state in left]
    device = "unknown" if gpus is None else "cuda" if gpus else "cpu"
    seconds, basis = 0.0, ""
    own = statistics.median(measured) if (measured := own_speeds(states)) else 0.0
    for state, config in zip(left, configs, strict=True):
        rate, source = speed or own, "--speed" if speed else f"speed of {len(measured)} of its runs"
        if not rate and (known := _known_speed(config, device)):
            rate, source = known.decisions_per_second, known.source
        if not rate:
            seconds = float("nan")
            basis = "no run of this study is timed yet, nor one like it; --speed sets it"
            break
        basis = source
        seconds += max(state.run.decisions - state.progress.decision, 0) / rate
    known_time = seconds == seconds
    disk = sum(disk_bytes(config) for config in configs)
    if left and all(state.run.drop_replay for state in left):
        replays = sorted((run_replay_bytes(config) for config in configs), reverse=True)
        disk -= sum(replays[at_once:])
    return Forecast(
        runs=len(states),
        finished=len(states) - len(left),
        seconds=seconds if known_time else None,
        wall_seconds=seconds / max(min(at_once, len(left)), 1) if known_time else None,
        gpu_hours=_gpu_hours(seconds, gpus),
        disk_bytes=disk,
        basis=basis or "nothing is left",
    )


def _gpu_hours(seconds: float, gpus: float | None) -> float | None:
    """GPU hours of so many seconds; None where time or share are unknown."""
    if gpus == 0:
        return 0.0
    return None if gpus is None or seconds != seconds else seconds * gpus / 3600


def own_speeds(states: Sequence[RunState]) -> list[float]:
    """Decisions per second of the study's own runs, evaluations included."""
    progress = [state.progress for state in states]
    return [one.decision / one.seconds for one in progress if one.seconds and one.decision]


def disk_bytes(config: Config) -> int:
    """What a run's folder grows to, rounded up: replay, checkpoints, log."""
    from svea.networks.cnn import output_size

    size = config.network
    if config.encoder == "vit":
        features = size.width
    else:
        side = output_size(config.image_size, size.layers, size.strided_layers)
        features = size.filters * side * side
    projection = features * size.projection
    heads = 3 * (size.projection + size.hidden + 2) * size.hidden
    # Two projections and their target, weights and Adam's two moments: four times is enough.
    agent = 4 * 4 * (2 * projection + heads) + 16_000_000
    return files.at_most(run_replay_bytes(config) + GENERATIONS * agent)


def require_space(study: Study, forecast: Forecast) -> None:
    """Refuse a study that the disk cannot hold, before it starts."""
    place = next(p for p in (study.folder, *study.folder.parents) if p.exists())
    free = shutil.disk_usage(place).free
    written = sum(_size(study.run_folder(run)) for run in study.runs)
    needed = forecast.disk_bytes - written
    if needed > free:
        raise UserError(
            f"the study needs up to {needed / 1e9:,.1f} GB more, but {place} has "
            f"{free / 1e9:,.1f} GB free. Name another --out, keep only what is being worked at "
            "with --drop-replay, or make runs smaller with --set replay=..."
        )


def run_replay_bytes(config: Config) -> int:
    """The replay in a run's folder."""
    from svea.replay import replay_bytes

    capacity = min(config.replay, config.decisions + config.envs)
    size = config.rendered_size
    return replay_bytes(capacity, size, ACTIONS, config.envs, config.episode_length)


def _known_speed(config: Config, device: str) -> Speed | None:
    """The table's speed for a configuration that differs in nothing that takes time."""
    from svea.config import differences, to_dict

    free = ("seed", "warmup", "eval_", "log_every", "overlay_dir")
    for one in SPEEDS:
        if one.device == device and config.speed == "auto":
            changed = differences(_measured_settings(config.task, one), to_dict(config))
            if all(line.startswith(free) for line in changed):
                return one
    return None


@cache
def _measured_settings(task: str, one: Speed) -> dict[str, Any]:
    """The settings behind a speed; resolved once, because a study has thousands of runs."""
    from svea.config import resolve, to_dict

    return to_dict(resolve(task, preset=one.preset, envs=one.envs))


def _size(folder: Path) -> int:
    """Bytes in a run's replay, the part that counts."""
    replay = folder / "replay"
    return sum(f.stat().st_size for f in replay.iterdir()) if replay.is_dir() else 0
