"""Pictures and videos of an agent at work: one episode per mode, alone or side by side."""

from __future__ import annotations

import math
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import imageio_ffmpeg
import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from svea import files
from svea.envs import make_env
from svea.envs.actions import as_action
from svea.errors import StorageError, UserError
from svea.evidence.evaluation import (
    Episode,
    deployed_policy,
    environment_in,
    modes_for,
)
from svea.runs import layout
from svea.runs.load import load_agent, load_config
from svea.seeds import evaluation_seeds

if TYPE_CHECKING:
    from svea.agents.agent import Agent
    from svea.config import Config

STRIP = 6  # pictures in the strip of sample frames
SIZE = 240  # side of a picture, in pixels
GIF_WIDTH, GIF_RATE = 480, 10  # a GIF for a README: small enough to be sent with every page view

Picture = NDArray[np.uint8]  # (H, W, 3)


@dataclass
class Take:
    """One episode as it was played, a value per decision."""

    mode: str
    rate: float = 25.0
    """Decisions per second of simulated time."""
    observations: list[NDArray[np.uint8]] = field(default_factory=list)
    actions: list[NDArray[np.float32]] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    """The world before each decision; none where an environment does not draw itself."""
    totals: list[float] = field(default_factory=list)
    """The return before each decision."""
    q: list[float] = field(default_factory=list)
    """The Q-value of each decision's observation and action."""


def shoot(
    agent: Agent,
    config: Config,
    mode: str,
    *,
    seed: int = 0,
    size: int | None = SIZE,
    data_dir: str | None = None,
) -> Take:
    """Play an evaluation's first episode in a mode, in this process, and keep what there is to see.

    Args:
        agent: who plays.
        config: of its run.
        mode: where.
        seed: of the evaluation.
        size: side of the pictures; None takes none.
        data_dir: folder with benchmark data; default: the run's, then SVEA_DATA.
    """
    chosen: dict[str, Any] = {"render_size": size} if size else {"render_mode": None}
    environment = make_env(**environment_in(config, mode, data_dir) | chosen)
    policy = deployed_policy(agent, config)
    worlds = getattr(environment.unwrapped, "provenance", {}).get("worlds", 1)
    episode = Episode(evaluation_seeds(seed, 1, worlds)[0])
    take = Take(mode, environment.metadata.get("render_fps", 25))
    try:
        observation, _ = environment.reset(seed=episode.seed)
        done = False
        while not done:
            action = policy(observation[None], [episode])[0]
            _keep(take, agent, observation, action, episode.total, environment if size else None)
            step = environment.step(as_action(environment, action))
            observation, reward, terminated, truncated, _ = step
            episode.total += float(reward)
            episode.length += 1
            done = bool(terminated or truncated)
    finally:
        environment.close()
    return take


def _keep(
    take: Take,
    agent: Agent,
    observation: NDArray[np.uint8],
    action: NDArray[np.float32],
    total: float,
    environment: Any,
) -> None:
    """Add a decision to a take."""
    take.observations.append(observation)
    take.actions.append(action)
    take.totals.append(total)
    seen, done = torch.as_tensor(observation)[None], torch.as_tensor(action)[None]
    take.q.append(float(agent.q_value(seen, done)))
    picture = environment.render() if environment is not None else None
    if picture is not None:  # a user's environment need not draw itself
        take.pictures.append(np.asarray(picture))


def record_episode(
    run: Path, mode: str, *, seed: int = 0, device: str = "cpu", data_dir: str | None = None
) -> Path | None:
    """Play an evaluation's first episode in a mode; write media/MODE.mp4 and media/MODE.png."""
    config, agent = load_config(run), load_agent(run, device=device)
    take = shoot(agent, config, mode, seed=seed, data_dir=data_dir)
    if not take.pictures:
        return None
    path = layout.media_file(run, mode, ".mp4")
    chosen = np.linspace(0, len(take.pictures) - 1, STRIP).astype(int)
    strip = Image.fromarray(np.concatenate([take.pictures[k] for k in chosen], axis=1))
    write_video(path, take.pictures, take.rate)
    with _storing(path):
        strip.save(path.with_suffix(".png"))
    return path


