"""Random resized crops of pictures as one GPU kernel (Triton), for the overlays.

As products of matrices (`svea.augment.images.resize_all`) every crop reads its whole picture three
times and multiplies mostly zeros. Here each pixel of the result sums the few that it covers.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Generator, Tensor

from svea.augment.images import Crops, ImageBank, resize_all

BLOCK = 256  # pixels to a program


@triton.jit
def _resize(
    pictures, chosen, top, left, tall, wide, mirrored, y,
    SIDE: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A block of pixels of one sample: a triangle filter over its crop, widened when shrinking."""
    sample = tl.program_id(0).to(tl.int64)  # a large batch has more bytes than 32 bits count
    p = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = p < HEIGHT * WIDTH
    first_row, first_column = tl.load(top + sample), tl.load(left + sample)
    rows, columns = tl.load(tall + sample), tl.load(wide + sample)
    row, column = p // WIDTH, p % WIDTH
    column = tl.where(tl.load(mirrored + sample) != 0, WIDTH - 1 - column, column)
    down, right = rows / HEIGHT, columns / WIDTH  # pixels of the picture to one of the result
    reach_y, reach_x = tl.maximum(down, 1.0), tl.maximum(right, 1.0)
    centre_y = first_row + (row.to(tl.float32) + 0.5) * down - 0.5
    centre_x = first_column + (column.to(tl.float32) + 0.5) * right - 0.5
    start_y, start_x = tl.ceil(centre_y - reach_y), tl.ceil(centre_x - reach_x)
    taps_y = (2 * reach_y + 1).to(tl.int32)  # at most this many pixels lie within reach
    taps_x = (2 * reach_x + 1).to(tl.int32)
    plane = SIDE * SIDE
    picture = pictures + tl.load(chosen + sample) * 3 * plane
    red = tl.zeros((BLOCK,), tl.float32)
    green = tl.zeros((BLOCK,), tl.float32)
    blue = tl.zeros((BLOCK,), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for i in range(0, taps_y):
        at_y = start_y + i
        weight_y = tl.maximum(1 - tl.abs(at_y - centre_y) / reach_y, 0.0)
        kept_y = inside & (at_y >= first_row) & (at_y < first_row + rows)
        for j in range(0, taps_x):
            at_x = start_x + j
            weight = weight_y * tl.maximum(1 - tl.abs(at_x - centre_x) / reach_x, 0.0)
            kept = kept_y & (at_x >= first_column) & (at_x < first_column + columns)
            weight = tl.where(kept, weight, 0.0)
            at = picture + at_y.to(tl.int32) * SIDE + at_x.to(tl.int32)
            red += weight * tl.load(at, mask=kept, other=0).to(tl.float32)
            green += weight * tl.load(at + plane, mask=kept, other=0).to(tl.float32)
            blue += weight * tl.load(at + 2 * plane, mask=kept, other=0).to(tl.float32)
            total += weight
    scale = 1 / tl.where(inside, total, 1.0)
    out = y + sample * 3 * HEIGHT * WIDTH + p
    size = HEIGHT * WIDTH
    tl.store(out, (tl.floor(red * scale + 0.5) / 255).to(y.dtype.element_ty), inside)
    tl.store(out + size, (tl.floor(green * scale + 0.5) / 255).to(y.dtype.element_ty), inside)
    tl.store(out + 2 * size, (tl.floor(blue * scale + 0.5) / 255).to(y.dtype.element_ty), inside)


@torch.library.custom_op("svea::resized_crops", mutates_args=())
def resized_crops(pictures: Tensor, crops: list[Tensor], height: int, width: int) -> Tensor:
    """Crops of uint8 (N, 3, side, side) -> float16 (count, 3, height, width) in [0, 1].

    Operators take no named tuples: ``crops`` are the fields of `Crops`, in their order.
    """
    *places, mirrored = crops
    count = len(mirrored)
    y = torch.empty((count, 3, height, width), dtype=torch.float16, device=pictures.device)
    _resize[(count, triton.cdiv(height * width, BLOCK))](
        pictures, *places, mirrored.to(torch.uint8), y, pictures.shape[-1], height, width, BLOCK
    )
    return y


@resized_crops.register_fake
def _(pictures: Tensor, crops: list[Tensor], height: int, width: int) -> Tensor:
    return pictures.new_empty((len(crops[0]), 3, height, width), dtype=torch.float16)


def resize(pictures: Tensor, crops: Crops, height: int, width: int) -> Tensor:
    """`resize_all` by the kernel."""
    return resized_crops(pictures, list(crops), height, width)


def check(bank: ImageBank) -> None:
    """Raise unless the kernel agrees with the products of matrices to one level of 255."""
    crops = bank.crops(8, Generator(bank.pictures.device).manual_seed(0))
    plain, found = (make(bank.pictures, crops, 40, 84) for make in (resize_all, resize))
    difference = float((found - plain).abs().max())
    if not difference < 1.5 / 255:  # written so that NaN fails
        raise RuntimeError(f"our kernel is {255 * difference:.3g} levels of 255 away from them")
