"""The random convolution in Triton, for pixels of any type; random_convolution.py chooses."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 256  # pixels to a program


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


def convolve(x: Tensor, weight: Tensor) -> Tensor:
    """(B, 3k, H, W) and a filter for each sample (B, 3, 3, 3, 3) -> sigmoid of the convolution."""
    batch, channels, rows, columns = x.shape
    frames = channels // 3
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    grid = (batch * frames, triton.cdiv(rows * columns, BLOCK))
    _convolve[grid](x.contiguous(), weight.contiguous(), y, frames, rows, columns, BLOCK)
    return y
