"""How long a report over a whole study takes, and how much it weighs.

    python benchmarks/report.py [--runs 125] [--points 500]

The study is made up: 5 tasks x 5 settings x 5 seeds, each evaluated 500 times during training in
two modes, then in all modes, with frames and the files of `svea analyze`. It must take at most 20 s
and 15 MB without videos; the script says so and exits with 1 if it does not.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests/support")]

from fake_runs import write_analysis, write_run  # noqa: E402

from svea.results.report import report  # noqa: E402

TASKS = ("walker_walk", "walker_stand", "cartpole_swingup", "ball_in_cup_catch", "finger_spin")
SETTINGS = (
    ("svea", "conv"),
    ("svea", "overlay"),
    ("drq", "none"),
    ("drq", "conv"),
    ("rad", "none"),
)
MODES = ("train", "color_easy", "color_hard", "video_easy", "video_hard", "distracting_cs")
AUGMENTATIONS = ("shift", "conv", "overlay", "cutout", "blur", "affine-jitter", "rotation")
MOST_SECONDS, MOST_BYTES = 20.0, 15_000_000


def write_study(root: Path, runs: int, points: int) -> None:
    """Runs with rising, noisy curves and frames that compress as badly as real ones."""
    generator = np.random.default_rng(0)
    root.mkdir(parents=True)
    strips = {mode: root / f"{mode}.png" for mode in MODES}
    for path in strips.values():
        _strip(generator).save(path)
    for number in range(runs):
        task = TASKS[number % len(TASKS)]
        method, augment = SETTINGS[number // len(TASKS) % len(SETTINGS)]
        seed = number // (len(TASKS) * len(SETTINGS))
        folder = write_run(
            root / f"{task}-{method}-{augment}-{seed}",
            task=task,
            method=method,
            augment=augment,
            seed=seed,
            preset="paper",
            decisions=500_000,
            evaluations=points,
            final={mode: float(generator.uniform(100, 900)) for mode in MODES},
            curves=("train", "color_hard"),
            noise=0.05,
            variance=float(generator.uniform(0.1, 9)),
        )
        rows = [{"augment": name, "gap": float(generator.uniform(1, 20))} for name in AUGMENTATIONS]
        write_analysis(folder, "q-gap", rows)
        (folder / "media").mkdir()
        for mode in MODES:
            shutil.copy(strips[mode], folder / "media" / f"{mode}.png")


def _strip(generator: np.random.Generator) -> Image.Image:
    """Six frames of 240 pixels: smooth shapes under a little noise."""
    coarse = generator.integers(0, 256, (6, 36, 3), dtype=np.uint8)
    smooth = Image.fromarray(coarse).resize((1440, 240), Image.Resampling.BICUBIC)
    noisy = np.asarray(smooth, dtype=np.int16) + generator.integers(-4, 5, (240, 1440, 1))
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def main() -> int:
    """Build the study, time the report, and compare with the limits."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=125)
    parser.add_argument("--points", type=int, default=500)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_study(root / "runs", options.runs, options.points)
        wall, cpu = time.perf_counter(), time.process_time()
        page = report([root / "runs"], root / "report.html")
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        size = page.stat().st_size
    print(
        f"{options.runs} runs, {options.points} points each: {wall:.1f} s ({cpu:.1f} s of CPU), "
        f"{size / 1e6:.1f} MB; limits {MOST_SECONDS:.0f} s, {MOST_BYTES / 1e6:.0f} MB"
    )
    return int(wall > MOST_SECONDS or size > MOST_BYTES)


if __name__ == "__main__":
    sys.exit(main())
