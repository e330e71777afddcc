"""ImageBank: the pictures that `overlay` mixes into observations.

Pictures come from a folder (of pictures, of videos, or Places365 as it is unpacked) or from the
procedural generator at the end of this file, which needs no files. They are held as one uint8
tensor on the device; every draw is a random resized crop and a random flip of a random picture.
"""

from __future__ import annotations

import math
import os
import subprocess
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Generator, Tensor

from svea.data.clips import (
    MOST_PIXELS,
    PICTURE_ENDINGS,
    PICTURE_FORMATS,
    PROCEDURAL,
    SECONDS,
    VIDEO_ENDINGS,
)
from svea.data.inventory import PICTURE_FOLDERS, SMALLEST_SIDE
from svea.errors import UserError

SIDE = 128
"""Pictures are kept as squares of this many pixels: 49 kB each."""

MOST_PICTURES = 2048
"""At most this many pictures are kept: 100 MB, and 2 to 3 seconds to decode on two cores."""

MOST_PICTURE_PIXELS = 6000 * 6000
"""Larger pictures are skipped: whatever they hold, decoding one takes at most about 220 MB."""

MOST_VIDEOS = 128
_DECODERS = 4  # at once


@dataclass(frozen=True)
class ImageBank:
    """Pictures on the device.

    Attributes:
        pictures: uint8 `(count, 3, side, side)`.
        source: Where they come from, in words that fit a report: `284 pictures from photos`.
        skipped: How many files could not be read, or were too small or too large.
    """

    pictures: Tensor
    source: str
    skipped: int = 0

    @classmethod
    def find(
        cls,
        overlay_dir: str | Path | None = None,
        data_dir: str | Path | None = None,
        device: torch.device | str = "cpu",
    ) -> ImageBank:
        """Take `overlay_dir`, else pictures in `data_dir`, else in `SVEA_DATA`, else procedural.

        Args:
            overlay_dir: A folder of pictures or videos, or the word `procedural`.
            data_dir: A data folder, which keeps its pictures under one of `PICTURE_FOLDERS`.
            device: Where the pictures are to live.
        """
        if str(overlay_dir) == PROCEDURAL:
            return cls.procedural(device=device)
        if overlay_dir is not None:
            return cls.folder(overlay_dir, device=device)
        data = data_dir or os.environ.get("SVEA_DATA")
        if not data:
            return cls.procedural(device=device)
        for name in PICTURE_FOLDERS:
            if (Path(data) / name).is_dir():
                return cls.folder(Path(data) / name, device=device)
        raise UserError(
            f"no pictures for overlay in {data}: looked for the folders "
            f"{', '.join(PICTURE_FOLDERS)}. Name another folder with --overlay-dir, or use "
            f"--overlay-dir {PROCEDURAL}"
        )

    @classmethod
    def procedural(
        cls, count: int = 256, seed: int = 0, device: torch.device | str = "cpu"
    ) -> ImageBank:
        """Make pictures with natural statistics; the same seed makes the same pictures."""
        pictures = torch.from_numpy(procedural_pictures(count, SIDE, seed))
        return cls(pictures.to(device), f"{count} procedural pictures (seed {seed})")

    @classmethod
    def folder(cls, path: str | Path, device: torch.device | str = "cpu") -> ImageBank:
        """Read the pictures and the key frames of the videos in a folder and its subfolders.

        Of more than `MOST_PICTURES` files an even selection is read, the same every time. Damaged
        or tiny files are skipped with a warning that counts them.
        """
        path = Path(path).expanduser()
        files = _files(path)
        with ThreadPoolExecutor(
            _DECODERS
        ) as pool:  # pillow and ffmpeg leave the interpreter to others
            groups = list(pool.map(_read, files))
        skipped = sum(not group for group in groups)
        pictures = [picture for group in groups for picture in group][:MOST_PICTURES]
        if not pictures:
            raise UserError(
                f"none of the {len(files)} pictures and videos in {path} can be used: all are "
                f"damaged, smaller than {SMALLEST_SIDE} pixels, or larger than 36 megapixels"
            )
        if skipped:
            warnings.warn(
                f"skipped {skipped} of {len(files)} files in {path}: damaged, smaller than "
                f"{SMALLEST_SIDE} pixels, or larger than 36 megapixels",
                stacklevel=2,
            )
        stacked = torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2).contiguous()
        return cls(stacked.to(device), f"{len(pictures)} pictures from {path.name}", skipped)

    def draw(
        self,
        count: int,
        height: int,
        width: int,
        generator: Generator | None = None,
        *,
        area: tuple[float, float] = (0.08, 1.0),
        aspect: tuple[float, float] = (3 / 4, 4 / 3),
        flip: float = 0.5,
    ) -> Tensor:
        """Draw random resized crops of random pictures, without waiting for the device.

        Args:
            count: How many pictures.
            height: Of each picture, in pixels.
            width: Of each picture, in pixels.
            generator: Source of randomness; must live on the bank's device.
            area: Smallest and largest part of the picture that a crop covers.
            aspect: Smallest and largest width / height of a crop; uniform in the logarithm.
            flip: Probability of a mirror image.

        Returns:
            float `(count, 3, height, width)` in [0, 1]; float16 on a GPU, else float32.
        """
        device, side = self.pictures.device, self.pictures.shape[-1]
        chosen = torch.randint(len(self.pictures), (count,), generator=generator, device=device)
        unit = torch.rand(5, count, generator=generator, device=device)
        pixels = (area[0] + (area[1] - area[0]) * unit[0]) * side**2
        low, high = math.log(aspect[0]), math.log(aspect[1])
        root = torch.exp((low + (high - low) * unit[1]) / 2)
        # torchvision draws again when a crop leaves the picture; clipping needs no loop
        crop_width = (pixels.sqrt() * root).clamp(max=side)
        crop_height = (pixels.sqrt() / root).clamp(max=side)
        rows = _resampling(unit[2] * (side - crop_height), crop_height, height, side)
        columns = _resampling(unit[3] * (side - crop_width), crop_width, width, side)
        columns = torch.where((unit[4] < flip)[:, None, None], columns.flip(1), columns)
        # half precision is exact for bytes and good to 1/2048 for weights; on a GPU it is faster
        dtype = torch.float16 if device.type == "cuda" else torch.float32
        source = self.pictures.index_select(0, chosen).to(dtype).transpose(1, 2)
        with torch.autocast(device.type, enabled=False):  # rows before colours: two plain products
            tall = torch.bmm(rows.to(dtype), source.flatten(2)).view(count, height * 3, side)
            small = torch.bmm(tall, columns.to(dtype).mT).view(count, height, 3, width)
        return (small.transpose(1, 2) / 255).clamp(0, 1)


