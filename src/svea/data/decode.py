"""Decoding pictures and videos of unknown origin: what is accepted, how large, and for how long.

A hostile file must not take the machine's memory, hang it, or make a decoder open anything else.
"""

import functools
import math
import struct
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from svea.core import files
from svea.core.errors import StorageError
from svea.data import ffmpeg

SIDE = 128  # of generated frames, and of those smoothed for pictures of any size; 49 kB
OVERLAY_SIDE = 256  # of the pictures that overlay crops, as of Places365's small ones; 197 kB
MOST_PIXELS = 4096 * 2304  # larger video frames are refused

MOST_PICTURE_PIXELS = 6000 * 6000  # larger pictures are refused: one takes about 220 MB at most
MOST_PICTURE_BYTES = 256 * 2**20
MOST_BYTES = 64 * 2**30  # larger files are refused: pictures, and videos
SMALLEST_SIDE = 32  # overlay skips pictures with a shorter side

SKIPPED = (
    f"damaged, smaller than {SMALLEST_SIDE} pixels, or larger than "
    f"{MOST_PICTURE_PIXELS // 10**6} megapixels"
)
"""Why overlay skips a picture, in words."""

SECONDS = 60  # a decoder that takes longer is stopped

VIDEO_ENDINGS = (".avi", ".m4v", ".mkv", ".mov", ".mp4", ".webm")
PICTURE_ENDINGS = (".bmp", ".jpeg", ".jpg", ".png", ".webp")

KEY_FRAMES = 64  # as many pictures for overlay a video gives at most

_LARGEST_HEADER = 2**24
_FORMATS = ("BMP", "JPEG", "PNG", "WEBP")  # Pillow hands some others to other programs
_ERRORS = (OSError, SyntaxError, ValueError)  # what Pillow raises for damaged files


class DecodeError(Exception):
    """What is wrong with a file, in words that follow `it`."""


def read_picture(path: Path, side: int = OVERLAY_SIDE) -> np.ndarray:
    """Decode the middle square of a picture at `(side, side, 3)` uint8.

    It must be of one of the common formats, whatever its name says. A DecodeError if it is damaged,
    too large or too small, or not a picture.
    """
    from PIL import Image

    def resize(picture: Any) -> np.ndarray:
        picture.draft("RGB", (side, side))  # JPEG: decodes at 1/2, 1/4, 1/8 where that is enough
        width, height = picture.size
        edge = min(width, height)
        left, top = (width - edge) // 2, (height - edge) // 2
        box = (left, top, left + edge, top + edge)
        return np.asarray(
            picture.convert("RGB").resize((side, side), Image.Resampling.BILINEAR, box)
        )

    return _decode(path, SMALLEST_SIDE, resize)


def read_frame(path: Path, side: int, smooth: bool) -> np.ndarray:
    """Decode a picture of a clip at `(side, side, 3)`, stretched to a square; see `read_video`."""
    from PIL import Image

    def resize(picture: Any) -> np.ndarray:
        if not smooth:
            return resample(np.asarray(picture.convert("RGB")), side)
        picture.draft("RGB", (side, side))
        return np.asarray(picture.convert("RGB").resize((side, side), Image.Resampling.BILINEAR))

    return _decode(path, 1, resize)


def resample(frame: np.ndarray, side: int) -> np.ndarray:
    """A frame at another size as DMControl-GB shows it: bilinear, without smoothing.

    Each pixel is a mean of the 2 x 2 pixels around its place in the frame, weighted by distance; of
    a larger frame most pixels are not seen, and what is fine aliases. In the benchmark's arithmetic
    (`interpolate(frame / 255, mode="bilinear", align_corners=False) * 255`, cut off to bytes).
    """
    if frame.shape[:2] == (side, side):
        return frame
    (above, below, down), (left, right, across) = (_neighbours(n, side) for n in frame.shape[:2])
    # As rows of bytes: three times as fast as gathering pixels. 0.3 ms from 352 to 84 pixels.
    lines = frame.reshape(len(frame), -1)[np.concatenate([above, below])]
    columns = 3 * np.concatenate([left, right])[:, None] + np.arange(3)
    corners = np.divide(lines.take(columns.ravel(), axis=1), np.float32(255), dtype=np.float32)
    weights, half, one = np.repeat(across, 3), 3 * side, np.float32(1)
    rows = corners[:, :half] * (one - weights) + corners[:, half:] * weights
    mixed = rows[:side] * (one - down[:, None]) + rows[side:] * down[:, None]
    return (mixed * np.float32(255)).astype(np.uint8).reshape(side, side, 3)


