"""Windows cut out of pictures by GPU kernels (Triton), also mixed in; bytes made to pixels.

And the random convolution for pixels of any type; random_convolution.py chooses.

What torch.compile makes of the same gather reads a 64-bit index for every pixel, eight times the
picture's own bytes.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 1024  # pixels to a program
CONVOLVED = 256  # as many, of the random convolution


@triton.jit
def _cut(
    x, corner, y, CHANNELS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    HEIGHT: tl.constexpr, WIDTH: tl.constexpr, PAD: tl.constexpr, SCALED: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """A block of pixels of one plane, bytes divided by 255 if asked for."""
    plane = tl.program_id(0).to(tl.int64)  # a large batch has more bytes than 32 bits count
    p = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = p < HEIGHT * WIDTH
    sample = plane // CHANNELS
    top = tl.load(corner + 2 * sample).to(tl.int32) - PAD
    left = tl.load(corner + 2 * sample + 1).to(tl.int32) - PAD
    row = tl.minimum(tl.maximum(p // WIDTH + top, 0), ROWS - 1)  # the border is repeated
    column = tl.minimum(tl.maximum(p % WIDTH + left, 0), COLUMNS - 1)
    values = tl.load(x + plane * ROWS * COLUMNS + row * COLUMNS + column, mask=inside)
    if SCALED:
        values = tl.div_rn(values.to(tl.float32), 255.0)
    tl.store(y + plane * HEIGHT * WIDTH + p, values.to(y.dtype.element_ty), mask=inside)


@triton.jit
def _mix_drifting(
    x, picture, speed, y, weight, FRAMES: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr,
    MARGIN: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """A block of pixels of one plane, mixed with what its frame sees of the sample's picture."""
    plane = tl.program_id(0).to(tl.int64)
    p = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = p < HEIGHT * WIDTH
    sample, frame, colour = plane // (3 * FRAMES), plane // 3 % FRAMES, plane % 3
    top = MARGIN + frame * tl.load(speed + 2 * sample)
    left = MARGIN + frame * tl.load(speed + 2 * sample + 1)
    rows, columns = HEIGHT + 2 * MARGIN, WIDTH + 2 * MARGIN
    corner = picture + ((sample * 3 + colour) * rows + top) * columns + left
    seen = tl.load(corner + p // WIDTH * columns + p % WIDTH, mask=inside, other=0)
    seen = seen.to(y.dtype.element_ty).to(tl.float32)
    at = plane * HEIGHT * WIDTH + p
    own = tl.load(x + at, mask=inside, other=0).to(tl.float32)
    tl.store(y + at, (own + weight * (seen - own)).to(y.dtype.element_ty), mask=inside)


@triton.jit
def _scale(x, y, numbers, BLOCK: tl.constexpr):
    """Bytes divided by 255."""
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < numbers
    values = tl.load(x + i, mask=inside, other=0).to(tl.float32)
    tl.store(y + i, tl.div_rn(values, 255.0).to(y.dtype.element_ty), mask=inside)


@triton.jit
def _convolve(
    x, weight, y, FRAMES: tl.constexpr, H: tl.constexpr, W: tl.constexpr, BLOCK: tl.constexpr
):
    """A block of pixels of one frame: 27 values, three filters, sigmoid."""
    frame = tl.program_id(0)
    p = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = p < H * W
    row, column = p // W, p % W
    red = tl.zeros((BLOCK,), tl.float32)
    green = tl.zeros((BLOCK,), tl.float32)
    blue = tl.zeros((BLOCK,), tl.float32)
    for tap in tl.static_range(9):
        r = tl.minimum(tl.maximum(row + tap // 3 - 1, 0), H - 1)  # the border is repeated
        c = tl.minimum(tl.maximum(column + tap % 3 - 1, 0), W - 1)
        for source in tl.static_range(3):
            at = (frame * 3 + source) * H * W + r * W + c
            value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
            w = weight + (frame // FRAMES) * 81 + source * 9 + tap
            red += tl.load(w) * value
            green += tl.load(w + 27) * value
            blue += tl.load(w + 54) * value
    out = y + frame * 3 * H * W + p
    kind = y.dtype.element_ty
    tl.store(out, tl.sigmoid(red).to(kind), mask=inside)
    tl.store(out + H * W, tl.sigmoid(green).to(kind), mask=inside)
    tl.store(out + 2 * H * W, tl.sigmoid(blue).to(kind), mask=inside)


def scaled(images: Tensor, dtype: torch.dtype) -> Tensor:
    """`views.scaled`: bytes as pixels in [0, 1]."""
    y = torch.empty(images.shape, dtype=dtype, device=images.device)
    numbers = images.numel()
    _scale[(triton.cdiv(numbers, 4 * BLOCK),)](images.contiguous(), y, numbers, 4 * BLOCK)
    return y


@torch.library.custom_op("svea::windows", mutates_args=())
def windows(
    x: Tensor, corner: Tensor, height: int, width: int, pad: int, dtype: torch.dtype
) -> Tensor:
    """(B, C, H, W) and a corner (B, 2) for each sample -> (B, C, height, width).

    Bytes that are asked for in another type become pixels in [0, 1] on the way.
    """
    batch, channels, rows, columns = x.shape
    y = torch.empty((batch, channels, height, width), dtype=dtype, device=x.device)
    grid = (batch * channels, triton.cdiv(height * width, BLOCK))
    scaled = x.dtype == torch.uint8 and dtype != torch.uint8
    _cut[grid](
        x.contiguous(), corner.contiguous(), y, channels, rows, columns, height, width, pad, scaled,
        BLOCK,
    )  # fmt: skip
    return y


@windows.register_fake
def _(x: Tensor, corner: Tensor, height: int, width: int, pad: int, dtype: torch.dtype) -> Tensor:
    return x.new_empty((*x.shape[:2], height, width), dtype=dtype)


@torch.library.custom_op("svea::mixed_drifting", mutates_args=())
def mixed_drifting(x: Tensor, picture: Tensor, speed: Tensor, margin: int, weight: float) -> Tensor:
    """`overlay_drift`: frames (B, 3k, H, W), each mixed with its window of a picture (B, 3, ...).

    `margin` pixels of the picture are left over on each side; it moves by `speed` (B, 2) a frame.
    """
    batch, channels, height, width = x.shape
    needed = (batch, 3, height + 2 * margin, width + 2 * margin)
    if picture.shape != needed:  # the kernel would read beyond it
        raise ValueError(f"overlay_drift: pictures are {tuple(picture.shape)}; allowed: {needed}")
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    grid = (batch * channels, triton.cdiv(height * width, BLOCK))
    _mix_drifting[grid](
        x.contiguous(), picture.contiguous(), speed.contiguous(), y, weight, channels // 3, height,
        width, margin, BLOCK,
    )  # fmt: skip
    return y


@mixed_drifting.register_fake
def _(x: Tensor, picture: Tensor, speed: Tensor, margin: int, weight: float) -> Tensor:
    return x.new_empty(x.shape)


def convolved(x: Tensor, weight: Tensor) -> Tensor:
    """(B, 3k, H, W) and a filter for each sample (B, 3, 3, 3, 3) -> sigmoid of the convolution."""
    batch, channels, rows, columns = x.shape
    frames = channels // 3
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    grid = (batch * frames, triton.cdiv(rows * columns, CONVOLVED))
    _convolve[grid](x.contiguous(), weight.contiguous(), y, frames, rows, columns, CONVOLVED)
    return y
