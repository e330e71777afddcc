"""Hiding detail: a box that covers part of the picture, and a blur."""

from __future__ import annotations

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from svea.augment.colour import as_frames
from svea.augment.draws import integers, uniform
from svea.augment.registry import Draw, register
from svea.core.errors import UserError


def _draw_cutout(
    x: Tensor,
    generator: Generator | None = None,
    *,
    smallest: int = 10,
    largest: int = 30,
    colour: bool = False,
) -> Draw:
    rows, columns = x.shape[2:]
    if not 0 < smallest <= largest <= min(rows, columns):
        raise UserError(
            f"cutout: boxes of {smallest} to {largest} pixels do not fit {rows}x{columns}; "
            "expected 0 < smallest <= largest <= image side"
        )
    sizes, corners = [], []
    for side in (rows, columns):
        size = smallest + integers(x, generator, largest - smallest + 1)
        free = side - size
        corner = (uniform(x, generator, 0, 1) * (free + 1)).long()
        sizes.append(size)
        corners.append(corner.minimum(free))  # the product may round up to free + 1
    fill = uniform(x, generator, 0, 1, 3) if colour else torch.zeros(len(x), 3, device=x.device)
    return {"corner": torch.stack(corners, 1), "size": torch.stack(sizes, 1), "fill": fill}


@register(_draw_cutout)
def cutout(x: Tensor, *, corner: Tensor, size: Tensor, fill: Tensor) -> Tensor:
    """Cover a box at a random place with black, or with a random colour (Cobbe et al., RAD)."""
    inside = []
    for axis, length in enumerate(x.shape[2:]):
        place = torch.arange(length, device=x.device) - corner[:, axis, None]
        inside.append((place >= 0) & (place < size[:, axis, None]))
    box = inside[0][:, None, None, :, None] & inside[1][:, None, None, None, :]  # (B, 1, 1, H, W)
    colour = fill.to(x.dtype)[:, None, :, None, None]
    return torch.where(box, colour, as_frames(x)).flatten(1, 2)


def _draw_blur(
    x: Tensor, generator: Generator | None = None, *, sigma: tuple[float, float] = (0.1, 2.0)
) -> Draw:
    if not 0 < sigma[0] <= sigma[1]:
        raise UserError(f"blur: sigma is {sigma}; expected 0 < smallest <= largest, in pixels")
    return {"sigma": uniform(x, generator, *sigma)}


@register(_draw_blur)
def blur(x: Tensor, *, sigma: Tensor) -> Tensor:
    """Blur with a Gaussian of random width; at the border its weights are scaled to sum to 1.

    The Gaussian is separable, and each pass is a product with a (side, side) matrix per sample:
    no kernel size to choose, and a batch of matrix products is what every device does best.
    """
    dtype = working_dtype(x)
    across, down = (_gaussian(sigma, side).to(dtype) for side in (x.shape[3], x.shape[2]))
    y = torch.bmm(x.to(dtype).flatten(1, 2), across.mT).view(x.shape)
    y = torch.matmul(down[:, None], y)
    return y.clamp_(0, 1).to(x.dtype)  # rounding may leave [0, 1] by an ulp


def _gaussian(sigma: Tensor, side: int) -> Tensor:
    """The (B, side, side) matrices that blur one axis."""
    place = torch.arange(side, device=sigma.device, dtype=sigma.dtype)
    distance = (place[:, None] - place) / sigma[:, None, None]
    # Below 1e-6 a weight is dropped: on a CPU denormal numbers would make the products 8 times
    # slower.
    weight = F.threshold(torch.exp(-0.5 * distance**2), 1e-6, 0)
    return weight / weight.sum(-1, keepdim=True)


def working_dtype(x: Tensor) -> torch.dtype:
    """Multiply matrices in float32 on a CPU, whatever the observations are.

    bfloat16 gains nothing at these sizes, and some virtual machines announce the instructions
    for it (AMX) but do not grant them.
    """
    return torch.float32 if x.device.type == "cpu" else x.dtype
