"""Augmentations: pure functions on batches of stacked RGB frames.

Every augmentation is a pair of functions. `draw` makes the random parameters, one row per sample,
shared by the frames of its stack; `apply` uses them. Calling the augmentation does both:

>>> import torch
>>> x = torch.rand(2, 9, 84, 84)
>>> y = conv(x, torch.Generator().manual_seed(0))
>>> parameters = shift.draw(x, torch.Generator().manual_seed(0), pad=2)  # keep the draw ...
>>> torch.equal(shift.apply(x, parameters), shift.apply(x, parameters))  # ... to replay it
True

Nothing here waits for the device, so all of it may run inside a captured CUDA graph. Draws are
float32 or int64 whatever the dtype of the observations, so float32 and bfloat16 see the same draw.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Protocol

import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from svea import compilation
from svea.errors import UserError, unknown_name

TRITON = find_spec("triton") is not None  # comes with torch's CUDA builds

Draw = dict[str, Any]
"""Tensors with one row per sample, and plain numbers that hold for the whole batch."""

Augment = Callable[..., Tensor]
"""`f(x, generator=None) -> x`: what `augmentation` returns."""


class Pictures(Protocol):
    """What `overlay` needs: `svea.augment.images.ImageBank`, or anything else with this method."""

    def draw(
        self, count: int, height: int, width: int, generator: Generator | None = None
    ) -> Tensor:
        """Draw pictures as float `(count, 3, height, width)` in [0, 1]."""


@dataclass(frozen=True)
class Augmentation:
    """A named pair of functions: draw the parameters, apply them.

    Attributes:
        name: What users type.
        draw: `draw(x, generator=None, **parameters) -> Draw`; reads only the shape and the device
            of `x`.
        function: `function(x, **draw) -> x`.
        moves_pixels: True if pixels move but keep their values: uint8 is then taken as well, and
            costs a quarter of float32.
    """

    name: str
    draw: Callable[..., Draw]
    function: Callable[..., Tensor]
    moves_pixels: bool = False

    def apply(self, x: Tensor, draw: Draw) -> Tensor:
        """Augment `x` with parameters that were drawn before."""
        # Autocast would turn the matrix products and coordinates below into bfloat16.
        with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
            return compilation.maybe_compiled(self.function)(x, **draw)

    def __call__(self, x: Tensor, generator: Generator | None = None, **parameters: Any) -> Tensor:
        """Augment every sample of `x`, shaped `(B, 3k, H, W)` with values in [0, 1]."""
        check(x, self)
        return self.apply(x, self.draw(x, generator, **parameters))


AUGMENTATIONS: dict[str, Augmentation] = {}
"""All augmentations by name."""


def register(
    draw: Callable[..., Draw], *, moves_pixels: bool = False
) -> Callable[[Callable[..., Tensor]], Augmentation]:
    """Make the decorated function an augmentation under its own name.

    Args:
        draw: `draw(x, generator=None, **parameters)`; its result becomes the keyword arguments of
            the decorated function.
        moves_pixels: The function works on uint8 as well.
    """

    def decorate(function: Callable[..., Tensor]) -> Augmentation:
        name = function.__name__
        if name in AUGMENTATIONS:
            raise ValueError(f"the augmentation {name!r} is already registered")
        AUGMENTATIONS[name] = Augmentation(name, draw, function, moves_pixels)
        return AUGMENTATIONS[name]

    return decorate


def check(x: Tensor, what: Augmentation | None = None) -> None:
    """Raise an error that names what is wrong with `x`, if anything is.

    Values are checked on the CPU only: elsewhere the check would wait for the device.
    """
    name = what.name if what else "augmentation"
    expected = f"{name} takes observations shaped (batch, 3 * frames, height, width)"
    if x.ndim != 4:
        raise UserError(f"{expected}; got {x.ndim} axes: {tuple(x.shape)}")
    if x.shape[1] == 0 or x.shape[1] % 3:
        raise UserError(
            f"{expected}; got {x.shape[1]} channels, which is not a positive multiple of 3"
        )
    if x.dtype == torch.uint8 and (what is None or what.moves_pixels):
        return
    if not x.is_floating_point():
        raise UserError(f"{name} takes floats in [0, 1]; got {x.dtype}. Divide by 255 first")
    if x.device.type == "cpu" and x.numel() and not torch.compiler.is_compiling():
        low, high = (float(bound) for bound in x.detach().aminmax())
        if not (low >= 0 and high <= 1):  # written so that NaN fails
            raise UserError(
                f"{name} takes values in [0, 1]; got {low:g} to {high:g}. "
                "Divide by 255 if these are bytes"
            )


# --- moving pixels: shift, crop, rotation ---------------------------------------------------------


def _integers(x: Tensor, generator: Generator | None, count: int, *columns: int) -> Tensor:
    """Uniform integers 0..count-1, one row per sample."""
    return torch.randint(count, (len(x), *columns), generator=generator, device=x.device)


def _uniform(
    x: Tensor, generator: Generator | None, low: float, high: float, *columns: int
) -> Tensor:
    """Uniform float32 numbers in [low, high), one row per sample."""
    unit = torch.rand((len(x), *columns), generator=generator, device=x.device)
    return low + (high - low) * unit


def _windows(x: Tensor, corner: Tensor, height: int, width: int, pad: int) -> Tensor:
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
    if x.is_cuda and TRITON:
        from svea.speed.kernels.windows import windows

        return windows(x, corner, height, width, pad)
    column = (torch.arange(width, device=device) + left - pad).clamp(0, columns - 1)
    return _pick(x, row[:, :, None] * columns + column[:, None, :])


def _pick(x: Tensor, source: Tensor) -> Tensor:
    """Gather pixels by their place in the flattened image: source is (B, height, width)."""
    index = source.flatten(1)[:, None].expand(-1, x.shape[1], -1)
    return x.flatten(2).gather(2, index).view(*x.shape[:2], *source.shape[1:])


def _draw_shift(x: Tensor, generator: Generator | None = None, *, pad: int = 4) -> Draw:
    if pad < 0:
        raise UserError(f"shift: pad is {pad}; expected 0 or more pixels")
    return {"corner": _integers(x, generator, 2 * pad + 1, 2), "pad": pad}


@register(_draw_shift, moves_pixels=True)
def shift(x: Tensor, *, corner: Tensor, pad: int) -> Tensor:
    """Move the image by -pad..pad whole pixels on each axis, replicating its border (DrQ)."""
    return _windows(x, corner, x.shape[2], x.shape[3], pad)


def _draw_crop(x: Tensor, generator: Generator | None = None, *, size: int = 84) -> Draw:
    _check_crop(x, size)
    rows, columns = x.shape[2:]
    top = _integers(x, generator, rows - size + 1, 1)
    left = _integers(x, generator, columns - size + 1, 1)
    return {"corner": torch.cat([top, left], dim=1), "size": size}


@register(_draw_crop, moves_pixels=True)
def crop(x: Tensor, *, corner: Tensor, size: int) -> Tensor:
    """Cut a square of `size` pixels at a random place (RAD); see `centre_crop` for test time."""
    return _windows(x, corner, size, size, pad=0)


def centre_crop(x: Tensor, size: int = 84) -> Tensor:
    """Cut the central square of `size` pixels: what `crop` becomes at test time."""
    _check_crop(x, size)
    top, left = (x.shape[-2] - size) // 2, (x.shape[-1] - size) // 2
    return x[..., top : top + size, left : left + size]


def _check_crop(x: Tensor, size: int) -> None:
    """Raise if a crop of `size` pixels does not fit."""
    if not 0 < size <= min(x.shape[-2:]):
        raise UserError(
            f"crop: cannot cut {size}x{size} pixels out of {x.shape[-2]}x{x.shape[-1]}; "
            "render larger observations (100 for a crop of 84) or crop less"
        )


def _draw_rotation(
    x: Tensor, generator: Generator | None = None, *, max_degrees: float | None = None
) -> Draw:
    if max_degrees is not None:
        return {"degrees": _uniform(x, generator, -max_degrees, max_degrees)}
    if x.shape[2] != x.shape[3]:
        raise UserError(
            f"rotation: quarter turns need square observations; got {x.shape[2]}x{x.shape[3]}. "
            "Pass max_degrees to rotate by any angle"
        )
    return {"quarters": _integers(x, generator, 4)}


@register(_draw_rotation)
def rotation(x: Tensor, *, quarters: Tensor | None = None, degrees: Tensor | None = None) -> Tensor:
    """Turn by 0, 90, 180 or 270 degrees (RotNet, RAD), or by any angle up to `max_degrees`."""
    if degrees is not None:
        one, zero = torch.ones_like(degrees), torch.zeros_like(degrees)
        return _warp(x, *_inverse_affine(degrees, one, one, zero))
    assert quarters is not None
    place = torch.arange(x[0, 0].numel(), device=x.device).view(x.shape[2:])
    turned = torch.stack([place.rot90(quarter) for quarter in range(4)])
    return _pick(x, turned[quarters])


# --- changing values: conv, overlay, cutout, blur -------------------------------------------------


def _frames(x: Tensor) -> Tensor:
    """View the stack as frames: (B, k, 3, H, W)."""
    return x.unflatten(1, (-1, 3))


def _draw_conv(x: Tensor, generator: Generator | None = None) -> Draw:
    return {"weight": torch.randn(len(x), 3, 3, 3, 3, generator=generator, device=x.device)}


@register(_draw_conv)
def conv(x: Tensor, *, weight: Tensor) -> Tensor:
    """Pass each sample through its own random 3x3 convolution and a sigmoid."""
    batch, channels, rows, columns = x.shape
    frames = channels // 3
    if x.is_cuda and TRITON:
        from svea.speed.kernels.random_convolution import random_convolution

        return random_convolution(x, weight)
    if compilation.in_c():
        from svea.speed.kernels import cpu

        if cpu.suits_random_convolution(x):
            return cpu.random_convolution(x, weight)
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


def _draw_overlay(
    x: Tensor, generator: Generator | None = None, *, images: Pictures, weight: float = 0.5
) -> Draw:
    if not 0 <= weight <= 1:
        raise UserError(f"overlay: weight is {weight}; expected 0 (no picture) to 1 (only it)")
    picture = images.draw(len(x), x.shape[2], x.shape[3], generator)
    return {"picture": picture, "weight": weight}


@register(_draw_overlay)
def overlay(x: Tensor, *, picture: Tensor, weight: float) -> Tensor:
    """Mix each sample with a picture: (1 - weight) * x + weight * picture (SODA)."""
    frames = _frames(x)  # (B, k, 3, H, W)
    return frames.lerp(picture[:, None].to(x.dtype), weight).flatten(1, 2)


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
        size = smallest + _integers(x, generator, largest - smallest + 1)
        free = side - size
        corner = (_uniform(x, generator, 0, 1) * (free + 1)).long()
        sizes.append(size)
        corners.append(corner.minimum(free))  # the product may round up to free + 1
    fill = _uniform(x, generator, 0, 1, 3) if colour else torch.zeros(len(x), 3, device=x.device)
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
    return torch.where(box, colour, _frames(x)).flatten(1, 2)


def _draw_blur(
    x: Tensor, generator: Generator | None = None, *, sigma: tuple[float, float] = (0.1, 2.0)
) -> Draw:
    if not 0 < sigma[0] <= sigma[1]:
        raise UserError(f"blur: sigma is {sigma}; expected 0 < smallest <= largest, in pixels")
    return {"sigma": _uniform(x, generator, *sigma)}


def _working_dtype(x: Tensor) -> torch.dtype:
    """Multiply matrices in float32 on a CPU, whatever the observations are.

    bfloat16 gains nothing at these sizes, and some virtual machines announce the instructions
    for it (AMX) but do not grant them.
    """
    return torch.float32 if x.device.type == "cpu" else x.dtype


@register(_draw_blur)
def blur(x: Tensor, *, sigma: Tensor) -> Tensor:
    """Blur with a Gaussian of random width; at the border its weights are scaled to sum to 1.

    The Gaussian is separable, and each pass is a product with a (side, side) matrix per sample:
    no kernel size to choose, and a batch of matrix products is what every device does best.
    """
    dtype = _working_dtype(x)
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


# --- affine_jitter --------------------------------------------------------------------------------

GREY = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in the grey level (Rec. 601)."""

