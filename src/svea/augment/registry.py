"""What an augmentation is, and compositions of augmentations by name: `conv+cutout|overlay`.

An augmentation is a named pair of functions, one that draws and one that applies.
"""

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Generator, Tensor

from svea.config.names import (
    AUGMENTATION_NAMES,
    own_names,
    parse_augmentation,
    split_number,
    uses_pictures,
)
from svea.config.options import FRAMES
from svea.core.errors import UserError, unknown_name
from svea.core.importing import import_named, is_import_path, users_code

Draw = dict[str, Any]
"""Tensors with one row per sample, and plain numbers that hold for the whole batch."""

Augment = Callable[..., Tensor]
"""`f(x, generator=None) -> x`: an augmentation, or a composition of several."""


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

    def bind(self, **parameters: Any) -> "Augmentation":
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

    What `draw(x, generator=None, **parameters)` returns becomes the function's keyword arguments.
    With `moves_pixels` it works on uint8 as well.
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
        raise UserError(f"{name} takes a torch tensor; got {type(x).__name__}")
    if x.ndim != 4 or x.shape[1] == 0 or x.shape[1] % 3:
        wanted = "observations shaped (batch, 3 * frames, height, width)"
        raise UserError(f"{name} takes {wanted}; got {tuple(x.shape)}")
    if x.dtype == torch.uint8 and (what is None or what.moves_pixels):
        return
    if not x.is_floating_point():
        raise UserError(f"{name} takes floats in [0, 1]; got {x.dtype}. Divide by 255 first")
    known = (what is not None and what.of_bytes) or torch.compiler.is_compiling()
    if x.device.type == "cpu" and x.numel() and not known:
        low, high = (float(bound) for bound in x.detach().aminmax())
        if not (low >= 0 and high <= 1):  # written so that NaN fails
            raise UserError(f"{name} takes values in [0, 1]; got {low:g} to {high:g}")


def integers(x: Tensor, generator: Generator | None, count: int, *columns: int) -> Tensor:
    """Uniform integers 0..count-1, one row per sample."""
    return torch.randint(count, (len(x), *columns), generator=generator, device=x.device)


def uniform(
    x: Tensor, generator: Generator | None, low: float, high: float, *columns: int
) -> Tensor:
    """Uniform float32 numbers in [low, high), one row per sample."""
    unit = torch.rand((len(x), *columns), generator=generator, device=x.device)
    return low + (high - low) * unit


def find(name: str) -> Augmentation:
    """The augmentation of a name, with or without a number, or a user's own, `module:name`.

    A user's own is made with `register`, or is a plain function `f(x, generator)`.
    """
    plain, number = split_number(name)
    if plain in AUGMENTATIONS or not is_import_path(name):
        if plain not in AUGMENTATIONS:
            raise unknown_name("augmentation", plain, AUGMENTATIONS)
        return AUGMENTATIONS[plain].bind(**number) if number else AUGMENTATIONS[plain]
    found = import_named("augmentation", name)
    if isinstance(found, Augmentation):
        return found
    try:
        inspect.signature(found).bind(None, generator=None)
    except (TypeError, ValueError):
        what = type(found).__name__
        if inspect.isfunction(found):
            what = f"the function {found.__name__}{inspect.signature(found)}"
        raise UserError(
            f"augmentation {name!r} is {what}; it must be made with svea.augment.register, or be "
            "a function f(x, generator)."
        ) from None
    return Augmentation(name, lambda x, generator=None: {"generator": generator}, found)


