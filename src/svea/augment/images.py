"""ImageBank: the pictures that `overlay` mixes into observations.

Pictures come from a folder (of pictures, of videos, or Places365 as it is unpacked) or from the
procedural generator, which needs no files. They are held as one uint8 tensor on the device, once
for all agents of a process; every draw is a random resized crop and a random flip of a random
picture.
"""

import functools
import hashlib
import math
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from svea.core.errors import UserError
from svea.core.files import open_plain, reading, sha256
from svea.data.clips import PICTURE_FOLDERS, PROCEDURAL, data_folder, existing_folder
from svea.data.decode import (
    OVERLAY_SIDE,
    PICTURE_ENDINGS,
    SKIPPED,
    VIDEO_ENDINGS,
    DecodeError,
    read_key_frames,
    read_picture,
)
from svea.data.inventory import find_picture_folder, pictures_below
from svea.data.procedural import VERSION, procedural_pictures

MOST_PICTURES = 2048
"""At most this many pictures are kept: 400 MB, and some seconds to decode on two cores."""

MOST_VIDEOS = 128
DECODERS = 4  # at once

# The law of torchvision's `RandomResizedCrop`, as DMControl-GB uses it.
AREA = (0.08, 1.0)  # smallest and largest part of the picture that a crop covers
ASPECT = (3 / 4, 4 / 3)  # smallest and largest width / height, uniform in the logarithm
FLIP = 0.5  # probability of a mirror image
TRIES = 10  # to draw a crop that fits


class Crops(NamedTuple):
    """Which pieces of which pictures a draw takes, `(count,)` each."""

    chosen: Tensor
    top: Tensor  # whole numbers as floats, as are the next three
    left: Tensor
    tall: Tensor
    wide: Tensor
    mirrored: Tensor  # true or false


@dataclass(frozen=True)
class ImageBank:
    """Pictures on the device.

    Attributes:
        pictures: uint8 `(count, 3, side, side)`.
        skipped: How many files could not be read, or were too small or too large.
        record: What a run writes down about them: source, count, side, of how many files they are
            taken, and the hash of what defines them. Of files that is each one's size and first
            MiB, in order; of generated pictures their version, seed and count. So it does not
            depend on the machine's arithmetic or on the decoder's version.
        place: `place_crops`, or the same compiled.
        resize: Cuts crops out of `pictures` and resizes them, by default as the device does it
            best. Both are seams: kernels bring faster ones.
    """

    pictures: Tensor
    skipped: int = 0
    record: dict[str, Any] = field(default_factory=dict)
    place: Callable[[Tensor, Tensor, int], Crops] | None = None
    resize: Callable[[Tensor, Crops, int, int], Tensor] | None = None

    @property
    def side(self) -> int:
        """Height and width of the pictures in pixels."""
        return self.pictures.shape[-1]

    @classmethod
    def find(
        cls,
        overlay_dir: str | Path | None = None,
        data_dir: str | Path | None = None,
        device: torch.device | str = "cpu",
    ) -> "ImageBank":
        """Take `overlay_dir`, else pictures in `data_dir`, else in `SVEA_DATA`, else procedural.

        `overlay_dir` may be the word `procedural`; a data folder keeps its pictures under one of
        `PICTURE_FOLDERS`.
        """
        data = None if overlay_dir else data_folder(data_dir or None)
        if str(overlay_dir) == PROCEDURAL or not (overlay_dir or data):
            return cls.procedural(device=device)
        if folder := overlay_dir or find_picture_folder(data):  # type: ignore[arg-type]
            return cls.folder(folder, device)
        raise UserError(
            f"no pictures for overlay in {data}: looked for the folders "
            f"{', '.join(PICTURE_FOLDERS)}. Name another folder with --overlay-dir, or use "
            f"--overlay-dir {PROCEDURAL}"
        )

    @classmethod
    def procedural(
        cls, count: int = 256, seed: int = 0, device: torch.device | str = "cpu"
    ) -> "ImageBank":
        """Make pictures with natural statistics; the same seed makes the same pictures."""
        return _procedural(count, seed, torch.device(device))

    @classmethod
    def folder(cls, path: str | Path, device: torch.device | str = "cpu") -> "ImageBank":
        """Read the pictures and the key frames of the videos in a folder and its subfolders.

        Of more than `MOST_PICTURES` files an even selection is read, the same every time. Damaged
        or tiny files are skipped with a warning that counts them.
        """
        cure = f"name a folder of pictures or videos, or {PROCEDURAL}"
        path = existing_folder(path, "overlay_dir", cure)
        found = list(pictures_below(path))
        if not found:
            endings = ", ".join((*PICTURE_ENDINGS, *VIDEO_ENDINGS))
            raise UserError(f"no pictures or videos ({endings}) in {path} and its subfolders")
        films = [file for file in found if file.name.lower().endswith(VIDEO_ENDINGS)]
        pictures = [file for file in found if not file.name.lower().endswith(VIDEO_ENDINGS)]
        files = _evenly(pictures, MOST_PICTURES) + _evenly(films, MOST_VIDEOS)
        digest, device = _digest(files), torch.device(device)
        key = (path.resolve(), digest, len(found), str(device))
        bank = _BANKS.get(key)
        if bank is None:
            bank = _BANKS[key] = _read_all(path, files, len(found), digest, device)
        if bank.skipped:
            skipped = f"skipped {bank.skipped} of {len(files)} files in {path}: {SKIPPED}"
            warnings.warn(skipped, stacklevel=2)
        return bank

    def draw(
        self, count: int, height: int, width: int, generator: Generator | None = None
    ) -> Tensor:
        """Draw random resized crops of random pictures, without waiting for the device.

        float `(count, 3, height, width)` in [0, 1], in steps of 1/255 as the reference's loader
        gives them; float16 on a GPU, else float32. The generator lives on the bank's device.
        """
        on_cpu = self.pictures.device.type == "cpu"  # whose numbers are at hand
        resize = self.resize or (resize_each if on_cpu else resize_all)
        return resize(self.pictures, self.crops(count, generator), height, width)

    def crops(self, count: int, generator: Generator | None) -> Crops:
        """Draw which pieces of which pictures to show."""
        device = self.pictures.device
        chosen = torch.randint(len(self.pictures), (count,), generator=generator, device=device)
        unit = torch.rand(2 * TRIES + 3, count, generator=generator, device=device)
        return (self.place or place_crops)(chosen, unit, self.side)


