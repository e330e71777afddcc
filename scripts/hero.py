"""Make the moving picture of the README: agents of equal training in the same worlds.

    python scripts/hero.py zoo:walker_walk-{drq,svea-100k,svea-drift} docs/images/hero.webp

Each part is the end of one evaluation episode of a mode, played by all agents with the same seed.
The episode is a typical one, not the best: of those that are recorded in results/ for all agents,
that in which the lead of the second agent over the first is the median (of an even number, the
lower of the two in the middle). Videos are generated ones, since the benchmark's are not ours to
publish; of these, five episodes are played to choose from. The bar under a picture is the return so
far; full is 1,000, the most that an episode can return.
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

from svea.core.words import number
from svea.data.clips import VARIABLE
from svea.evaluation.film import Recording, record
from svea.evaluation.requests import fingerprint
from svea.results.read import read_run
from svea.runs import zoo
from svea.runs.load import load_agent, load_config

ROOT = Path(__file__).resolve().parents[1]
PARTS = {
    "train": "the world of training",
    "color_hard": "random colours (color_hard)",
    "video_easy": "a video as background (video_easy)",
    "video_hard": "a video instead of sky and floor (video_hard)",
}
GENERATED = ("video_easy", "video_hard")
SIZE, RATE, MOST = 208, 12.0, 1000
INK, PAPER, GOOD = (235, 235, 240), (17, 19, 26), (255, 138, 76)
Returns = dict[int, float]  # of the episodes of a mode, by number


def main() -> None:
    """Choose the episodes, play, draw, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("agents", nargs="+")
    parser.add_argument("out", type=Path)
    parser.add_argument("--length", type=int, default=40, help="last decisions that are shown")
    options = parser.parse_args()
    os.environ.pop(VARIABLE, None)
    returns = [returns_of(name) for name in options.agents]
    chosen = {mode: typical([each[mode] for each in returns]) for mode in PARTS}
    agents = [play(name, chosen) for name in options.agents]
    frames: list[Image.Image] = []
    for mode, caption in PARTS.items():
        shown = [(label, recordings[mode]) for label, recordings in agents]
        count = len(shown[0][1].pictures)
        frames += [frame(caption, shown, step) for step in range(count - options.length, count)]
    settings = {"duration": round(1000 / RATE), "loop": 0, "quality": 60, "method": 6}
    frames[0].save(options.out, save_all=True, append_images=frames[1:], **settings)
    print(f"{options.out}: {options.out.stat().st_size / 1e6:.2f} MB, {len(frames)} frames")


def returns_of(name: str) -> dict[str, Returns]:
    """What an agent of the zoo returned in episodes of each part, by their numbers."""
    folder = zoo.home() / name.removeprefix(zoo.PREFIX)
    run = read_run(ROOT / json.loads((folder / zoo.CARD).read_text())["run"])
    config, agent = load_config(folder), load_agent(folder)
    weights = fingerprint(agent)
    found: dict[str, Returns] = {mode: {} for mode in PARTS}
    for each in run.agent_episodes:
        if each["weights"] == weights and each["mode"] in found:
            found[each["mode"]][each["episode"]] = each["return"]
    for mode in GENERATED:
        played = (record(agent, config, mode, number=k, size=SIZE) for k in range(5))
        found[mode] = {k: one.totals[-1] for k, one in enumerate(played)}
    return found


def typical(agents: list[Returns]) -> int:
    """The episode with the median lead of the second agent, of those that all have played."""
    common = sorted(set.intersection(*(set(returns) for returns in agents)))
    leads = sorted((agents[1][episode] - agents[0][episode], episode) for episode in common)
    return leads[(len(leads) - 1) // 2][1]


def play(name: str, chosen: dict[str, int]) -> tuple[str, dict[str, Recording]]:
    """An agent's method, and its episode of every mode."""
    run = zoo.working_copy(Path(name))
    config, agent = load_config(run), load_agent(run)
    label = {"svea": "SVEA", "drq": "DrQ", "sac": "SAC"}.get(config.method, config.method)
    recordings = {}
    for mode, episode in chosen.items():
        recordings[mode] = record(agent, config, mode, number=episode, size=SIZE)
        print(f"{name} in {mode}, episode {episode}: {recordings[mode].totals[-1]:.0f}")
    return label, recordings


def frame(caption: str, agents: list[tuple[str, Recording]], step: int) -> Image.Image:
    """One picture: caption above, agents next to each other, what they returned so far below."""
    top, below, gap = 30, 52, 8
    width = len(agents) * SIZE + (len(agents) - 1) * gap
    picture = Image.new("RGB", (width, top + SIZE + below), PAPER)
    pen = ImageDraw.Draw(picture)
    large, small = (ImageFont.load_default(size=size) for size in (16, 14))
    pen.text((width / 2, top / 2), caption, INK, large, "mm")
    for place, (label, recording) in enumerate(agents):
        left, under = place * (SIZE + gap), top + SIZE
        picture.paste(Image.fromarray(recording.pictures[step]), (left, top))
        total = recording.totals[step]
        pen.text((left + 6, under + 16), label, INK, small, "lm")
        said = f"return {number(total)} of {MOST:,}"
        pen.text((left + SIZE - 6, under + 16), said, INK, small, "rm")
        bar = (left + 6, under + 32, left + SIZE - 6, under + 42)
        pen.rounded_rectangle(bar, 5, (44, 47, 58))
        end = bar[0] + min(total / MOST, 1.0) * (bar[2] - bar[0])
        if end - bar[0] > 8:
            pen.rounded_rectangle((*bar[:2], end, bar[3]), 5, GOOD)
    return picture


if __name__ == "__main__":
    main()