CHROMA_TURN = (
    (0.1677, 0.3293, -0.4970),
    (-0.3281, 0.0355, 0.2926),
    (1.2497, -1.0465, -0.2032),
)
"""A quarter turn of the hue circle: the matrix that takes I to Q and Q to -I in NTSC's YIQ."""


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
        "degrees": _uniform(x, generator, -degrees, degrees),
        "scale": _uniform(x, generator, *scale, 2),
        "shear": _uniform(x, generator, -shear, shear),
        **{
            name: _uniform(x, generator, max(0.0, 1 - most), 1 + most)
            for name, most in strength.items()
        },
        "hue": _uniform(x, generator, -hue, hue),
    }


@register(_draw_affine_jitter)
def affine_jitter(
    x: Tensor,
    *,
    degrees: Tensor,
    scale: Tensor,
    shear: Tensor,
    brightness: Tensor,
    contrast: Tensor,
    saturation: Tensor,
    hue: Tensor,
) -> Tensor:
    """Rotate, scale and shear about the centre, then jitter brightness, contrast and colour."""
    y = x.to(_working_dtype(x))
    y = _warp(y, *_inverse_affine(degrees, scale[:, 0], scale[:, 1], shear))
    return _jitter(y, brightness, contrast, saturation, hue).to(x.dtype)


