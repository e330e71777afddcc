"""Random convolution and overlay, the strong augmentations of the paper's main results; drift."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from svea.augment.crops import windows
from svea.augment.registry import Draw, integers, register
from svea.config.names import DRIFT, check_drift
from svea.core.errors import UserError


def _draw_conv(x: Tensor, generator: Generator | None = None) -> Draw:
    return {"weight": torch.randn(len(x), 3, 3, 3, 3, generator=generator, device=x.device)}


@register(_draw_conv)
def conv(x: Tensor, *, weight: Tensor) -> Tensor:
    """Pass each sample through its own random 3x3 convolution and a sigmoid."""
    batch, channels, rows, columns = x.shape
    frames = channels // 3
    padded = F.pad(x, (1, 1, 1, 1), mode="replicate")
    # One group per frame: nothing is transposed, and one call serves the batch.
    y = F.conv2d(
        padded.reshape(1, batch * channels, rows + 2, columns + 2),
        weight.to(x.dtype)
        .repeat_interleave(frames, dim=0, output_size=batch * frames)
        .flatten(0, 1),
        groups=batch * frames,
    )
    return y.view(x.shape).sigmoid_()


class Pictures(Protocol):
    """What `overlay` needs: `svea.augment.images.ImageBank`, or anything else with this method."""

    def draw(
        self, count: int, height: int, width: int, generator: Generator | None = None
    ) -> Tensor:
        """Draw pictures as float `(count, 3, height, width)` in [0, 1]."""


def _draw_overlay(
    x: Tensor,
    generator: Generator | None = None,
    *,
    images: Pictures | None = None,
    weight: float = 0.5,
) -> Draw:
    check_weight("overlay", weight)
    picture = pictures_for(x, images).draw(len(x), x.shape[2], x.shape[3], generator)
    return {"picture": picture, "weight": weight}


@register(_draw_overlay)
def overlay(x: Tensor, *, picture: Tensor, weight: float) -> Tensor:
    """Mix each sample with a picture: (1 - weight) * x + weight * picture (SODA)."""
    frames = as_frames(x)  # (B, k, 3, H, W)
    return frames.lerp(picture[:, None].to(x.dtype), weight).flatten(1, 2)


def as_frames(x: Tensor) -> Tensor:
    """View the stack as frames: (B, k, 3, H, W)."""
    return x.unflatten(1, (-1, 3))


def check_weight(name: str, weight: float) -> None:
    """Raise if a weight is not a part of the whole."""
    if not 0 <= weight <= 1:
        raise UserError(f"{name}: weight is {weight}; expected 0 (no picture) to 1 (only it)")


def pictures_for(x: Tensor, images: Pictures | None) -> Pictures:
    """The pictures that are given, else generated ones, made when first asked for."""
    if images is None:
        from svea.augment.images import ImageBank

        images = ImageBank.procedural(device=x.device)
    return images


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