def watch(
    run: Path,
    modes: Sequence[str],
    out: Path,
    *,
    gif: bool = False,
    seed: int = 0,
    size: int = SIZE,
    device: str = "cpu",
    data_dir: str | None = None,
    on_problem: Callable[[str, UserError], None],
    on_mode: Callable[[str], None] = lambda mode: None,
) -> list[Path]:
    """Write one video of an agent in several modes side by side, and a GIF if asked.

    Args:
        run: folder of a run or of an export.
        modes: one picture of the grid each, all of the same episode; `all` is what the task has.
        out: the video; it ends in .mp4.
        gif: write a smaller GIF beside it.
        seed: of the evaluation whose first episode is shown.
        size: side of a picture, in pixels.
        device: where the agent computes.
        data_dir: folder with benchmark data; default: the run's, then SVEA_DATA.
        on_problem: called with each mode that does not fit the task; the rest is shown.
        on_mode: called with each mode before it is played.
    """
    if out.suffix.lower() != ".mp4":
        raise UserError(f"out is {str(out)!r}; allowed: a file that ends in .mp4")
    if not 32 <= size <= 2048:
        raise UserError(f"size is {size}; allowed: 32 to 2048 pixels")
    config, agent = load_config(run), load_agent(run, device=device)
    takes = []
    for mode in modes_for(config.task, modes, on_problem):
        on_mode(mode)
        try:
            takes.append(shoot(agent, config, mode, seed=seed, size=size, data_dir=data_dir))
        except UserError as error:
            on_problem(mode, error)
    shown = [take for take in takes if take.pictures]
    if not shown:
        raise UserError(f"nothing to watch: no mode of {config.task} could be shown")
    frames = list(grid(shown))
    write_video(out, frames, shown[0].rate)
    if gif:
        write_gif(out.with_suffix(".gif"), out)
    return [out, out.with_suffix(".gif")] if gif else [out]


def grid(takes: Sequence[Take]) -> Iterator[Picture]:
    """Frames of several takes side by side; one that has ended shows its last picture."""
    columns = math.ceil(math.sqrt(len(takes)))
    rows = math.ceil(len(takes) / columns)
    for decision in range(max(len(take.pictures) for take in takes)):
        cells = [_cell(take, min(decision, len(take.pictures) - 1)) for take in takes]
        cells += [np.zeros_like(cells[0])] * (rows * columns - len(cells))
        lines = [cells[start : start + columns] for start in range(0, len(cells), columns)]
        yield np.concatenate([np.concatenate(line, axis=1) for line in lines])


def _cell(take: Take, decision: int) -> Picture:
    """A picture with its mode above, and return and Q-value below."""
    picture = take.pictures[decision]
    height, width, _ = picture.shape
    bar = max(16, width // 10) // 2 * 2  # even, as H.264 wants all sizes
    cell = Image.new("RGB", (width, height + 2 * bar), (16, 18, 22))
    cell.paste(Image.fromarray(picture), (0, bar))
    pen, font = ImageDraw.Draw(cell), ImageFont.load_default(size=0.6 * bar)
    white, below = (240, 240, 240), height + 1.5 * bar
    pen.text((width / 2, bar / 2), take.mode, fill=white, font=font, anchor="mm")
    pen.text((4, below), f"return {take.totals[decision]:.1f}", white, font, "lm")
    pen.text((width - 4, below), f"Q {take.q[decision]:.1f}", white, font, "rm")
    return np.asarray(cell)


def write_video(path: Path, pictures: Iterable[Picture], rate: float) -> None:
    """H.264 that every browser plays, from pictures (H, W, 3)."""
    pictures = list(pictures)
    height, width, _ = pictures[0].shape
    # Encoded elsewhere and written in one go: a full disk costs the new video, not the old one.
    with _storing(path), files.writing(path), tempfile.TemporaryDirectory() as folder:
        encoded = Path(folder) / "video.mp4"
        writer = imageio_ffmpeg.write_frames(
            str(encoded),
            (width, height),
            fps=rate,
            codec="libx264",
            pix_fmt_out="yuv420p",
            macro_block_size=2,  # yuv420p halves the colour planes
            output_params=["-crf", "26", "-movflags", "+faststart"],
            ffmpeg_log_level="error",
        )
        writer.send(None)
        for picture in pictures:
            writer.send(np.ascontiguousarray(picture))
        writer.close()
        files.replace(path, [encoded.read_bytes()])


def write_gif(path: Path, video: Path) -> None:
    """A small GIF of a video, in the colours that suit it best; it plays for ever."""
    palette = "split[a][b];[a]palettegen=max_colors=128[p];[b][p]paletteuse=dither=bayer"
    filters = f"fps={GIF_RATE},scale='min({GIF_WIDTH},iw)':-2:flags=lanczos,{palette}"
    program = imageio_ffmpeg.get_ffmpeg_exe()
    command = [program, "-loglevel", "error", "-y", "-i", video, "-vf", filters, "-loop", "0", path]
    with _storing(path):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise OSError(done.stderr.strip())


@contextmanager
def _storing(path: Path) -> Iterator[None]:
    """Make a file's folder, and turn the system's word on a failed write into ours."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error}") from error
