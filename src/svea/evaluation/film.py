"""An agent at work: one episode as it was played, and pictures and videos of it."""

from __future__ import annotations

import contextlib
import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from svea.agents.policies import deployed_policy
from svea.config.modes import is_factor, label_mode, modes_for, parse_mode
from svea.config.options import FRAMES
from svea.core import files
from svea.core.errors import UserError, at_least, between
from svea.data import ffmpeg
from svea.envs import make_env
from svea.envs.dmc import describe_actions
from svea.envs.stacking import describe_observations
from svea.evaluation.play import OneEpisode, check_fits, expected_return, naming_users_code
from svea.evaluation.sheets import save
from svea.runs import layout
from svea.runs.load import has_critic, load_agent, load_config

if TYPE_CHECKING:
    from svea.agents.agent import Agent
    from svea.config import Config
    from svea.views import Views


SIZE = 240  # side of a picture, in pixels

Picture = NDArray[np.uint8]  # (H, W, 3)


@dataclass
class Recording:
    """One episode as it was played, a value per decision."""

    mode: str
    rate: float = 25.0
    """Decisions per second of simulated time."""
    observations: list[NDArray[Any]] = field(default_factory=list)
    actions: list[NDArray[np.float32]] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    """The world before each decision; none where an environment does not draw itself."""
    totals: list[float] = field(default_factory=list)
    """The return before each decision."""
    masks: list[Picture] = field(default_factory=list)
    """How much a masker keeps of the newest frame's pixels, white all; none without a masker."""
    objects: list[NDArray[np.bool_]] = field(default_factory=list)
    """Where the task is in each frame of an observation, (3, H, W); only if asked for."""
    q: list[float] = field(default_factory=list)
    """The Q-value of each decision's observation and action; nan for an agent without critic."""

    def keep_objects(self, newest: NDArray[np.bool_]) -> None:
        """Add where the task is in the newest picture; before the first one all were like it."""
        before = self.objects[-1] if self.objects else np.stack([newest] * FRAMES)
        self.objects.append(np.stack([*before[1:], newest]))

    def keep(self, agent: Agent, episode: OneEpisode, action: NDArray[np.float32]) -> None:
        """Add a decision, without its picture."""
        self.observations.append(episode.observation)
        self.actions.append(action)
        self.totals.append(episode.result.total)
        self.q.append(expected_return(agent, episode.observation, action))
        if agent.masker is not None:
            self.masks.append(mask_picture(agent, agent.split(episode.observation[None])[0]))

    def spread(self, count: int) -> NDArray[np.int64]:
        """Moments of the episode, evenly spread from its first decision to its last."""
        return np.linspace(0, len(self.actions) - 1, count).astype(int)


def stacked(values: Sequence[Any], moments: NDArray[np.int64], agent: Agent) -> torch.Tensor:
    """A recording's values at some moments as a batch, where the agent computes."""
    return torch.as_tensor(np.stack([values[k] for k in moments])).to(agent.device)


def views_at(recording: Recording, moments: NDArray[np.int64], agent: Agent) -> Views:
    """What the agent sees of an episode at some moments."""
    pictures, vectors = agent.split(np.stack([recording.observations[k] for k in moments]))
    return agent.views(pictures.to(agent.device), vectors=vectors)


def record(
    agent: Agent,
    config: Config,
    mode: str,
    *,
    seed: int = 0,
    number: int = 0,
    size: int | None = SIZE,
    data_dir: str | None = None,
    task: str = "",
    objects: bool = False,
    seconds: float = 0.0,
) -> Recording:
    """Play one episode of an evaluation in a mode, in this process, and keep what there is to see.

    It has the seed and number of its record, and may end after some seconds. With a size it has
    pictures, and with `objects` where the task is, by the simulator's segmentation. `data_dir` and
    `task` replace the run's.
    """
    chosen: dict[str, Any] = {"seed": 0}  # as in workers, for a user's function that takes a seed
    if size:
        chosen |= {"render_mode": "rgb_array", "render_size": size}
    environment = make_env(**config.environment_in(mode, data_dir, task) | chosen)
    recording = Recording(label_mode(mode, task), environment.metadata.get("render_fps", 25))
    most = max(1, round(seconds * recording.rate)) if seconds else math.inf
    with contextlib.closing(environment), naming_users_code(task or config.task):
        _, parts = describe_observations(environment)
        actions = describe_actions(environment.action_space)
        check_fits(agent, *actions, parts, task or config.task)
        episode = OneEpisode(environment, deployed_policy(agent, config), seed, number)
        while not episode.done and episode.result.length < most:
            if objects:
                recording.keep_objects(environment.unwrapped.foreground())  # type: ignore[attr-defined]
            action = episode.choose()
            recording.keep(agent, episode, action)
            picture = environment.render() if size else None
            if picture is not None:  # a user's environment need not draw itself
                recording.pictures.append(np.asarray(picture))
            episode.step(action)
    return recording