def place_crops(chosen: Tensor, unit: Tensor, side: int) -> Crops:
    """The crops of chosen pictures that uniform numbers `(2 * TRIES + 3, count)` make."""
    tall, wide = crop_sizes(unit[:TRIES], unit[TRIES : 2 * TRIES], side)
    top = (unit[-3] * (side - tall + 1)).floor().minimum(side - tall)
    left = (unit[-2] * (side - wide + 1)).floor().minimum(side - wide)
    return Crops(chosen, top, left, tall, wide, unit[-1] < FLIP)


def crop_sizes(area_draw: Tensor, aspect_draw: Tensor, side: int) -> tuple[Tensor, Tensor]:
    """Heights and widths (count,) of crops from `TRIES` uniform draws (TRIES, count) each.

    The first of ten draws that fits, else the whole picture. All ten are made at once, so that
    nothing waits for the device.
    """
    root = ((AREA[0] + (AREA[1] - AREA[0]) * area_draw) * side**2).sqrt()
    low, high = math.log(ASPECT[0]), math.log(ASPECT[1])
    stretch = torch.exp((low + (high - low) * aspect_draw) / 2)
    tall, wide = (root / stretch).round(), (root * stretch).round()
    fits = (tall <= side) & (wide <= side)
    first = fits & (fits.cumsum(0) == 1)
    none = ~fits.any(0) * side
    return (tall * first).sum(0) + none, (wide * first).sum(0) + none


def resize_each(pictures: Tensor, crops: Crops, height: int, width: int) -> Tensor:
    """Crop and resize on a CPU, one after another: only what a crop shows is touched.

    In bytes, as Pillow does it. A third of the time of `resize_all`, but it reads the draws, which
    a GPU would have to wait for.
    """
    small = pictures.new_empty(len(crops.chosen), 3, height, width)
    places = torch.stack([column.long() for column in crops], dim=1).tolist()
    for index, (chosen, top, left, tall, wide, mirrored) in enumerate(places):
        piece = pictures[chosen : chosen + 1, :, top : top + tall, left : left + wide]
        resized = F.interpolate(
            piece, (height, width), mode="bilinear", align_corners=False, antialias=True
        )
        small[index] = resized[0].flip(-1) if mirrored else resized[0]
    return small / 255


