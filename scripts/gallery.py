"""Make the clips of the gallery page: agents of the zoo in every mode.

    python scripts/gallery.py            # all clips: about 15 minutes on two cores
    python scripts/gallery.py color_hard # only those of some modes, or agents

Each clip is the same stretch of the first evaluation episode (seed 0) of a mode, whatever happens
in it. Videos in the worlds are generated: the benchmark's footage has licences of its own. The
clips and docs/gallery/clips.json, which says what each one shows, are committed; scripts/site.py
puts them on the page, with the returns that the agents' cards have.
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image

from svea.config.modes import GEOMETRY_MODES, LIGHT_MODES, MODES, PICTURE_MODES
from svea.core import files
from svea.evaluation.film import record, write_video
from svea.runs import zoo
from svea.runs.load import load_agent, load_config

FOLDER = Path(__file__).resolve().parents[1] / "docs/gallery"
LIST = FOLDER / "clips.json"
SIZE, SECONDS = 192, 3.2
BEGIN = {"walker_walk": 3.0, "cartpole_swingup": 0.0, "finger_spin": 1.0}  # seconds
PAPER = [mode for mode in MODES if mode != "distracting_cs"]
PAPER += ["distracting_cs:0.1", "distracting_cs:0.5"]
MAIN = "walker_walk-svea"
SHOWN = {
    "paper": (PAPER, [MAIN, "walker_walk-svea-motion", "walker_walk-drq",
                      "cartpole_swingup-svea-motion", "finger_spin-svea-motion"]),
    "geometry": ([*GEOMETRY_MODES], [MAIN]),
    "lights": ([*LIGHT_MODES], [MAIN]),
    "pictures": ([*PICTURE_MODES], [MAIN]),
}  # fmt: skip
"""Per section of the page its modes, and the agents that are shown in each."""


def clips() -> Iterator[dict[str, Any]]:
    """What there is to show, in the order of the page."""
    for section, (modes, agents) in SHOWN.items():
        for mode in modes:
            for agent in agents:
                name = f"{agent}-{mode.replace(':', '-')}"
                yield {"section": section, "mode": mode, "agent": agent, "file": f"{name}.mp4",
                       "still": f"{name}.webp"}  # fmt: skip


def main(chosen: list[str]) -> None:
    """Play and write; the list is written last."""
    os.environ.pop("SVEA_DATA", None)
    files.make_folder(FOLDER)
    for clip in clips():
        if not chosen or {clip["mode"], clip["agent"]} & {*chosen}:
            write_clip(clip)
    listed = list(clips())
    files.write_whole(LIST, json.dumps({"size": SIZE, "clips": listed}, indent=1).encode() + b"\n")
    total = sum(path.stat().st_size for path in FOLDER.iterdir())
    print(f"{FOLDER}: {len(listed)} clips, {total / 1e6:.2f} MB")


def write_clip(clip: dict[str, Any]) -> None:
    """One episode, its clip and its still picture."""
    run = zoo.source(zoo.PREFIX + clip["agent"])
    config = load_config(run)
    recording = record(load_agent(run), config, clip["mode"], size=SIZE)
    first = round(BEGIN[config.task] * recording.rate)
    shown = recording.pictures[first : first + round(SECONDS * recording.rate)]
    write_video(FOLDER / clip["file"], shown, recording.rate)
    still = io.BytesIO()
    Image.fromarray(shown[0]).save(still, "webp", quality=60, method=6)
    files.write_whole(FOLDER / clip["still"], still.getvalue())
    size = sum((FOLDER / clip[key]).stat().st_size for key in ("file", "still"))
    print(f"{clip['file']}: {size / 1e3:.0f} kB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