def _inverse_affine(
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


def _warp(x: Tensor, xx: Tensor, xy: Tensor, yx: Tensor, yy: Tensor) -> Tensor:
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


def _jitter(
    x: Tensor, brightness: Tensor, contrast: Tensor, saturation: Tensor, hue: Tensor
) -> Tensor:
    """Change brightness, contrast about the mean grey, saturation and hue, in this order.

    Each of the four is an affine map of (R, G, B), so together they are one 3x3 matrix and one
    offset per sample, applied once and clipped once. Hue turns the chroma plane of YIQ.
    """
    frames = _frames(x)  # (B, k, 3, H, W)
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


# --- composition ----------------------------------------------------------------------------------


def none(x: Tensor, generator: Generator | None = None) -> Tensor:
    """Return x unchanged."""
    return x


def augmentation(spec: str, images: Callable[[], Pictures] | None = None) -> Augment:
    """Read a composition of augmentations such as `"conv+cutout|overlay"`.

    Args:
        spec: Names joined by `+` (one after the other) and `|` (each sample goes one of the ways,
            all equally likely); `+` binds tighter. `"none"` changes nothing.
        images: Makes the pictures for `overlay`; called once, now, and only if `spec` needs it.

    Returns:
        A function `f(x, generator=None) -> x`.
    """
    ways = [[name.strip() for name in way.split("+")] for way in spec.split("|")]
    branches = [_sequence(way, images) for way in ways]
    if len({"crop" in way for way in ways}) > 1:
        raise UserError(
            f"augmentation {spec!r} gives samples of one batch different sizes, because crop cuts "
            "some of them smaller; allowed: crop in every way or in none"
        )
    return branches[0] if len(branches) == 1 else _choice(branches)


def _sequence(names: list[str], images: Callable[[], Pictures] | None) -> Augment:
    """One augmentation after the other."""
    steps = [_named(name, images) for name in names]
    if len(steps) == 1:
        return steps[0]

    def sequence(x: Tensor, generator: Generator | None = None) -> Tensor:
        for step in steps:
            x = step(x, generator)
        return x

    return sequence


def _named(name: str, images: Callable[[], Pictures] | None) -> Augment:
    """The augmentation of this name, with its pictures if it needs any."""
    name = name.strip().replace("-", "_")
    if name == "none":
        return none
    if name not in AUGMENTATIONS:
        raise unknown_name("augmentation", name, [*AUGMENTATIONS, "none"])
    if name != "overlay":
        return AUGMENTATIONS[name]
    if images is None:
        return _overlay_without_pictures
    bank = images()
    return lambda x, generator=None: AUGMENTATIONS["overlay"](x, generator, images=bank)


def _overlay_without_pictures(x: Tensor, generator: Generator | None = None) -> Tensor:
    """Stand in for overlay where a composition is only read, to check its names."""
    raise UserError(
        "overlay needs pictures: augmentation(..., images=svea.augment.images.ImageBank.procedural)"
    )


def _choice(branches: list[Augment]) -> Augment:
    """Each sample goes through one branch, every branch being equally likely for every sample.

    A random permutation deals the samples out evenly, so that all branches together cost as much
    as one, with shapes that are known beforehand. A batch that does not divide evenly is filled up
    with samples whose results are dropped.
    """

    def choice(x: Tensor, generator: Generator | None = None) -> Tensor:
        batch, share = len(x), -(-len(x) // len(branches))
        keys = torch.rand(share * len(branches), generator=generator, device=x.device)
        dealt = keys.argsort()  # the sample in each place; argsort does not wait for the device
        hands = (dealt % batch).split(share)
        done = [branch(x[hand], generator) for branch, hand in zip(branches, hands, strict=True)]
        return torch.cat(done)[dealt.argsort()[:batch]]

    return choice