def record_each(
    agent: Agent,
    config: Config,
    modes: Sequence[str],
    on_problem: Callable[[str, UserError], None],
    on_mode: Callable[[str], None] = lambda mode: None,
    **options: Any,
) -> Iterator[Recording]:
    """`record` in several modes; groups are spelled out, and what does not fit is a problem."""
    task, played = options.get("task") or config.task, 0
    for mode in modes_for(task, modes, on_problem):
        on_mode(mode)
        try:
            recording = record(agent, config, mode, **options)
        except UserError as error:
            on_problem(mode, error)
        else:
            played += 1
            yield recording
    if not played:
        raise UserError(f"none of the modes {', '.join(modes)} of {task} could be shown")


@torch.no_grad()
def mask_picture(agent: Agent, observation: torch.Tensor) -> Picture:
    """The mask of an observation's newest frame, (H, W, 3): black where nothing is kept.

    Of two pictures, of the first.
    """
    assert agent.masker is not None
    view = agent.views(observation.to(agent.device))["clean", 0]
    kept = (255 * agent.masker.masks(view)[0, FRAMES - 1]).round().to(torch.uint8).cpu().numpy()
    return np.repeat(kept[..., None], 3, axis=2)


STRIP = 6  # pictures in the strip of sample frames
ENCODING_SECONDS = 60.0  # an encoder that makes no progress for longer is stopped
GIF_WIDTH, GIF_RATE = 480, 10  # a GIF for a README: small enough to be sent with every page view


def record_episode(run: Path, mode: str, *, device: str = "cpu", **options: Any) -> Path | None:
    """Play an evaluation's first episode in a mode; write media/MODE.mp4 and media/MODE.png.

    The options are those of `record`.
    """
    recording = record(load_agent(run, device=device), load_config(run), mode, **options)
    if not recording.pictures:
        return None
    path = layout.media_file(run, recording.mode, ".mp4")
    columns = [with_mask(recording, k, axis=0) for k in recording.spread(STRIP)]
    pictures = (with_mask(recording, k) for k in range(len(recording.pictures)))
    write_video(path, pictures, recording.rate)
    save(Image.fromarray(np.concatenate(columns, axis=1)), path.with_suffix(".png"))
    return path


def draw_factors(run: Path, modes: Iterable[str], data_dir: str | None = None) -> None:
    """Draw how the agent sees worlds with factors at values, and train: media/factors/MODE.png."""
    config = load_config(run)
    shown = [mode for mode in dict.fromkeys(modes) if mode == "train" or is_factor(mode)]
    left = [mode for mode in shown if not layout.factor_file(run, mode).exists()]
    if not left:
        return
    env = make_env(**config.environment_in("train", data_dir))
    with contextlib.closing(env), naming_users_code(config.task):
        for mode in left:
            seen, _ = env.reset(seed=0, options=parse_mode(mode, config.task)[1])
            picture = np.ascontiguousarray(seen[-3:].transpose(1, 2, 0))
            save(Image.fromarray(picture), layout.factor_file(run, mode))


def with_mask(recording: Recording, decision: int, axis: int = 1) -> Picture:
    """A picture, and next to it (or below, with axis 0) its mask where the agent has a masker."""
    picture = recording.pictures[decision]
    if not recording.masks:
        return picture
    mask = Image.fromarray(recording.masks[decision])
    size = picture.shape[1], picture.shape[0]
    return np.concatenate([picture, mask.resize(size, Image.Resampling.NEAREST)], axis)


def watch(
    run: Path,
    modes: Sequence[str],
    out: Path,
    *,
    gif: bool = False,
    fps: float = 0.0,
    seconds: float = 0.0,
    size: int = SIZE,
    device: str = "cpu",
    **options: Any,
) -> list[Path]:
    """Write one video of an agent in several modes side by side, and a GIF if asked.

    All show the same episode, or its first seconds; `fps` is for slow motion or haste, 0 is as fast
    as decisions happen. The other options are those of `record_each`.
    """
    if out.suffix.lower() != ".mp4":
        raise UserError(f"out is {str(out)!r}; allowed: a file that ends in .mp4")
    between(32, 2048).check("size", size)
    at_least(0).check("seconds", seconds)
    between(0, 240).check("fps", fps)
    config, agent = load_config(run), load_agent(run, device=device)
    if not has_critic(agent):
        warnings.warn(f"{run} was stored without its critic: no Q-values are shown", stacklevel=2)
    recordings = record_each(agent, config, modes, seconds=seconds, size=size, **options)
    shown = [recording for recording in recordings if recording.pictures]
    if not shown:
        raise UserError(f"nothing to watch: {options.get('task') or config.task} draws no pictures")
    write_video(out, grid(shown), fps or shown[0].rate)
    if gif:
        write_gif(out.with_suffix(".gif"), out)
    return [out, out.with_suffix(".gif")] if gif else [out]


