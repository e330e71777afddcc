"""Turned, warped, covered, blurred, or changed in its spectrum: an image in another form."""

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from svea.augment.registry import Draw, integers, register, uniform
from svea.augment.usual import as_frames, conv, pick
from svea.core.errors import Bounds, UserError, between


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


GREY = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in the grey level (Rec. 601)."""

CHROMA_TURN = (
    (0.1677, 0.3293, -0.4970),
    (-0.3281, 0.0355, 0.2926),
    (1.2497, -1.0465, -0.2032),
)
"""A quarter turn of the hue circle: the matrix that takes I to Q and Q to -I in NTSC's YIQ."""


def _draw_rotation(
    x: Tensor, generator: Generator | None = None, *, max_degrees: float | None = None
) -> Draw:
    if max_degrees is not None:
        return {"degrees": uniform(x, generator, -max_degrees, max_degrees)}
    if x.shape[2] != x.shape[3]:
        raise UserError(
            f"rotation: quarter turns need square observations; got {x.shape[2]}x{x.shape[3]}. "
            "Pass max_degrees to rotate by any angle"
        )
    return {"quarters": integers(x, generator, 4)}


@register(_draw_rotation)
def rotation(x: Tensor, *, quarters: Tensor | None = None, degrees: Tensor | None = None) -> Tensor:
    """Turn by 0, 90, 180 or 270 degrees (RotNet, RAD), or by any angle up to `max_degrees`."""
    if degrees is not None:
        one, zero = torch.ones_like(degrees), torch.zeros_like(degrees)
        return warp(x, *inverse_affine(degrees, one, one, zero))
    assert quarters is not None
    place = torch.arange(x[0, 0].numel(), device=x.device).view(x.shape[2:])
    turned = torch.stack([place.rot90(quarter) for quarter in range(4)])
    return pick(x, turned[quarters])


def _draw_affine_jitter(
    x: Tensor,
    generator: Generator | None = None,
    *,
    degrees: float = 8.0,
    scale: tuple[float, float] = (0.92, 1.08),
    shear: float = 8.0,
    brightness: float = 0.4,
    contrast: float = 0.4,
    saturation: float = 0.4,
    hue: float = 0.5,
) -> Draw:
    if not (0 < scale[0] <= scale[1] and 0 <= shear < 90):
        raise UserError(
            f"affine_jitter: scale is {scale} and shear {shear} degrees; "
            "expected 0 < smallest <= largest, and less than 90 degrees"
        )
    strength = {"brightness": brightness, "contrast": contrast, "saturation": saturation}
    return {
        "degrees": uniform(x, generator, -degrees, degrees),
        "scale": uniform(x, generator, *scale, 2),
        "shear": uniform(x, generator, -shear, shear),
        **{
            name: uniform(x, generator, max(0.0, 1 - most), 1 + most)
            for name, most in strength.items()
        },
        "hue": uniform(x, generator, -hue, hue),
    }


@register(_draw_affine_jitter)
def affine_jitter(
    x: Tensor, *, degrees: Tensor, scale: Tensor, shear: Tensor, **colours: Tensor
) -> Tensor:
    """Rotate, scale and shear about the centre, then jitter brightness, contrast and colour."""
    y = x.to(working_dtype(x))
    y = warp(y, *inverse_affine(degrees, scale[:, 0], scale[:, 1], shear))
    return jitter(y, **colours).to(x.dtype)


