"""The usual augmentations: random shift or crop (weak); convolution, overlay and drift (strong)."""

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from svea.augment.registry import Draw, Pictures, integers, register
from svea.config.names import DRIFT, check_drift
from svea.core.errors import UserError, at_least, between


def _draw_shift(x: Tensor, generator: Generator | None = None, *, pad: int = 4) -> Draw:
    at_least(0).check("shift: pad", pad)
    return {"corner": integers(x, generator, 2 * pad + 1, 2), "pad": pad}


@register(_draw_shift, moves_pixels=True)
def shift(x: Tensor, *, corner: Tensor, pad: int) -> Tensor:
    """Move the image by -pad..pad whole pixels on each axis, replicating its border (DrQ)."""
    return windows(x, corner, x.shape[2], x.shape[3], pad)


def _draw_crop(x: Tensor, generator: Generator | None = None, *, size: int = 84) -> Draw:
    check_crop(x, size)
    rows, columns = x.shape[2:]
    top = integers(x, generator, rows - size + 1, 1)
    left = integers(x, generator, columns - size + 1, 1)
    return {"corner": torch.cat([top, left], dim=1), "size": size}


@register(_draw_crop, moves_pixels=True)
def crop(x: Tensor, *, corner: Tensor, size: int) -> Tensor:
    """Cut a square of `size` pixels at a random place (RAD); see `centre_crop` for test time."""
    return windows(x, corner, size, size, pad=0)


def centre_crop(x: Tensor, size: int = 84) -> Tensor:
    """Cut the central square of `size` pixels: what `crop` becomes at test time."""
    check_crop(x, size)
    top, left = (x.shape[-2] - size) // 2, (x.shape[-1] - size) // 2
    return x[..., top : top + size, left : left + size]


def check_crop(x: Tensor, size: int) -> None:
    """Raise if a crop of `size` pixels does not fit."""
    if not 0 < size <= min(x.shape[-2:]):
        raise UserError(
            f"crop: size is {size}; observations have {x.shape[-2]}x{x.shape[-1]} pixels. Render "
            "larger ones (100 for a crop of 84) or crop less"
        )


def windows(x: Tensor, corner: Tensor, height: int, width: int, pad: int) -> Tensor:
    """Cut one window per sample out of x with a border of `pad` replicated pixels."""
    batch, channels, rows, columns = x.shape
    device = x.device
    top, left = corner[:, :1], corner[:, 1:]  # (B, 1)
    row = (torch.arange(height, device=device) + top - pad).clamp(0, rows - 1)  # (B, height)
    if device.type == "cpu" and not torch.compiler.is_compiling():
        # Copy whole rows: every run of `width` pixels of the padded rows is a row of an
        # overlapping view. 3 to 20 times faster than gathering pixels (uint8).
        if pad:
            edges = x[..., :1], x[..., -1:]
            ends = [edge.expand(batch, channels, rows, pad) for edge in edges]
            x = torch.cat([ends[0], x, ends[1]], dim=-1)
        x = x.contiguous()
        stride = x.shape[-1]
        runs = x.view(-1).as_strided((x.numel() - width + 1, width), (1, 1))
        plane = torch.arange(batch * channels).view(batch, channels, 1)
        start = (plane * rows + row[:, None]) * stride + left[:, None]  # (B, C, height)
        return runs.index_select(0, start.flatten()).view(batch, channels, height, width)
    column = (torch.arange(width, device=device) + left - pad).clamp(0, columns - 1)
    return pick(x, row[:, :, None] * columns + column[:, None, :])


def pick(x: Tensor, source: Tensor) -> Tensor:
    """Gather pixels by their place in the flattened image: source is (B, height, width)."""
    index = source.flatten(1)[:, None].expand(-1, x.shape[1], -1)
    return x.flatten(2).gather(2, index).view(*x.shape[:2], *source.shape[1:])


def _draw_conv(x: Tensor, generator: Generator | None = None) -> Draw:
    return {"weight": torch.randn(len(x), 3, 3, 3, 3, generator=generator, device=x.device)}


@register(_draw_conv)
def conv(x: Tensor, *, weight: Tensor) -> Tensor:
    """Pass each sample through its own random 3x3 convolution and a sigmoid."""
    batch, channels, rows, columns = x.shape
    frames = channels // 3
    padded = F.pad(x, (1, 1, 1, 1), mode="replicate")
    # One group per frame: nothing is transposed, and one call serves the batch.
    images = padded.reshape(1, batch * channels, rows + 2, columns + 2)
    filters = weight.to(x.dtype).repeat_interleave(frames, dim=0, output_size=batch * frames)
    y = F.conv2d(images, filters.flatten(0, 1), groups=batch * frames)
    return y.view(x.shape).sigmoid_()


def _draw_overlay(
    x: Tensor,
    generator: Generator | None = None,
    *,
    images: Pictures | None = None,
    weight: float = 0.5,
) -> Draw:
    between(0, 1).check("overlay: weight", weight)
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
    between(0, 1).check("overlay_drift: weight", weight)
    at_least(0).check("overlay_drift: drift", drift)
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
