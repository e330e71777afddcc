"""Overlay with a picture that moves: the augmentation of SimGRL."""

from __future__ import annotations

import torch
from torch import Generator, Tensor

from svea.augment.colour import Pictures, as_frames, check_weight, pictures_for
from svea.augment.crops import windows
from svea.augment.draws import integers
from svea.augment.registry import Draw, register
from svea.config.augmentations import DRIFT, check_drift
from svea.core.errors import UserError


def _draw_overlay_drift(
    x: Tensor,
    generator: Generator | None = None,
    *,
    images: Pictures | None = None,
    weight: float = 0.5,
    drift: int = DRIFT,
) -> Draw:
    check_weight("overlay_drift", weight)
    if drift < 0:
        raise UserError(f"overlay_drift: drift is {drift}; expected 0 or more pixels per frame")
    images, frames = pictures_for(x, images), x.shape[1] // 3
    if (side := getattr(images, "side", None)) is not None:  # a user's own may not tell
        check_drift(max(x.shape[2:]), drift, frames, side)
    margin = frames * drift
    picture = images.draw(len(x), x.shape[2] + 2 * margin, x.shape[3] + 2 * margin, generator)
    speed = integers(x, generator, 2 * drift + 1, 2) - drift
    return {"picture": picture, "speed": speed, "margin": margin, "weight": weight}


@register(_draw_overlay_drift)
def overlay_drift(
    x: Tensor, *, picture: Tensor, speed: Tensor, margin: int, weight: float
) -> Tensor:
    """Overlay with a picture that moves by a random constant step from frame to frame (SimGRL)."""
    frames = as_frames(x)  # (B, k, 3, H, W)
    rows, columns = x.shape[2:]
    corners = [margin + frame * speed for frame in range(frames.shape[1])]
    seen = torch.stack([windows(picture, each, rows, columns, pad=0) for each in corners], dim=1)
    return frames.lerp(seen.to(x.dtype), weight).flatten(1, 2)