def try_out(spec: str, size: int, device: torch.device | str = "cpu") -> None:
    """Refuse a user's own augmentations that cannot make a strong view, before anything starts.

    A run would otherwise find out after its warm-up, in the middle of an update. ``spec`` names
    them, ``size`` is the observations' height and width.
    """
    for name in own_names(spec):
        augment, results = find(name), []
        for _ in range(2):  # the same seed twice
            generator = torch.Generator(device).manual_seed(0)
            x = torch.rand(4, 3 * FRAMES, size, size, generator=generator, device=device)
            with users_code(f"augmentation {name!r} raised"):
                results.append(augment(x, generator))
            _check_view(name, x, results[-1])
        if not torch.equal(*results):
            warnings.warn(
                f"augmentation {name!r} draws other numbers for the same generator: a run with it "
                "cannot be repeated. Draw everything from the generator that it is given.",
                stacklevel=2,
            )


def _check_view(name: str, given: Tensor, made: Tensor) -> None:
    """Refuse what is not a picture like the one given."""
    alike = isinstance(made, Tensor) and _kind(made) == _kind(given)
    if alike and ((made >= 0) & (made <= 1)).all():  # written so that NaN fails
        return
    found = _kind(made) if isinstance(made, Tensor) else type(made).__name__
    if alike:
        low, high = made.aminmax()
        found = f"values from {low:g} to {high:g}"
    raise UserError(
        f"augmentation {name!r} returned {found}; allowed: {_kind(given)}, values from 0 to 1"
    )


def _kind(x: Tensor) -> str:
    return f"{str(x.dtype).removeprefix('torch.')} {tuple(x.shape)} on {x.device}"


def none(x: Tensor, generator: Generator | None = None) -> Tensor:
    """Return x unchanged."""
    return x


@dataclass(frozen=True)
class Chain:
    """One augmentation after the other."""

    steps: tuple[Augment, ...]

    def __call__(self, x: Tensor, generator: Generator | None = None) -> Tensor:
        """Augment every sample."""
        for step in self.steps:
            x = step(x, generator)
        return x


@dataclass(frozen=True)
class Choice:
    """Each sample goes through one step, every step being equally likely for every sample.

    A random permutation deals the samples out evenly, so that all steps together cost as much as
    one, with shapes that are known beforehand. A batch that does not divide evenly is filled up
    with samples whose results are dropped.
    """

    steps: tuple[Augment, ...]

    def __call__(self, x: Tensor, generator: Generator | None = None) -> Tensor:
        """Augment every sample."""
        if not isinstance(x, Tensor):
            check(x)  # type: ignore[unreachable]  # raises
        batch, share = len(x), -(-len(x) // len(self.steps))
        keys = torch.rand(share * len(self.steps), generator=generator, device=x.device)
        dealt = keys.argsort()  # the sample in each place; argsort does not wait for the device
        hands = (dealt % batch).split(share)
        done = [step(x[hand], generator) for step, hand in zip(self.steps, hands, strict=True)]
        return torch.cat(done)[dealt.argsort()[:batch]]


def transform(augment: Augment, change: Callable[[Augmentation], Augmentation]) -> Augment:
    """The same composition with each of its augmentations changed; other functions stay."""
    if isinstance(augment, Augmentation):
        return change(augment)
    if isinstance(augment, Chain | Choice):
        return type(augment)(tuple(transform(step, change) for step in augment.steps))
    return augment


def augmentation(spec: str, images: Callable[[], Pictures] | None = None) -> Augment:
    """Read a composition of augmentations such as `"conv+cutout|overlay"`.

    Names are joined by `+` (one after the other) and `|` (each sample goes one of the ways, all
    equally likely); `+` binds tighter. `"none"` changes nothing; `"overlay_drift:12"` sets its
    drift; `module:name` is a user's own. `images` makes the pictures for overlays, now, once for
    each of them in `spec`; by default they have generated ones.
    """

    def named(name: str) -> Augment:
        if name == "none":
            return none
        found = find(name)
        return found.bind(images=images()) if images and uses_pictures(name) else found

    ways = [tuple(map(named, names)) for names in parse_augmentation(spec)]
    branches = tuple(steps[0] if len(steps) == 1 else Chain(steps) for steps in ways)
    return branches[0] if len(branches) == 1 else Choice(branches)
