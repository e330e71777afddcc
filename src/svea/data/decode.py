"""Decoding pictures and videos of unknown origin: what is accepted, how large, and for how long.

A hostile file must not take the machine's memory, hang it, or make a decoder open anything else.
"""

from __future__ import annotations

import math
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from svea import files
from svea.data import ffmpeg
from svea.errors import StorageError

SIDE = 128
"""Side of every decoded or generated frame in pixels: more than an observation shows. 49 kB."""

FRAME_BYTES = SIDE * SIDE * 3
MOST_PIXELS = 4096 * 2304
"""Larger video frames are refused."""

MOST_PICTURE_PIXELS = 6000 * 6000
"""Larger pictures are refused: decoding one takes at most about 220 MB."""

MOST_PICTURE_BYTES = 256 * 2**20
MOST_BYTES = 64 * 2**30
"""Larger files are refused: pictures, and videos."""

SMALLEST_SIDE = 32
"""Overlay skips pictures with a shorter side."""

SECONDS = 60
"""A decoder that takes longer is stopped."""

VIDEO_ENDINGS = (".avi", ".m4v", ".mkv", ".mov", ".mp4", ".webm")
PICTURE_ENDINGS = (".bmp", ".jpeg", ".jpg", ".png", ".webp")

_FORMATS = ("BMP", "JPEG", "PNG", "WEBP")  # Pillow hands some others to other programs
_ERRORS = (OSError, SyntaxError, ValueError)  # what Pillow raises for damaged files


class DecodeError(Exception):
    """What is wrong with a file, in words that follow `it`."""


def read_picture(path: Path, *, square: bool = False, smallest: int = 1) -> np.ndarray:
    """Decode a picture at `(SIDE, SIDE, 3)` uint8.

    Args:
        path: The file; it must be of one of the common formats, whatever its name says.
        square: Cut out the middle; else the picture is stretched to a square.
        smallest: Pictures with a shorter side are refused.

    Raises:
        DecodeError: It is damaged, too large or too small, or not a picture.
    """
    from PIL import Image

    def resize(picture: Any) -> np.ndarray:
        picture.draft("RGB", (SIDE, SIDE))  # JPEG: decodes at 1/2, 1/4, 1/8 where that is enough
        width, height = picture.size
        edge = min(width, height)
        left, top = (width - edge) // 2, (height - edge) // 2
        box = (left, top, left + edge, top + edge) if square else None
        small = picture.convert("RGB").resize((SIDE, SIDE), Image.Resampling.BILINEAR, box)
        return np.asarray(small)

    return _decode(path, smallest, resize)


def check_picture(path: Path) -> None:
    """Decode a picture for overlay at its full size.

    Raises:
        DecodeError: As in `read_picture`.
    """
    _decode(path, SMALLEST_SIDE, lambda picture: picture.load())


def _decode(path: Path, smallest: int, use: Callable[[Any], Any]) -> Any:
    """Open a picture within limits and use it."""
    from PIL import Image, UnidentifiedImageError

    try:
        with files.open_plain(path, MOST_PICTURE_BYTES) as content:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # the limit is ours
                opened = Image.open(content, formats=_FORMATS)
            with opened as picture:
                size = f"{picture.width} x {picture.height}"
                if math.prod(picture.size) > MOST_PICTURE_PIXELS:
                    raise DecodeError(f"is too large: {size} pixels")
                if min(picture.size) < smallest:
                    raise DecodeError(f"is too small: {size}; at least {smallest} are needed")
                return use(picture)
    except FileNotFoundError as error:
        raise DecodeError("is not a file") from error
    except StorageError as error:
        raise DecodeError(f"is not a file to be read ({error})") from error
    except UnidentifiedImageError as error:
        raise DecodeError("is not a picture") from error
    except Image.DecompressionBombError as error:
        raise DecodeError("is too large") from error
    except _ERRORS as error:
        raise DecodeError(f"is damaged: {error}") from error