@functools.lru_cache(16)
def _neighbours(length: int, side: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which pixels of a line are around each of `side` places, and the weight of the second."""
    scale = np.float32(length) / np.float32(side)
    place = (np.arange(side, dtype=np.float32) + np.float32(0.5)) * scale - np.float32(0.5)
    place = place.clip(0)
    first = np.minimum(place.astype(np.intp), length - 1)
    weight = (place - first.astype(np.float32)).clip(0, 1)
    return first, np.minimum(first + 1, length - 1), weight


def _decode(path: Path, smallest: int, use: Callable[[Any], Any]) -> Any:
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


def ffmpeg_command(path: Path, filters: str, frames: int, before: Sequence[str] = ()) -> list[str]:
    """The command that decodes a video to PPM pictures, each frame once.

    The options `before` the input. The video may only be what its name says: no playlists, no
    network.
    """
    command = [ffmpeg.executable(), "-nostdin", "-v", "error", "-threads", "1"]
    command += ["-protocol_whitelist", "file", "-format_whitelist", "mov,mp4,matroska,webm,avi"]
    command += ["-max_pixels", str(MOST_PIXELS), *before, "-i", f"file:{path}", "-an", "-sn", "-dn"]
    command += ["-vf", filters, "-frames:v", str(frames), "-fps_mode", "passthrough"]
    return [*command, "-f", "image2pipe", "-c:v", "ppm", "-pix_fmt", "rgb24", "-"]


def read_video(
    path: Path,
    frames: int,
    on_start: Callable[[Callable[[], None]], None],
    side: int,
    smooth: bool,
) -> Iterator[np.ndarray]:
    """Decode at most so many frames of a video at `(side, side, 3)`, stretched to a square.

    They are scaled by the decoder, which is `smooth`, or from the full frame by `resample`. With
    the function that `on_start` gets, the decoder is stopped. A DecodeError if the video is damaged
    or none, an FfmpegError if ffmpeg itself does not work.
    """
    limits = ("-xerror", "-timelimit", str(SECONDS))
    filters = f"scale={side}:{side}:flags=bilinear" if smooth else "null"
    command = ffmpeg_command(path, filters, frames, limits)
    done = 0
    with ffmpeg.Process(command) as process:
        on_start(process.stop)
        try:
            for frame in _frames(process):
                yield resample(frame, side)
                done += 1
            message = process.finish()
        except ffmpeg.Silent:
            try_decoder()  # is it ffmpeg, or the file?
            message = f"ffmpeg gave no frame for {ffmpeg.SILENT_SECONDS:g} s"
    if message:
        raise DecodeError(f"is damaged or not a video after {done} frames ({message})")


def _frames(process: ffmpeg.Process) -> Iterator[np.ndarray]:
    """What ffmpeg decodes, up to its end; the header of each frame tells its size."""
    while True:
        head = process.read(len("P6\n1 1\n255\n"))
        while head.count(b"\n") < 3 and len(head) < 32 and (byte := process.read(1)):
            head += byte
        if head.count(b"\n") < 3:
            return
        width, height = map(int, head.split()[1:3])
        data = process.read(width * height * 3)
        if len(data) < width * height * 3:
            return
        yield np.frombuffer(data, np.uint8).reshape(height, width, 3)


def read_key_frames(path: Path) -> list[np.ndarray]:
    """The middle squares of a video's key frames, at `OVERLAY_SIDE`; none if it is damaged.

    Those between cost no decoding.
    """
    square = f"crop='min(iw,ih)':'min(iw,ih)',scale={OVERLAY_SIDE}:{OVERLAY_SIDE}"
    only = ("-skip_frame", "nokey", "-timelimit", str(SECONDS))
    with ffmpeg.Process(ffmpeg_command(path, square, KEY_FRAMES, only)) as process:
        try:
            return list(_frames(process))
        except ffmpeg.Silent:
            try_decoder()
            return []


def stored_size(path: Path) -> tuple[int, int] | None:
    """Width and height of a picture or an mp4 video from its header; None where it is not told."""
    if path.suffix.lower() in PICTURE_ENDINGS:
        try:
            return _decode(path, 1, lambda picture: picture.size)
        except DecodeError:
            return None
    try:
        with files.open_plain(path, MOST_BYTES) as content:
            return _track_size(_movie_box(content))
    except (OSError, StorageError, struct.error):
        return None


def _movie_box(content: IO[bytes]) -> bytes:
    """The `moov` box of an mp4 file, which describes it; empty in other files."""
    for _ in range(64):  # boxes before it: the type, the frames, free space
        length, kind = struct.unpack(">I4s", content.read(8))
        head = 8
        if length == 1:  # 64 bits, for frames of more than 4 GB
            (length,) = struct.unpack(">Q", content.read(8))
            head = 16
        if kind == b"moov":
            return content.read(min(length, _LARGEST_HEADER))
        if length < head:
            break
        content.seek(length - head, 1)
    return b""


def _track_size(movie: bytes) -> tuple[int, int] | None:
    """The size of the first track that has one: the last two numbers, 16.16, of its header."""
    at = -1
    while (at := movie.find(b"tkhd", at + 1)) >= 4:
        (length,) = struct.unpack_from(">I", movie, at - 4)
        width, height = struct.unpack_from(">II", movie, at - 4 + length - 8)
        if width and height:
            return width >> 16, height >> 16
    return None


def try_decoder() -> None:
    """Let ffmpeg make a video of a few frames, and decode it as a background is."""
    source = ["-f", "lavfi", "-i", "testsrc=size=32x32:rate=5", "-frames:v", "3"]
    program, seconds = ffmpeg.executable(), ffmpeg.SILENT_SECONDS
    with tempfile.TemporaryDirectory() as folder:
        clip = f"{folder}/clip.mp4"
        ffmpeg.output(program, "-v", "error", *source, "-pix_fmt", "yuv420p", clip, seconds=seconds)
        decoding = ffmpeg_command(Path(clip), f"scale={SIDE}:{SIDE}", 3)
        if not ffmpeg.output(*decoding, seconds=seconds):
            raise ffmpeg.unusable(program, "it decodes no frame")
