"""Contact sheets: pictures that show what the parts do to observations.

Only the sheet of augmentations needs torch.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from svea.config.modes import WORLDS
from svea.core import files
from svea.core.errors import UserError
from svea.core.seeds import world_order
from svea.envs import check_task, expand_modes, make_env
from svea.envs.looks import provenance_of

if TYPE_CHECKING:
    from svea.augment.images import ImageBank

Observations = np.ndarray
"""Between 0 and 1, with shape (samples, 3 x stacked frames, height, width)."""
Draw = Callable[[str], Observations]
"""Draws a row's observations of a task."""

SHEET_ROWS = (
    *("none", "shift", "crop", "conv", "overlay", "overlay_drift", "cutout", "blur"),
    *("affine_jitter", "rotation", "spectrum", "amplitude_mix"),
)
"""The rows of the sheet: the paper's in the order of its appendix, and those of other methods."""

MOVING = "overlay_drift"
"""Its frames differ: a row with it shows the whole stacks of fewer samples."""

SHEET_MODES = (
    "train",
    *("color_easy", "color_hard", "video_easy", "video_hard"),
    *("distracting_cs:0.1", "distracting_cs:0.2", "distracting_cs:0.5"),
    *("picture_colors", "picture_video"),
)
"""The rows of the sheet of environments: the paper's in the order of its appendix, then those that
fit any environment."""

SHEET_TASKS = ("walker_walk", "cartpole_swingup")
SHEET_WORLDS = 5  # of the robot's test worlds in a row
ROBOT_SCALE = 2  # its pictures are small
INK, PAPER, GAP = (34, 34, 40), (255, 255, 255), 6
LABEL = 150  # width of the names, at least
OnRow = Callable[[str], None]


def augmentations(
    out: Path,
    *,
    rows: Sequence[str] = SHEET_ROWS,
    tasks: Sequence[str] = SHEET_TASKS,
    samples: int = 6,
    seed: int = 0,
    images: ImageBank | None = None,
    on_row: OnRow = lambda row: None,
) -> Path:
    """Write a sheet with samples of each augmentation on observations of each task.

    Rows are augmentations or compositions such as `conv+cutout`; pictures for overlay are generated
    where none are given.
    """
    import torch

    from svea.augment import augmentation
    from svea.augment.images import ImageBank

    def row(name: str) -> Draw:
        augment = augmentation(name, lambda: images or ImageBank.procedural())
        generator = torch.Generator().manual_seed(seed)
        size = 100 if "crop" in name else 84  # crop cuts 84 pixels out of 100

        def draw(task: str) -> Observations:
            observations = torch.as_tensor(_observations(task, samples, seed, size))
            stacks = augment(observations, generator).numpy()
            frames = stacks.reshape(-1, 3, *stacks.shape[2:])  # of the first the oldest, ...
            return frames[:samples] if MOVING in name else stacks

        return draw

    return _sheet(out, {name.replace("_", "-"): row(name) for name in rows}, tasks, on_row)


def environments(
    out: Path,
    *,
    modes: Sequence[str] = SHEET_MODES,
    tasks: Sequence[str] = SHEET_TASKS,
    samples: int = 6,
    seed: int = 0,
    data_dir: str | Path | None = None,
    on_row: OnRow = lambda row: None,
) -> Path:
    """Write a sheet with episodes of each mode of each task; all tasks must have these modes.

    An episode has random actions and is shown some decisions after its start. Episodes show
    different worlds, the same in every task; where a light moves, later ones are further on.
    """
    for task in tasks:
        check_task(task)
    chosen = list(dict.fromkeys(row for task in tasks for row in expand_modes(modes, task)))
    for task in tasks:
        expand_modes(chosen, task)
    rows = {
        mode.replace("distracting_cs", "distracting").replace("_", " "): partial(
            _episodes, mode=mode, count=samples, seed=seed, data_dir=data_dir
        )
        for mode in chosen
    }
    return _sheet(out, rows, tasks, on_row)


def robot(
    out: Path,
    *,
    tasks: Sequence[str] = ("robot_reach", "robot_push"),
    seed: int = 0,
    on_row: OnRow = lambda row: None,
) -> Path:
    """Write a sheet with the robot's training look and all of its test worlds.

    Every sheet shows every world once per task; the seed chooses the episodes.
    """
    show = partial(_episodes, count=SHEET_WORLDS, data_dir=None)
    rows = {"train": partial(show, mode="train", seed=seed)}
    for world in range(0, WORLDS, SHEET_WORLDS):
        first = seed * WORLDS + world  # the remainder of an episode's seed is its world
        name = f"test {world} to {world + SHEET_WORLDS - 1}"
        rows[name] = partial(show, mode="test", seed=first)
    return _sheet(out, rows, tasks, on_row, ROBOT_SCALE)


