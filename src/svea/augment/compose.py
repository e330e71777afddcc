"""Augmentations by name, a user's own too, and compositions of them: `conv+cutout|overlay`."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from svea.augment.colour import Pictures
from svea.augment.registry import AUGMENTATIONS, Augment, Augmentation, Draw, check
from svea.config.augmentations import own_names, parse_augmentation, split_number, uses_pictures
from svea.config.shapes import FRAMES
from svea.core.errors import UserError, unknown_name
from svea.core.importing import import_named, is_import_path, users_code


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
    return Augmentation(name, _hand_on_generator, found)


def _hand_on_generator(x: Tensor, generator: Generator | None = None) -> Draw:
    """The draw of a function that draws by itself."""
    return {"generator": generator}


def try_out(spec: str, size: int, device: torch.device | str = "cpu") -> None:
    """Refuse a user's own augmentations that cannot make a strong view, before anything starts.

    A run would otherwise find out after its warm-up, in the middle of an update.

    Args:
        spec: the composition that names them, such as `"conv|my_module:gamma"`.
        size: height and width of the observations.
        device: on which they will compute.
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
    wanted = f"it must return a tensor like the one given, {tuple(given.shape)} in [0, 1]"
    if not isinstance(made, Tensor):
        raise UserError(f"augmentation {name!r} returned {type(made).__name__}; {wanted}.")
    if made.shape != given.shape or made.dtype != given.dtype or made.device != given.device:
        kind = f"{str(made.dtype).removeprefix('torch.')} {tuple(made.shape)} on {made.device}"
        raise UserError(
            f"augmentation {name!r} returned {kind}; {wanted}, "
            f"{str(given.dtype).removeprefix('torch.')} on {given.device}."
        )
    low, high = (float(bound) for bound in made.aminmax())
    if not (low >= 0 and high <= 1):  # written so that NaN fails
        raise UserError(
            f"augmentation {name!r} returned values from {low:g} to {high:g}; allowed: 0 to 1. "
            "End it with .clamp(0, 1)."
        )


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

    Args:
        spec: Names joined by `+` (one after the other) and `|` (each sample goes one of the ways,
            all equally likely); `+` binds tighter. `"none"` changes nothing;
            `"overlay_drift:12"` sets its drift; `module:name` is a user's own.
        images: Makes the pictures for overlays; called now, once for each of them in `spec`. By
            default they have generated ones.

    Returns:
        A function `f(x, generator=None) -> x`.
    """
    branches = [_chain(way, images) for way in parse_augmentation(spec, AUGMENTATIONS)]
    return branches[0] if len(branches) == 1 else Choice(tuple(branches))


def _chain(names: tuple[str, ...], images: Callable[[], Pictures] | None) -> Augment:
    """One augmentation, or one after the other."""
    steps = tuple(_named(name, images) for name in names)
    return steps[0] if len(steps) == 1 else Chain(steps)


def _named(name: str, images: Callable[[], Pictures] | None) -> Augment:
    """The augmentation of this name, with its pictures if it needs any."""
    if name == "none":
        return none
    found = find(name)
    return found.bind(images=images()) if images and uses_pictures(name) else found