def _resampling(start: Tensor, length: Tensor, size: int, side: int) -> Tensor:
    """The (count, size, side) matrices that resize [start, start + length) of an axis.

    A triangle filter, widened when shrinking: antialiased bilinear resizing as in Pillow.
    """
    step = (length / size)[:, None]
    centre = start[:, None] + (torch.arange(size, device=start.device) + 0.5) * step - 0.5
    pixel = torch.arange(side, device=start.device)
    distance = (centre[:, :, None] - pixel).abs() / step.clamp(min=1)[:, :, None]
    weight = (1 - distance).clamp(min=0)
    return weight / weight.sum(-1, keepdim=True)


# --- reading files --------------------------------------------------------------------------------


def _files(path: Path) -> list[Path]:
    """An even, repeatable selection of the pictures and videos under a folder."""
    if not path.is_dir():
        raise UserError(
            f"{path} is not a folder. Expected a folder of pictures or videos, or {PROCEDURAL}"
        )
    pictures, videos = [], []
    for folder, _, names in sorted(os.walk(path)):  # names only: no stat of each of 1.8 M files
        for name in sorted(names):
            ending = os.path.splitext(name)[1].lower()
            if ending in PICTURE_ENDINGS:
                pictures.append((folder, name))
            elif ending in VIDEO_ENDINGS:
                videos.append((folder, name))
    if not pictures and not videos:
        raise UserError(
            f"no pictures or videos in {path}: looked for {', '.join(PICTURE_ENDINGS)} and "
            f"{', '.join(VIDEO_ENDINGS)} there and in its subfolders"
        )
    chosen = [*_evenly(pictures, MOST_PICTURES), *_evenly(videos, MOST_VIDEOS)]
    return [Path(folder, name) for folder, name in chosen]