def _sheet(
    out: Path, rows: Mapping[str, Draw], tasks: Sequence[str], on_row: OnRow, scale: int = 1
) -> Path:
    """Write a sheet of rows by name, each drawn for every task."""
    cells = []
    for name, draw in rows.items():
        cells.append([draw(task) for task in tasks])
        on_row(name)
    titles = [task.replace("_", " ") for task in tasks]
    return save(sheet_of(list(rows), titles, cells, scale), Path(out))


def _episodes(
    task: str, mode: str, count: int, seed: int, data_dir: str | Path | None
) -> Observations:
    """One observation of each of several episodes, soon after its start."""
    env = make_env(task, mode, data_dir=data_dir)
    env.action_space.seed(seed)
    worlds = world_order(provenance_of(env).get("worlds", 1))
    kept = []
    for episode in range(count):
        world = worlds[(seed + episode) % len(worlds)]
        asked = {} if mode == "test" else {"world": world}  # the robot's follow from the seed
        env.reset(seed=seed + episode, options=asked)
        later = 20 * episode if mode.startswith("moving_light") else 0
        for _ in range(6 + later):
            observation, *_ = env.step(env.action_space.sample())
        kept.append(observation)
    env.close()
    return np.stack(kept).astype(np.float32) / 255


@cache
def _observations(task: str, count: int, seed: int, size: int) -> Observations:
    """Observations of one episode of random actions, far enough apart to differ."""
    env = make_env(task, mode="train", seed=seed, image_size=size)
    env.action_space.seed(seed)
    observation, _ = env.reset(seed=seed)
    kept = [observation]
    while len(kept) < count:
        for _ in range(4):
            observation, *_ = env.step(env.action_space.sample())
        kept.append(observation)
    env.close()
    return np.stack(kept).astype(np.float32) / 255


def sheet_of(
    rows: list[str], titles: list[str], cells: list[list[Observations]], scale: int
) -> Image.Image:
    """Lay out cells[row][column], each a batch of observations, with names on the left."""
    side, head = cells[0][0].shape[-1] * scale, 40
    block = len(cells[0][0]) * (side + GAP) + 3 * GAP  # the samples of one task
    font = ImageFont.load_default(size=18)
    names = max(LABEL, *(round(font.getlength(row)) + 4 * GAP for row in rows))
    size = (names + len(titles) * block, head + len(rows) * (side + GAP) + GAP)
    sheet = Image.new("RGB", size, PAPER)
    pen = ImageDraw.Draw(sheet)
    for column, title in enumerate(titles):
        centre = names + column * block + (block - 3 * GAP) // 2
        pen.text((centre, head // 2), title, fill=INK, font=font, anchor="mm")
    for row, name in enumerate(rows):
        top = head + row * (side + GAP)
        pen.text((names - 2 * GAP, top + side // 2), name, fill=INK, font=font, anchor="rm")
        for column, batch in enumerate(cells[row]):
            for index, observation in enumerate(batch):
                left = names + column * block + index * (side + GAP)
                sheet.paste(_picture(observation, side), (left, top))
    return sheet


def _picture(observation: np.ndarray, side: int) -> Image.Image:
    """The newest frame of an observation, enlarged without smoothing."""
    frame = (observation[-3:].clip(0, 1) * 255).round().astype(np.uint8)
    picture = Image.fromarray(np.ascontiguousarray(frame.transpose(1, 2, 0)))
    return picture.resize((side, side), Image.Resampling.NEAREST)


def check_name(out: Path) -> None:
    """Refuse a name that is not a PNG's, before anything is drawn."""
    if out.suffix.lower() != ".png":
        raise UserError(f"the sheet is a PNG; got {out}. Name a file that ends in .png")


def save(picture: Image.Image, out: Path) -> Path:
    """Write a PNG, making its folder."""
    check_name(out)
    buffer = io.BytesIO()
    picture.save(buffer, "PNG", optimize=True)
    files.write_whole(out, buffer.getvalue())
    return out