def grid(recordings: Sequence[Recording]) -> Iterator[Picture]:
    """Frames of several recordings, side by side; one that has ended shows its last picture."""
    columns = math.ceil(math.sqrt(len(recordings)))
    rows = math.ceil(len(recordings) / columns)
    for decision in range(max(len(recording.pictures) for recording in recordings)):
        cells = [
            _cell(recording, min(decision, len(recording.pictures) - 1)) for recording in recordings
        ]
        cells += [np.zeros_like(cells[0])] * (rows * columns - len(cells))
        lines = [cells[start : start + columns] for start in range(0, len(cells), columns)]
        yield np.concatenate([np.concatenate(line, axis=1) for line in lines])


def _cell(recording: Recording, decision: int) -> Picture:
    """A picture with its mode above, and return and Q-value below; to its right any mask."""
    picture = with_mask(recording, decision)
    height, width, _ = picture.shape
    bar = max(16, height // 10) // 2 * 2  # even, as H.264 wants all sizes
    cell = Image.new("RGB", (width, height + 2 * bar), (16, 18, 22))
    cell.paste(Image.fromarray(picture), (0, bar))
    pen, font = ImageDraw.Draw(cell), ImageFont.load_default(size=0.6 * bar)
    white, below = (240, 240, 240), height + 1.5 * bar
    title = f"{recording.mode} and mask" if recording.masks else recording.mode
    room = min(1.0, 0.9 * width / font.getlength(title))  # long titles are written smaller
    small = ImageFont.load_default(size=0.6 * bar * room)
    pen.text((width / 2, bar / 2), title, fill=white, font=small, anchor="mm")
    pen.text((4, below), f"return {recording.totals[decision]:.1f}", white, font, "lm")
    q = recording.q[decision]
    pen.text((width - 4, below), f"Q {q:.1f}" if math.isfinite(q) else "no Q", white, font, "rm")
    return np.asarray(cell)


def write_video(path: Path, pictures: Iterable[Picture], rate: float) -> None:
    """H.264 that every browser plays, from pictures (H, W, 3)."""
    ffmpeg.encoder()  # one that cannot is named, not the disk
    pictures = iter(pictures)
    first = next(pictures)
    height, width, _ = first.shape
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}", "-r", f"{rate:.10g}"]
    even = "pad=ceil(iw/2)*2:ceil(ih/2)*2"  # yuv420p halves the colour planes
    coding = ["-c:v", ffmpeg.H264, "-pix_fmt", "yuv420p", "-vf", even, "-crf", "26"]
    arguments = [*raw, "-i", "-", *coding, "-movflags", "+faststart", "-f", "mp4"]
    _encode(path, arguments, itertools.chain([first], pictures))


def write_gif(path: Path, video: Path) -> None:
    """A small GIF of a video, in the colours that suit it best; it plays forever."""
    palette = "split[a][b];[a]palettegen=max_colors=128[p];[b][p]paletteuse="
    palette += "dither=bayer:bayer_scale=5:diff_mode=rectangle"  # weak: noise does not compress
    filters = f"fps={GIF_RATE},scale='min({GIF_WIDTH},iw)':-2:flags=lanczos,{palette}"
    _encode(path, ["-i", f"file:{video}", "-vf", filters, "-loop", "0", "-f", "gif"])


def _encode(path: Path, arguments: list[str], pictures: Iterable[Picture] = ()) -> None:
    """Let ffmpeg write a file under another name, and rename it.

    A full disk costs the new file, not the old one; what a killed process left goes first.
    """
    with files.replacing(path) as unfinished:
        # Its progress tells a slow one from one that hangs.
        command = [ffmpeg.executable(), "-v", "error", "-progress", "pipe:1", "-y", *arguments]
        command.append(f"file:{unfinished}")
        try:
            with ffmpeg.Process(command, "-" in arguments, ENCODING_SECONDS) as process:
                for picture in pictures:
                    if not process.write(np.ascontiguousarray(picture).tobytes()):
                        break
                if problem := process.finish():
                    raise OSError(problem)
        except ffmpeg.Silent:
            raise OSError(f"ffmpeg made no progress for {ENCODING_SECONDS:g} s") from None