def _evenly(items: list[tuple[str, str]], most: int) -> list[tuple[str, str]]:
    """At most `most` items, evenly spaced."""
    if len(items) <= most:
        return items
    return [items[len(items) * i // most] for i in range(most)]


def _read(path: Path) -> list[np.ndarray]:
    """The (side, side, 3) squares of a picture or a video; empty if it cannot be used."""
    if path.suffix.lower() in VIDEO_ENDINGS:
        return _read_video(path)
    from PIL import Image, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # refused below
            opened = Image.open(path, formats=PICTURE_FORMATS)
        with opened as picture:
            if min(picture.size) < SMALLEST_SIDE or math.prod(picture.size) > MOST_PICTURE_PIXELS:
                return []
            picture.draft("RGB", (SIDE, SIDE))  # JPEG: decode at 1/2, 1/4, 1/8 where that is enough
            width, height = picture.size
            edge = min(width, height)
            left, top = (width - edge) // 2, (height - edge) // 2
            square = picture.convert("RGB").resize(
                (SIDE, SIDE), Image.Resampling.BILINEAR, (left, top, left + edge, top + edge)
            )
            return [np.asarray(square)]
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError, Image.DecompressionBombError):
        return []  # counted by the caller


def _read_video(path: Path) -> list[np.ndarray]:
    """The key frames of a video: they cost no decoding of what lies between them."""
    from imageio_ffmpeg import get_ffmpeg_exe

    square = f"crop='min(iw,ih)':'min(iw,ih)',scale={SIDE}:{SIDE}"
    command = [get_ffmpeg_exe(), "-nostdin", "-v", "error", "-threads", "1"]
    # A file may only be what its name says: no playlists, no network, no giant frames.
    command += ["-protocol_whitelist", "file", "-format_whitelist", "mov,mp4,matroska,webm,avi"]
    command += ["-max_pixels", str(MOST_PIXELS), "-skip_frame", "nokey"]
    command += ["-i", f"file:{path}", "-vf", square, "-fps_mode", "passthrough", "-frames:v", "64"]
    command += ["-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    try:
        output = subprocess.run(
            command, capture_output=True, stdin=subprocess.DEVNULL, timeout=SECONDS, check=False
        ).stdout
    except subprocess.TimeoutExpired:
        return []  # counted by the caller, like any file that cannot be read
    frame = SIDE * SIDE * 3
    whole = len(output) // frame * frame
    return list(np.frombuffer(output[:whole], np.uint8).reshape(-1, SIDE, SIDE, 3))


# --- procedural pictures --------------------------------------------------------------------------


def procedural_pictures(count: int, side: int, seed: int) -> np.ndarray:
    """Make uint8 `(count, 3, side, side)` pictures with the statistics of natural scenes.

    A quarter each: clouds (1/f noise in colour), dead leaves (opaque discs whose sizes follow a
    power law: the standard model of occluding objects), landscapes (gradients and a rough
    horizon), textures (warped waves). All share what photographs share: amplitude falling
    roughly as 1/f, and colours that vary less than brightness.
    """
    random = np.random.default_rng(seed)
    makers = (_clouds, _leaves, _landscapes, _textures)
    shares = [count // 4 + (kind < count % 4) for kind in range(4)]
    groups = [maker(random, share, side) for maker, share in zip(makers, shares, strict=True)]
    pictures = np.concatenate(groups)
    return (pictures.clip(0, 1) * 255).round().astype(np.uint8)


def _noise(random: np.random.Generator, count: int, side: int, power: np.ndarray) -> np.ndarray:
    """Gaussian noise (count, side, side) with amplitude 1/f**power, mean 0 and deviation 1."""
    frequency = np.hypot(np.fft.fftfreq(side)[:, None], np.fft.rfftfreq(side))
    frequency[0, 0] = 1
    white = np.fft.rfft2(random.standard_normal((count, side, side), dtype=np.float32))
    white *= frequency ** -power[:, None, None]
    white[:, 0, 0] = 0
    noise = np.fft.irfft2(white, s=(side, side)).astype(np.float32)
    return noise / noise.std(axis=(1, 2), keepdims=True)


def _colours(random: np.random.Generator, *shape: int) -> np.ndarray:
    """Colours (*shape, 3) as photographs have them: any brightness, mostly muted."""
    brightness = random.beta(1.3, 1.6, (*shape, 1))
    tint = random.normal(0, 0.13, (*shape, 3))
    return (brightness + tint - tint.mean(-1, keepdims=True)).clip(0, 1).astype(np.float32)


def _paint(field: np.ndarray, dark: np.ndarray, light: np.ndarray) -> np.ndarray:
    """Colour a field (count, side, side) in [0, 1] from one colour to another."""
    dark, light = dark[:, :, None, None], light[:, :, None, None]
    return dark + (light - dark) * field[:, None]


def _clouds(random: np.random.Generator, count: int, side: int) -> np.ndarray:
    """1/f noise: brightness in one field, two weaker ones for colour."""
    power = random.uniform(0.9, 1.6, count)
    fields = np.stack([_noise(random, count, side, power) for _ in range(3)], axis=1)
    axes = np.linalg.qr(random.standard_normal((count, 3, 3)))[0]
    axes[:, :, 0] = 1 / math.sqrt(3)  # the strongest axis is grey
    strength = random.uniform(0.1, 0.3, (count, 1, 1)) * np.array([1.7, 0.6, 0.4])
    mixed = np.einsum("nij,njhw->nihw", (axes * strength).astype(np.float32), fields)
    return mixed + _colours(random, count)[:, :, None, None]


def _leaves(random: np.random.Generator, count: int, side: int) -> np.ndarray:
    """Dead leaves: opaque shaded discs, with radii of density 1/r**3, the last on top."""
    discs, smallest, largest = 160, 0.03 * side, 0.45 * side
    quantile = random.random((count, discs))
    radii = 1 / np.sqrt(smallest**-2 + (largest**-2 - smallest**-2) * quantile)
    places = random.random((count, discs, 2)) * side
    colours = _colours(random, count, discs)
    pictures = np.empty((count, 3, side, side), np.float32)
    pictures[:] = _colours(random, count)[:, :, None, None]
    for picture, *leaves in zip(pictures, places, radii, colours, strict=True):
        for (row, column), radius, colour in zip(*leaves, strict=True):
            _paint_disc(picture, row, column, radius, colour)
    grain = _noise(random, count, side, np.full(count, 1.0))
    return pictures + 0.04 * grain[:, None]


def _paint_disc(
    picture: np.ndarray, row: float, column: float, radius: float, colour: np.ndarray
) -> None:
    """Paint a disc that is lit from the top left, touching only the pixels around it."""
    side = picture.shape[-1]
    top, left = max(0, int(row - radius)), max(0, int(column - radius))
    bottom, right = min(side, int(row + radius) + 1), min(side, int(column + radius) + 1)
    down = (np.arange(top, bottom, dtype=np.float32)[:, None] - row) / radius
    across = (np.arange(left, right, dtype=np.float32) - column) / radius
    light = 1 - 0.25 * (down + across)
    np.copyto(
        picture[:, top:bottom, left:right],
        colour[:, None, None] * light.clip(0.5, 1.3),
        where=down**2 + across**2 < 1,
    )


def _landscapes(random: np.random.Generator, count: int, side: int) -> np.ndarray:
    """Sky over land: two gradients and clouds, parted by a rough horizon."""
    row = np.linspace(0, 1, side, dtype=np.float32)[:, None]
    relief = _noise(random, count, side, np.full(count, 1.2))
    ridge = random.uniform(0.2, 0.8, (count, 1, 1)) + 0.06 * relief[:, :1]
    tilt = random.uniform(-0.3, 0.3, (count, 1, 1)) * np.linspace(-1, 1, side, dtype=np.float32)
    depth = row - ridge - tilt  # below the horizon this is positive
    sky = _noise(random, count, side, np.full(count, 1.5)) * 0.12 + (row + 0.3)
    land = _noise(random, count, side, random.uniform(0.8, 1.2, count)) * 0.2 + depth + 0.4
    colours = _colours(random, 4, count)
    above = _paint(sky.clip(0, 1), colours[0], 0.5 + 0.5 * colours[1])
    below = _paint(land.clip(0, 1), 0.5 * colours[2], colours[3])
    return np.where(depth[:, None] > 0, below, above)


def _textures(random: np.random.Generator, count: int, side: int) -> np.ndarray:
    """Waves of random direction, length and sharpness, bent by smooth noise."""
    row, column = np.ogrid[:side, :side]
    bend = _noise(random, count, side, np.full(count, 2.0)) * random.uniform(0, 2.5, (count, 1, 1))
    field = np.zeros((count, side, side), np.float32)
    for _ in range(2):
        angle = random.uniform(0, np.pi, (count, 1, 1))
        wave = 2 * np.pi / np.exp(random.uniform(np.log(5), np.log(40), (count, 1, 1)))
        field += np.sin(wave * (np.cos(angle) * row + np.sin(angle) * column) + bend)
    sharpness = np.exp(random.uniform(-0.5, 2, (count, 1, 1)))
    pattern = 0.5 + 0.5 * np.tanh(sharpness * field)
    light = _noise(random, count, side, np.full(count, 1.4)) * 0.08
    return _paint(pattern, *_colours(random, 2, count)) + light[:, None]