def resize_all(pictures: Tensor, crops: Crops, height: int, width: int) -> Tensor:
    """Crop and resize all at once by products of matrices, without waiting for the device.

    Graphs of the device can capture it. It agrees with `resize_each` to one level of 255.
    """
    count, device, side = len(crops.chosen), pictures.device, pictures.shape[-1]
    rows = _resampling(crops.top, crops.tall, height, side)
    columns = _resampling(crops.left, crops.wide, width, side)
    columns = torch.where(crops.mirrored[:, None, None], columns.flip(1), columns)
    # half precision is exact for bytes and good to 1/2048 for weights; on a GPU it is faster
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    source = pictures.index_select(0, crops.chosen).to(dtype).transpose(1, 2)
    with torch.autocast(device.type, enabled=False):  # rows before colours: two plain products
        middle = torch.bmm(rows.to(dtype), source.flatten(2)).view(count, height * 3, side)
        small = torch.bmm(middle, columns.to(dtype).mT).view(count, height, 3, width)
    return small.transpose(1, 2).round().clamp(0, 255) / 255


_BANKS: WeakValueDictionary[tuple[Path, str, int, str], ImageBank] = WeakValueDictionary()
"""Folders that some agent of this process holds, so that the next one shares the memory."""


@functools.lru_cache(4)  # 50 MB of 256 pictures
def _procedural(count: int, seed: int, device: torch.device) -> "ImageBank":
    """See `ImageBank.procedural`; made once per process, in 2 to 4 seconds on one core."""
    what = f"{count} procedural pictures (version {VERSION}, seed {seed}), side {OVERLAY_SIDE}"
    pictures = procedural_pictures(count, seed)
    return _bank(pictures, device, PROCEDURAL, of=count, sha256=sha256(what))


def _resampling(start: Tensor, length: Tensor, size: int, side: int) -> Tensor:
    """The (count, size, side) matrices that resize [start, start + length) of an axis.

    A triangle filter, widened when shrinking: antialiased bilinear resizing as in Pillow. What lies
    outside has no weight: the reference crops before it resizes.
    """
    step = (length / size)[:, None]
    centre = start[:, None] + (torch.arange(size, device=start.device) + 0.5) * step - 0.5
    pixel = torch.arange(side, device=start.device)
    distance = (centre[:, :, None] - pixel).abs() / step.clamp(min=1)[:, :, None]
    inside = (pixel >= start[:, None]) & (pixel < (start + length)[:, None])
    weight = (1 - distance).clamp(min=0) * inside[:, None]
    return weight / weight.sum(-1, keepdim=True)


# --- reading files --------------------------------------------------------------------------------


def _bank(
    pictures: np.ndarray, device: torch.device, source: str, skipped: int = 0, **record: Any
) -> "ImageBank":
    """Pictures (count, side, side, 3) on a device, with what a run writes down about them."""
    count, side = pictures.shape[:2]
    channels_first = torch.from_numpy(pictures).permute(0, 3, 1, 2).contiguous()
    record = {"source": source, "count": count, "side": side, **record}
    return ImageBank(channels_first.to(device), skipped, record)


def _digest(files: list[Path]) -> str:
    """The hash of files: of each its size and first MiB; and of the side that they are read at."""
    total = hashlib.sha256(f"side {OVERLAY_SIDE}".encode())
    for file in files:
        if file.is_file():  # a pipe would block
            with reading(file), open_plain(file, sys.maxsize) as content:
                total.update(file.stat().st_size.to_bytes(8, "big"))
                total.update(content.read(1 << 20))
    return total.hexdigest()


def _evenly(items: list[Path], most: int) -> list[Path]:
    """At most `most` items, evenly spaced: the same selection every time."""
    if len(items) <= most:
        return items
    return [items[len(items) * i // most] for i in range(most)]


def _read_all(
    path: Path, files: list[Path], found: int, digest: str, device: torch.device
) -> "ImageBank":
    """The pictures in some of the files found in a folder."""
    with ThreadPoolExecutor(DECODERS) as pool:  # pillow and ffmpeg release the interpreter
        groups = list(pool.map(_read, files))
    pictures = [picture for group in groups for picture in group][:MOST_PICTURES]
    if not pictures:
        raise UserError(f"none of the {len(files)} files in {path} can be used: all are {SKIPPED}")
    whole = path.resolve().as_posix()  # a data folder's own name for it, else its last part
    name = next((name for name in PICTURE_FOLDERS if whole.endswith(f"/{name}")), path.name)
    skipped = sum(not group for group in groups)
    return _bank(np.stack(pictures), device, name, skipped, of=found, sha256=digest)


def _read(path: Path) -> list[np.ndarray]:
    """The squares of a picture or a video at `OVERLAY_SIDE`; empty if it cannot be used."""
    if path.suffix.lower() in VIDEO_ENDINGS:
        return read_key_frames(path)
    try:
        return [read_picture(path)]
    except DecodeError:
        return []  # counted by the caller
