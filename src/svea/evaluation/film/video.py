"""Pictures and videos of an agent at work: one episode per mode, alone or side by side."""

from __future__ import annotations

import contextlib
import itertools
import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from svea.config.modes import modes_for
from svea.core import files
from svea.core.errors import UserError
from svea.data import ffmpeg
from svea.evaluation.film.episode import SIZE, Picture, Recording, record
from svea.evaluation.film.pictures import write_picture
from svea.runs import layout
from svea.runs.load import has_critic, load_agent, load_config

STRIP = 6  # pictures in the strip of sample frames
ENCODING_SECONDS = 60.0
"""An encoder that makes no progress for longer is stopped."""

GIF_WIDTH, GIF_RATE = 480, 10  # a GIF for a README: small enough to be sent with every page view


def record_episode(
    run: Path,
    mode: str,
    *,
    seed: int = 0,
    device: str = "cpu",
    data_dir: str | None = None,
    task: str = "",
) -> Path | None:
    """Play an evaluation's first episode in a mode; write media/MODE.mp4 and media/MODE.png."""
    config, agent = load_config(run), load_agent(run, device=device)
    recording = record(agent, config, mode, seed=seed, data_dir=data_dir, task=task)
    if not recording.pictures:
        return None
    path = layout.media_file(run, recording.mode, ".mp4")
    chosen = np.linspace(0, len(recording.pictures) - 1, STRIP).astype(int)
    columns = [with_mask(recording, k, axis=0) for k in chosen]
    strip = Image.fromarray(np.concatenate(columns, axis=1))
    decisions = range(len(recording.pictures))
    write_video(path, (with_mask(recording, k) for k in decisions), recording.rate)
    write_picture(path.with_suffix(".png"), strip)
    return path


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
    seconds: float = 0.0,
    fps: float = 0.0,
    seed: int = 0,
    size: int = SIZE,
    device: str = "cpu",
    data_dir: str | None = None,
    task: str = "",
    on_problem: Callable[[str, UserError], None],
    on_mode: Callable[[str], None] = lambda mode: None,
) -> list[Path]:
    """Write one video of an agent in several modes side by side, and a GIF if asked.

    Args:
        run: folder of a run or of an export.
        modes: one picture of the grid each, all of the same episode; groups are spelled out.
        out: the video; it ends in .mp4.
        gif: also write a GIF.
        seconds: only the beginning of the episode; 0: all of it.
        fps: decisions per second of the video, for slow motion or haste; 0: those of the episode.
        seed: of the evaluation whose first episode is shown.
        size: side of a picture, in pixels.
        device: where the agent computes.
        data_dir: folder with benchmark data; default: the run's, then SVEA_DATA.
        task: play in this task instead of the run's.
        on_problem: called with each mode that does not fit the task; the rest is shown.
        on_mode: called with each mode before it is played.
    """
    if out.suffix.lower() != ".mp4":
        raise UserError(f"out is {str(out)!r}; allowed: a file that ends in .mp4")
    if not 32 <= size <= 2048:
        raise UserError(f"size is {size}; allowed: 32 to 2048 pixels")
    if not 0 <= seconds < math.inf:
        raise UserError(f"seconds is {seconds}; allowed: 0 (the whole episode) or more")
    if not 0 <= fps <= 240:
        raise UserError(f"fps is {fps:g}; allowed: 0 (as fast as it happens) to 240")
    config, agent = load_config(run), load_agent(run, device=device)
    if not has_critic(agent):
        warnings.warn(f"{run} was stored without its critic: no Q-values are shown", stacklevel=2)
    recordings = []
    chosen: dict[str, Any] = {"seed": seed, "size": size, "data_dir": data_dir, "task": task}
    chosen["seconds"] = seconds
    for mode in modes_for(task or config.task, modes, on_problem):
        on_mode(mode)
        try:
            recordings.append(record(agent, config, mode, **chosen))
        except UserError as error:
            on_problem(mode, error)
    shown = [recording for recording in recordings if recording.pictures]
    if not shown:
        raise UserError(f"nothing to watch: no mode of {task or config.task} could be shown")
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
    _encode(
        path,
        [*raw, "-i", "-", *coding, "-movflags", "+faststart", "-f", "mp4"],
        itertools.chain([first], pictures),
    )


def write_gif(path: Path, video: Path) -> None:
    """A small GIF of a video, in the colours that suit it best; it plays forever."""
    palette = "split[a][b];[a]palettegen=max_colors=128[p];[b][p]paletteuse="
    palette += "dither=bayer:bayer_scale=5:diff_mode=rectangle"  # weak: noise does not compress
    filters = f"fps={GIF_RATE},scale='min({GIF_WIDTH},iw)':-2:flags=lanczos,{palette}"
    _encode(path, ["-i", f"file:{video}", "-vf", filters, "-loop", "0", "-f", "gif"])


def _encode(path: Path, arguments: list[str], pictures: Iterable[Picture] | None = None) -> None:
    """Let ffmpeg write a file under another name, and rename it.

    A full disk costs the new file, not the old one; what a killed process left goes first.
    """
    unfinished = files.partial(path)
    with files.writing(path):
        files.make_folder(path.parent)
        files.sweep_one(path)
        # Its progress tells a slow one from one that hangs.
        command = [ffmpeg.executable(), "-v", "error", "-progress", "pipe:1", "-y", *arguments]
        try:
            if problem := _run([*command, f"file:{unfinished}"], pictures):
                raise OSError(problem)
            files.finish(unfinished, path)
        except BaseException:
            with contextlib.suppress(OSError):
                files.remove(unfinished)
            raise


def _run(command: list[str], pictures: Iterable[Picture] | None) -> str:
    """Run ffmpeg on pictures, or on what the command names; what went wrong, if anything did."""
    try:
        with ffmpeg.Process(command, pictures is not None, ENCODING_SECONDS) as process:
            for picture in pictures or ():
                if not process.write(np.ascontiguousarray(picture).tobytes()):
                    break
            return process.finish()
    except ffmpeg.Silent:
        return f"ffmpeg made no progress for {ENCODING_SECONDS:g} s"
