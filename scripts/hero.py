"""Make the moving picture of the README: agents in the same worlds, next to each other.

    python scripts/hero.py zoo:walker_walk-{drq,svea,svea-motion} docs/images/hero.webp

Each part is the same stretch of the first evaluation episode of a mode, played by all agents with
the same seed. The bar under a picture is the reward of the last second: full means 1 per step.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from svea.evidence.film.episode import Recording, record
from svea.runs import zoo
from svea.runs.load import load_agent, load_config

PARTS = {
    "train": "the training world",
    "color_easy": "other colours",
    "color_hard": "random colours",
    "video_easy": "a video as background",
    "video_hard": "a video instead of the floor",
}
SIZE, RATE = 208, 12.0
INK, PAPER, GOOD = (235, 235, 240), (17, 19, 26), (255, 138, 76)


def main() -> None:
    """Play, draw, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("agents", nargs="+")
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--start", type=int, default=75, help="first decision that is shown")
    parser.add_argument("--length", type=int, default=30, help="decisions of each part")
    parser.add_argument("--data-dir", default=None)
    options = parser.parse_args()
    frames: list[Image.Image] = []
    agents = [play(name, options.seed, options.data_dir) for name in options.agents]
    for mode, caption in PARTS.items():
        for step in range(options.start, options.start + options.length):
            frames.append(frame(caption, [(a[0], a[1][mode]) for a in agents], step))
    settings = {"duration": round(1000 / RATE), "loop": 0, "quality": 60, "method": 6}
    frames[0].save(options.out, save_all=True, append_images=frames[1:], **settings)
    print(f"{options.out}: {options.out.stat().st_size / 1e6:.2f} MB, {len(frames)} frames")


def play(name: str, seed: int, data_dir: str | None) -> tuple[str, dict[str, Recording]]:
    """An agent's method, and an episode of it in every mode."""
    run = zoo.working_copy(Path(name))
    config, agent = load_config(run), load_agent(run)
    label = {"svea": "SVEA", "drq": "DrQ", "sac": "SAC"}.get(config.method, config.method)
    recordings = {
        mode: record(agent, config, mode, seed=seed, size=SIZE, data_dir=data_dir) for mode in PARTS
    }
    for mode, recording in recordings.items():
        print(f"{name} in {mode}: return {recording.totals[-1]:.0f}")
    return label, recordings


def frame(caption: str, agents: list[tuple[str, Recording]], step: int) -> Image.Image:
    """One picture: caption above, agents next to each other, what they earn below."""
    top, below, gap = 30, 40, 8
    width = len(agents) * SIZE + (len(agents) - 1) * gap
    picture = Image.new("RGB", (width, top + SIZE + below), PAPER)
    pen = ImageDraw.Draw(picture)
    large, small = (ImageFont.load_default(size=size) for size in (16, 14))
    pen.text((width / 2, top / 2), caption, INK, large, "mm")
    for number, (label, recording) in enumerate(agents):
        left = number * (SIZE + gap)
        picture.paste(Image.fromarray(recording.pictures[step]), (left, top))
        earned = recording.totals[step] - recording.totals[step - round(RATE)]
        share = float(np.clip(earned / (round(RATE) * 4), 0, 1))  # four steps a decision
        pen.text((left + 6, top + SIZE + below / 2), label, INK, small, "lm")
        bar = (left + 96, top + SIZE + 14, left + SIZE - 6, top + SIZE + below - 14)
        pen.rounded_rectangle(bar, 5, (44, 47, 58))
        if share > 0.03:
            pen.rounded_rectangle((*bar[:2], bar[0] + share * (bar[2] - bar[0]), bar[3]), 5, GOOD)
    return picture


if __name__ == "__main__":
    main()
