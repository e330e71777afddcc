"""What an augmentation is: a named pair of functions, one that draws and one that applies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Generator, Tensor

from svea.config.augmentations import AUGMENTATION_NAMES
from svea.core.errors import UserError

Draw = dict[str, Any]
"""Tensors with one row per sample, and plain numbers that hold for the whole batch."""

Augment = Callable[..., Tensor]
"""`f(x, generator=None) -> x`: an augmentation, or a composition of several."""


@dataclass(frozen=True)
class Augmentation:
    """A named pair of functions: draw the parameters, apply them.

    Attributes:
        name: What users type.
        draw: `draw(x, generator=None, **parameters) -> Draw`; reads only the shape and the device
            of `x`.
        function: `function(x, **draw) -> x`. A seam: `speed` may put a faster one in its place.
        moves_pixels: True if pixels move but keep their values: uint8 is then taken as well, and
            costs a quarter of float32.
        parameters: Given to `draw` in every call.
        of_bytes: It only gets pixels that were made of bytes; their range is not checked.
    """

    name: str
    draw: Callable[..., Draw]
    function: Callable[..., Tensor]
    moves_pixels: bool = False
    parameters: dict[str, Any] = field(default_factory=dict, hash=False)
    of_bytes: bool = False

    def bind(self, **parameters: Any) -> Augmentation:
        """The same augmentation with these parameters for `draw`."""
        return replace(self, parameters=self.parameters | parameters)

    def apply(self, x: Tensor, draw: Draw) -> Tensor:
        """Augment `x` with parameters that were drawn before."""
        # Autocast would turn matrix products and coordinates into bfloat16.
        with torch.no_grad(), torch.autocast(x.device.type, enabled=False):
            return self.function(x, **draw)

    def __call__(self, x: Tensor, generator: Generator | None = None, **parameters: Any) -> Tensor:
        """Augment every sample of `x`, shaped `(B, 3k, H, W)` with values in [0, 1]."""
        check(x, self)
        return self.apply(x, self.draw(x, generator, **(self.parameters | parameters)))


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
        AUGMENTATION_NAMES.add(name)  # for `--augment`, which is checked without torch
        return AUGMENTATIONS[name]

    return decorate


def check(x: Tensor, what: Augmentation | None = None) -> None:
    """Raise an error that names what is wrong with `x`, if anything is.

    Values are checked on the CPU only: elsewhere the check would wait for the device.
    """
    name = what.name if what else "augmentation"
    if not isinstance(x, Tensor):
        raise UserError(f"{name} takes a torch tensor; got {type(x).__name__}. torch.from_numpy(x)")
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
    known = (what is not None and what.of_bytes) or torch.compiler.is_compiling()
    if x.device.type == "cpu" and x.numel() and not known:
        low, high = (float(bound) for bound in x.detach().aminmax())
        if not (low >= 0 and high <= 1):  # written so that NaN fails
            raise UserError(
                f"{name} takes values in [0, 1]; got {low:g} to {high:g}. "
                "Divide by 255 if these are bytes"
            )


def integers(x: Tensor, generator: Generator | None, count: int, *columns: int) -> Tensor:
    """Uniform integers 0..count-1, one row per sample."""
    return torch.randint(count, (len(x), *columns), generator=generator, device=x.device)


def uniform(
    x: Tensor, generator: Generator | None, low: float, high: float, *columns: int
) -> Tensor:
    """Uniform float32 numbers in [low, high), one row per sample."""
    unit = torch.rand((len(x), *columns), generator=generator, device=x.device)
    return low + (high - low) * unit