def ffmpeg_command(
    path: Path, filters: str, frames: int, before: Sequence[str] = (), after: Sequence[str] = ()
) -> list[str]:
    """The command that decodes a video to raw frames on its standard output.

    Args:
        path: The video; it may only be what its name says: no playlists, no network.
        filters: ffmpeg's video filters, which must scale to `SIDE`.
        frames: At most this many.
        before: Further options of the input.
        after: Further options of the output.
    """
    command = [ffmpeg.executable(), "-nostdin", "-v", "error", "-threads", "1"]
    command += ["-protocol_whitelist", "file", "-format_whitelist", "mov,mp4,matroska,webm,avi"]
    command += ["-max_pixels", str(MOST_PIXELS), *before, "-i", f"file:{path}", "-an", "-sn", "-dn"]
    command += ["-vf", filters, "-frames:v", str(frames), *after]
    return [*command, "-f", "rawvideo", "-pix_fmt", "rgb24", "-"]


def read_video(
    path: Path, frames: int, on_start: Callable[[Callable[[], None]], None]
) -> Iterator[np.ndarray]:
    """Decode a video frame by frame at `(SIDE, SIDE, 3)`, stretched to a square.

    Args:
        path: The video.
        frames: At most this many.
        on_start: Called with a function that stops the decoder.

    Raises:
        DecodeError: It is damaged, or not a video.
        FfmpegError: ffmpeg itself does not work.
    """
    limits = ("-xerror", "-timelimit", str(SECONDS))
    command = ffmpeg_command(path, f"scale={SIDE}:{SIDE}:flags=bilinear", frames, limits)
    done = 0
    with ffmpeg.Process(command) as process:
        on_start(process.stop)
        try:
            while len(data := process.read(FRAME_BYTES)) == FRAME_BYTES:
                yield np.frombuffer(data, np.uint8).reshape(SIDE, SIDE, 3)
                done += 1
            message = process.finish()
        except ffmpeg.Silent:
            try_decoder()  # is it ffmpeg, or the file?
            message = f"ffmpeg gave no frame for {ffmpeg.SILENT_SECONDS:g} s"
    if message:
        raise DecodeError(f"is damaged or not a video after {done} frames ({message})")


def read_key_frames(path: Path, frames: int = 64) -> np.ndarray:
    """The key frames of a video, `(count, SIDE, SIDE, 3)`: the frames between cost no decoding.

    The middle square of each; none if the video is damaged or takes too long.

    Raises:
        FfmpegError: ffmpeg itself does not work.
    """
    square = f"crop='min(iw,ih)':'min(iw,ih)',scale={SIDE}:{SIDE}"
    only = ("-skip_frame", "nokey", "-timelimit", str(SECONDS))
    command = ffmpeg_command(path, square, frames, only, ("-fps_mode", "passthrough"))
    with ffmpeg.Process(command) as process:
        try:
            output = process.read(frames * FRAME_BYTES)
        except ffmpeg.Silent:
            try_decoder()
            output = b""
    whole = len(output) // FRAME_BYTES * FRAME_BYTES
    return np.frombuffer(output[:whole], np.uint8).reshape(-1, SIDE, SIDE, 3)


def try_decoder() -> None:
    """Let ffmpeg make a video of a few frames, and decode it as a background is.

    Raises:
        FfmpegError: It cannot.
    """
    source = ["-f", "lavfi", "-i", "testsrc=size=32x32:rate=5", "-frames:v", "3"]
    with tempfile.TemporaryDirectory() as folder:
        clip = Path(folder) / "clip.mp4"
        command = [ffmpeg.executable(), "-v", "error", *source, "-pix_fmt", "yuv420p", str(clip)]
        try:
            with ffmpeg.Process(command) as process:
                problem = process.finish()
            if not problem:
                decoding = ffmpeg_command(clip, f"scale={SIDE}:{SIDE}", 3)
                with ffmpeg.Process(decoding) as process:
                    given = len(process.read(3 * FRAME_BYTES))
                    problem = process.finish() or ("" if given else "it decodes no frame")
        except ffmpeg.Silent:
            problem = f"it gave nothing for {ffmpeg.SILENT_SECONDS:g} s"
    if problem:
        raise ffmpeg.unusable(command[0], problem)
