"""Run folders made up for tests: everything about them is known in advance."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

EPISODES = 10


def write_run(
    folder: Path,
    *,
    task: str = "walker_walk",
    method: str = "svea",
    augment: str = "conv",
    seed: int = 0,
    preset: str = "quick",
    decisions: int = 6000,
    evaluations: int = 7,
    final: dict[str, float] | None = None,
    random: float = 40.0,
    success: dict[str, float] | None = None,
    variance: float | None = None,
    curves: tuple[str, ...] | None = None,
    noise: float = 0.0,
    seconds: float | None = None,
    **config: Any,
) -> Path:
    """Write a finished run whose final mean returns are exactly `final`.

    Training logs the modes in `curves` (all, unless given), as straight lines from zero, or with
    `noise` as curves that jump by that share of their height. With `success`, that share of the
    episodes of each mode succeeds (to a tenth); with `variance`, every evaluation logs it as
    `q_target_variance`, times one plus its number. It took `seconds` (default: 0.1 a decision).
    """
    final = final or {"train": 300.0, "color_hard": 240.0}
    folder.mkdir(parents=True, exist_ok=True)
    settings = {
        "task": task,
        "method": method,
        "augment": augment,
        "encoder": "cnn",
        "preset": preset,
        "seed": seed,
        "decisions": decisions,
        "action_repeat": 4,
        "image_size": 84 if preset == "paper" else 48,
        "recipe": {"alpha": 0.5, "beta": 0.5, "K": 1, "M": 1},
        "svea_version": "0.1.0",
        "command": f"svea train {task} --method {method} --seed {seed}",
        **config,
    }
    (folder / "config.json").write_text(json.dumps(settings))
    generator = np.random.default_rng(seed)
    watched = {mode: final[mode] for mode in curves or final}
    each = 0.1 if seconds is None else seconds / decisions
    lines = training(decisions, evaluations, watched, generator, each)
    for line in lines if noise else []:
        if line["kind"] == "eval":
            line["return_mean"] *= 1 + float(generator.normal(0, noise))
    if variance is not None:
        for number, line in enumerate(line for line in lines if line.get("mode") == "train"):
            line["q_target_variance"] = variance * (1 + number)
    write_lines(folder / "metrics.jsonl", lines)
    who = {"task": task, "method": method, "augment": augment, "run_seed": seed}
    records = []
    for mode, mean in final.items():
        for policy, level, decision in (("agent", mean, decisions), ("random", random, 0)):
            records += episodes(who, policy, mode, level, decision, preset == "paper")
    for record in records if success else []:
        successes = round(success[record["mode"]] * EPISODES) if record["policy"] == "agent" else 0
        record["success"] = record["episode"] < successes
    write_lines(folder / "eval.jsonl", records)
    checkpoint = folder / "checkpoints" / f"{decisions:09d}"
    checkpoint.mkdir(parents=True, exist_ok=True)
    (checkpoint / "manifest.json").write_text("{}")
    return folder


def write_seeds(folder: Path, count: int = 5, **settings: Any) -> list[Path]:
    """Runs that differ in their seed alone; unless told otherwise, whole replications."""
    whole: dict[str, Any] = {"preset": "paper", "decisions": 500_000, "evaluations": 2}
    whole |= settings
    return [write_run(folder / str(seed), seed=seed, **whole) for seed in range(count)]


def write_analysis(folder: Path, name: str, rows: list[dict[str, Any]]) -> None:
    """What `svea analyze` leaves behind."""
    (folder / "analysis").mkdir(exist_ok=True)
    (folder / "analysis" / f"{name}.json").write_text(json.dumps({"rows": rows}))


def training(
    decisions: int,
    evaluations: int,
    final: dict[str, float],
    generator: np.random.Generator,
    seconds: float = 0.1,
) -> list[dict[str, Any]]:
    """Metrics lines: curves that climb in a straight line to the final returns."""
    lines: list[dict[str, Any]] = []
    for step in np.linspace(0, decisions, evaluations).astype(int).tolist():
        stamp = {"decision": step, "frame": 4 * step, "seconds": round(step * seconds, 6)}
        for mode, mean in final.items():
            height = mean * step / decisions
            returns = {"return_mean": height, "return_std": 1.0, "returns": [height] * 2}
            lines.append({"kind": "eval", **stamp, "mode": mode, **returns, "episodes": 2})
        lines.append({"kind": "train", **stamp, "critic_loss": 0.1, "actor_loss": -1.0})
    for step in range(250, decisions + 1, max(250, decisions // 40)):
        noisy = final.get("train", 0.0) * step / decisions + float(generator.normal(0, 15))
        stamp = {"decision": step, "frame": 4 * step, "seconds": round(step * seconds, 6)}
        lines.append({"kind": "episode", **stamp, "return": noisy, "length": 250, "env": 0})
    return lines


def episodes(
    who: dict[str, Any], policy: str, mode: str, mean: float, decision: int, is_real: bool = False
) -> list[dict[str, Any]]:
    """Evaluation episodes whose mean is exact: pairs at equal distance above and below it.

    Their test data is generated, or the benchmark's if `is_real`.
    """
    source = "dmcgb" if is_real else "other" if mode == "train" else "generated"
    spread = [(-1) ** i * (1 + i // 2) * mean / 20 for i in range(EPISODES)]
    return [
        {
            "policy": policy,
            **who,
            "mode": mode,
            "episode": i,
            "seed": 100 + i,
            "return": mean + spread[i],
            "length": 250,
            "decision": decision,
            "provenance": {"source": source},
        }
        for i in range(EPISODES)
    ]


def write_lines(path: Path, records: list[dict[str, Any]]) -> None:
    """JSON lines."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def change_records(folder: Path, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> Path:
    """Put what a function makes of each record of `eval.jsonl` in its place; None: nothing."""
    records = map(json.loads, (folder / "eval.jsonl").read_text().splitlines())
    write_lines(folder / "eval.jsonl", [one for one in map(change, records) if one is not None])
    return folder


def add_media(folder: Path, modes: tuple[str, ...] = ("train", "color_hard")) -> None:
    """Small real pictures and h264 videos, one per mode."""
    from PIL import Image
    from small_media import write_video

    media = folder / "media"
    media.mkdir(exist_ok=True)
    for number, mode in enumerate(modes):
        strip = np.zeros((64, 4 * 64, 3), np.uint8)
        strip[..., number % 3] = np.linspace(40, 250, 256).astype(np.uint8)
        Image.fromarray(strip).save(media / f"{mode}.png")
        rolled = [np.roll(strip, 8 * shift, axis=1)[:, :64] for shift in range(10)]
        write_video(media / f"{mode}.mp4", np.stack(rolled))
