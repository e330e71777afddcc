"""Compositions of augmentations: `conv+cutout|overlay`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from svea.augment.colour import Pictures
from svea.augment.find import find
from svea.augment.registry import AUGMENTATIONS, Augment, Augmentation, check
from svea.config.augmentations import parse_augmentation, uses_pictures


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