def inverse_affine(
    degrees: Tensor, scale_x: Tensor, scale_y: Tensor, shear: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The output-to-input map of: scale, then shear along x, then rotate counter-clockwise.

    Written out, because torch.linalg.inv waits for the device.
    """
    angle, tangent = degrees.deg2rad(), shear.deg2rad().tan()
    cosine, sine = angle.cos(), angle.sin()
    return (
        (cosine - tangent * sine) / scale_x,
        (-sine - tangent * cosine) / scale_x,
        sine / scale_y,
        cosine / scale_y,
    )


def warp(x: Tensor, xx: Tensor, xy: Tensor, yx: Tensor, yy: Tensor) -> Tensor:
    """Read every output pixel at (xx*x + xy*y, yx*x + yy*y) from the centre, bilinearly.

    Beyond the border the nearest pixel is read. Coordinates need float32: in bfloat16 the
    right half of an image has a resolution of half a pixel.
    """
    rows, columns = x.shape[2:]
    across = torch.arange(columns, device=x.device) - (columns - 1) / 2  # (W,)
    down = (torch.arange(rows, device=x.device) - (rows - 1) / 2)[:, None]  # (H, 1)
    xx, xy, yx, yy = (entry[:, None, None] for entry in (xx, xy, yx, yy))
    # grid_sample wants -1 and 1 at the outer edges of the image
    grid = torch.stack(
        [(xx * across + xy * down) * (2 / columns), (yx * across + yy * down) * (2 / rows)], dim=-1
    )
    y = F.grid_sample(x.float(), grid, padding_mode="border", align_corners=False)
    return y.clamp_(0, 1).to(x.dtype)


def jitter(
    x: Tensor, brightness: Tensor, contrast: Tensor, saturation: Tensor, hue: Tensor
) -> Tensor:
    """Change brightness, contrast about the mean grey, saturation and hue, in this order.

    Each of the four is an affine map of (R, G, B), so together they are one 3x3 matrix and one
    offset per sample, applied once and clipped once. Hue turns the chroma plane of YIQ.
    """
    frames = as_frames(x)  # (B, k, 3, H, W)
    gain = brightness * contrast
    straight = saturation * (2 * torch.pi * hue).cos()
    turned = saturation * (2 * torch.pi * hue).sin()
    # Constants enter as numbers: a copy from the host cannot be captured in a CUDA graph.
    entries = [
        GREY[j] + straight * ((i == j) - GREY[j]) + turned * CHROMA_TURN[i][j]
        for i in range(3)
        for j in range(3)
    ]
    matrix = (gain * torch.stack(entries)).T.reshape(-1, 1, 3, 3)  # (B, 1, 3, 3)
    mean = frames.mean(dim=(1, 3, 4), dtype=torch.float32)  # (B, 3), over the whole stack
    grey = sum(weight * mean[:, channel] for channel, weight in enumerate(GREY))
    offset = brightness * (1 - contrast) * grey  # a grey: saturation and hue leave it alone
    y = torch.matmul(matrix.to(x.dtype), frames.flatten(3))  # (B, k, 3, H * W)
    return (y + offset.to(x.dtype).view(-1, 1, 1, 1)).clamp_(0, 1).reshape(x.shape)


def _draw_spectrum(
    x: Tensor,
    generator: Generator | None = None,
    *,
    highest: float = 0.5,
    widest: float = 0.05,
    probability: float = 0.5,
) -> Draw:
    between(0, 1).check("spectrum: probability", probability)
    for name, periods_per_pixel in (("highest", highest), ("widest", widest)):
        Bounds(0, 0.5, excluded=True).check(f"spectrum: {name}", periods_per_pixel)
    low = uniform(x, generator, 0, highest).round(decimals=2)
    width = uniform(x, generator, 0, widest).round(decimals=2)
    changed = uniform(x, generator, 0, 1) < probability
    return {"low": low, "high": low + width * changed}


@register(_draw_spectrum)
def spectrum(x: Tensor, *, low: Tensor, high: Tensor) -> Tensor:
    """Take a square band of frequencies, in periods per pixel, out of each sample (SRM)."""
    rows, columns = x.shape[2:]
    vertical = torch.fft.fftfreq(rows, device=x.device).abs()[:, None]
    horizontal = torch.fft.rfftfreq(columns, device=x.device)
    largest = torch.maximum(vertical, horizontal)  # (rows, columns / 2 + 1)
    low, high = (each[:, None, None, None] for each in (low, high))
    kept = (largest < low) | (largest >= high)
    waves = torch.fft.rfft2(_exact(x)) * kept
    return torch.fft.irfft2(waves, s=(rows, columns)).clamp(0, 1).to(x.dtype)


def _draw_amplitude_mix(
    x: Tensor,
    generator: Generator | None = None,
    *,
    share: tuple[float, float] = (0.8, 1.0),
    probability: float = 0.5,
) -> Draw:
    between(0, 1).check("amplitude_mix: probability", probability)
    if not 0 <= share[0] <= share[1] <= 1:
        raise UserError(f"amplitude_mix: share is {share}; expected 0 to 1, the smaller one first")
    weight = conv.draw(x, generator)["weight"]
    drawn = uniform(x, generator, *share)
    changed = uniform(x, generator, 0, 1) < probability
    return {"weight": weight, "share": drawn * changed}


@register(_draw_amplitude_mix)
def amplitude_mix(x: Tensor, *, weight: Tensor, share: Tensor) -> Tensor:
    """Give each sample a share of another one's amplitudes, and keep its phases (Mix-Spectrum).

    The other one is the previous sample of the batch after a random convolution.
    """
    plain = _exact(x)
    waves = torch.fft.rfft2(plain)
    others = torch.fft.rfft2(conv.function(plain.roll(1, dims=0), weight=weight)).abs()
    amplitude = waves.abs().lerp(others, share[:, None, None, None].to(plain.dtype))
    mixed = torch.fft.irfft2(torch.polar(amplitude, waves.angle()), s=x.shape[2:])
    changed = (share > 0)[:, None, None, None]  # the others stay bit for bit
    return torch.where(changed, mixed.clamp(0, 1), plain).to(x.dtype)


def _exact(x: Tensor) -> Tensor:
    """In float32 at least: there are no transforms of bfloat16."""
    return x.to(torch.promote_types(x.dtype, torch.float32))
