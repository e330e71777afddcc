"""The names of strong augmentations and how they combine: `conv+cutout|overlay`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from svea.config.shapes import FRAMES
from svea.core.errors import UserError, between, unknown_name
from svea.core.importing import is_import_path
from svea.data.decode import OVERLAY_SIDE

AUGMENTATION_NAMES = {
    "shift", "crop", "rotation", "conv", "overlay", "overlay_drift", "cutout", "blur",
    "affine_jitter", "spectrum", "amplitude_mix",
}  # fmt: skip
"""What `--augment` takes; `svea.augment.register` adds to it."""

WITH_PICTURES = {"overlay", "overlay_drift"}
"""Those that mix pictures in."""

DRIFT = 6
"""Pixels per frame that the picture of `overlay_drift` moves at most, on each axis (SimGRL)."""

NUMBERS = {"overlay_drift": ("drift", between(0, 64))}
"""What a whole number after a name and a colon sets: `overlay_drift:12`."""


def parse_augmentation(
    spec: str, known: Collection[str] = AUGMENTATION_NAMES
) -> tuple[tuple[str, ...], ...]:
    """The ways that samples may go, each a sequence of names.

    Names are joined by `+` (one after the other) and `|` (each sample goes one of the ways, all
    equally likely); `+` binds tighter. `none` changes nothing. A name is one of `known`, with a
    number after a colon where `NUMBERS` has it, or `module:name` of a user's own, which is imported
    where it is needed.

    >>> parse_augmentation("conv+cutout|affine-jitter")
    (('conv', 'cutout'), ('affine_jitter',))
    >>> parse_augmentation("conv|my_module:gamma")
    (('conv',), ('my_module:gamma',))
    >>> parse_augmentation("conv+overlay-drift:12")
    (('conv', 'overlay_drift:12'),)
    """
    ways = _split(spec)
    if not all(name for way in ways for name in way):
        raise UserError(
            f"augmentation {spec!r} has an empty name; allowed: names with one + or | between them"
        )
    for name in (split_number(name)[0] for way in ways for name in way):
        if name != "none" and name not in known and not is_import_path(name):
            unknown = unknown_name("augmentation", name, [*known, "none"])
            raise UserError(f"{unknown}; or one of your own as module:name")
    if len({"crop" in way for way in ways}) > 1:
        raise UserError(
            f"augmentation {spec!r} gives samples of one batch different sizes, because crop cuts "
            "some of them smaller; allowed: crop in every way or in none"
        )
    return ways


def spelled(spec: str) -> str:
    """A composition as it is stored: one spelling for all that mean the same.

    >>> spelled(" conv + overlay-drift:012 | overlay_drift:6")
    'conv+overlay_drift:12|overlay_drift'
    """
    return "|".join("+".join(map(_spelled_name, way)) for way in _split(spec))


def _spelled_name(name: str) -> str:
    """A name without a number that is the usual one; what is wrong with it is said elsewhere."""
    plain, _, text = name.partition(":")
    if plain not in NUMBERS or not text.isdecimal():
        return name
    return plain if int(text) == DRIFT else f"{plain}:{int(text)}"


def uses_pictures(spec: str) -> bool:
    """Whether a composition mixes pictures in.

    >>> uses_pictures("conv|overlay-drift:12+cutout"), uses_pictures("conv")
    (True, False)
    """
    return any(name.partition(":")[0] in WITH_PICTURES for way in _split(spec) for name in way)


def own_names(spec: str) -> list[str]:
    """A user's own augmentations in a composition.

    >>> own_names("conv|my_module:gamma+overlay_drift:12")
    ['my_module:gamma']
    """
    return [name for way in _split(spec) for name in way if is_import_path(split_number(name)[0])]


def split_number(name: str) -> tuple[str, dict[str, Any]]:
    """A name, and what the number after it sets.

    >>> split_number("overlay_drift:12"), split_number("my_module:gamma")
    (('overlay_drift', {'drift': 12}), ('my_module:gamma', {}))
    """
    plain, colon, text = name.partition(":")
    if not colon or (is_import_path(name) and plain not in NUMBERS):
        return name, {}
    if plain not in NUMBERS:
        some = ", ".join(f"{one}:{DRIFT}" for one in NUMBERS)
        raise UserError(f"augmentation {name!r}: only some names take a number: {some}")
    what, bounds = NUMBERS[plain]
    if not text.isdecimal():
        raise UserError(
            f"augmentation {name!r}: {what} is {text!r}; allowed: a whole number, "
            f"{bounds.least} to {bounds.most}"
        )
    bounds.check(f"augmentation {name!r}: {what}", int(text))
    return plain, {what: int(text)}


def check_drift(
    size: int, drift: int = DRIFT, frames: int = FRAMES, side: int = OVERLAY_SIDE
) -> None:
    """Refuse a drift that leads out of the pictures.

    Args:
        size: of the observations in pixels.
        drift: at most, in pixels per frame.
        frames: in a stack.
        side: of the pictures in pixels.
    """
    needed = drift_canvas(size, drift, frames)
    if needed > side:
        most = (side - size) // (2 * frames)
        cure = f"use overlay_drift:{most} or less"
        if most < 1:
            cure = (
                "use overlay, which does not drift, or observations of at most "
                f"{side - drift_canvas(0, 1, frames)} pixels with overlay_drift:1"
            )
        raise UserError(
            f"overlay_drift: {frames} frames of {size}x{size} pixels that drift by up to {drift} "
            f"pixels each need pictures of {needed}x{needed}, but they are {side}x{side}; {cure}"
        )


def drift_canvas(size: int, drift: int, frames: int) -> int:
    """The side of the picture over which windows drift in both directions.

    >>> drift_canvas(84, drift=6, frames=3)
    120
    """
    return size + 2 * frames * drift


def drifts(spec: str) -> list[int]:
    """The drift of each `overlay_drift` in a composition.

    >>> drifts("conv|overlay_drift:12|overlay_drift")
    [12, 6]
    """
    named = [split_number(name) for way in _split(spec) for name in way]
    return [number.get("drift", DRIFT) for name, number in named if name == "overlay_drift"]


def _split(spec: str) -> tuple[tuple[str, ...], ...]:
    """The ways and their names, as `parse_augmentation` gives them, not checked."""
    return tuple(
        tuple(name.strip().replace("-", "_") for name in way.split("+")) for way in spec.split("|")
    )
