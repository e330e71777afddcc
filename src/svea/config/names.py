"""The names of augmentations, encoders and methods, and a user's own by `module:name`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from svea.config.modes import is_foreign
from svea.config.options import FRAMES
from svea.core.errors import UserError, between, unknown_name
from svea.core.importing import import_named, is_import_path
from svea.data.decode import OVERLAY_SIDE
from svea.methods import METHODS, Method
from svea.recipes import OWN, RECIPES, Recipe

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


ENCODERS: dict[str, dict[str, dict[str, Any]]] = {
    "cnn": {"paper": {}, "quick": {}},
    "vit": {
        "paper": {
            "image_size": 96,
            "shift": 6,
            "batch_size": 512,
            "decisions": 300_000,
            "replay": 300_000,
        },
        "quick": {"network": {"width": 64, "depth": 2, "heads": 4}},
    },
    "drqv2": {"paper": {"network": {"layers": 4}}, "quick": {}},
    "frames": {"paper": {}, "quick": {"network": {"frame_layers": 2}}},
}
"""What an encoder changes, by preset: everything that the paper changes for its ViT."""


def own_modules(values: dict[str, Any]) -> list[str]:
    """What a stored configuration names as `module:name`: using it imports these modules.

    >>> own_modules({"task": "my_env:make", "method": "svea", "augment": "conv|my_colours:gamma"})
    ['my_env:make', 'my_colours:gamma']
    """
    texts = {name: str(values.get(name, "")) for name in ("task", "method", "encoder", "augment")}
    of_notebook = texts["task"].startswith("__main__:")  # which no other process can import
    named = [texts["task"]] if is_foreign(texts["task"]) and not of_notebook else []
    named += [texts[part] for part in ("method", "encoder") if is_import_path(texts[part])]
    return named + own_names(texts["augment"])


VIEWS = ("clean", "weak", "strong")


def find_method(name: str) -> Method:
    """The method of a name, or a user's own, `module:name`."""
    if name in METHODS:
        return METHODS[name]
    if not is_import_path(name):
        unknown = unknown_name("method", name, METHODS)
        raise UserError(f"{unknown}; or one of your own as module:name")
    found = import_named("method", name)
    if not isinstance(found, Method):
        raise UserError(
            f"method {name!r} is {type(found).__name__}; it must be a svea.methods.Method."
        )
    for row in (found.recipe, found.augmented_recipe):
        _check_recipe(name, row)
    return found


def _check_recipe(name: str, row: str | Recipe | None) -> None:
    """Refuse a row that does not exist, or one of a user's own that cannot be fed."""
    if row is None:
        return
    if not isinstance(row, Recipe):
        if row not in RECIPES:
            raise unknown_name(f"recipe of method {name!r}:", str(row), RECIPES)
        return
    if not row.prediction or not row.policy:
        raise UserError(
            f"method {name!r}: prediction is {row.prediction} and policy is {row.policy}; allowed: "
            "one view or more for each"
        )
    for view in sorted(row.views - {*VIEWS}):
        raise unknown_name(f"view of method {name!r}:", str(view), [*VIEWS, OWN])
    for _, coefficient in row.prediction:
        number = isinstance(coefficient, int | float) and coefficient > 0
        if not number and coefficient not in ("alpha", "beta"):
            raise UserError(
                f"method {name!r}: a coefficient of its prediction is {coefficient!r}; allowed: a "
                "number above 0, 'alpha' or 'beta'"
            )


def check_encoder(name: str) -> None:
    """Refuse a name that is neither an encoder nor can be a user's own, `module:class`."""
    if name not in ENCODERS and not is_own_encoder(name):
        unknown = unknown_name("encoder", name, ENCODERS)
        raise UserError(f"{unknown}; or one of your own as module:class")


def is_own_encoder(name: str) -> bool:
    """Whether an encoder is a user's own.

    >>> is_own_encoder("my_networks:Small"), is_own_encoder("cnn")
    (True, False)
    """
    return is_import_path(name)


def is_whole(name: str) -> bool:
    """Whether an encoder has no last convolutions that PAD's task could have for itself."""
    return name == "vit" or is_own_encoder(name)


def encoder_defaults(encoder: str, preset: str) -> dict[str, Any]:
    """What an encoder decides; a user's own decides nothing."""
    check_encoder(encoder)
    return ENCODERS[encoder][preset] if encoder in ENCODERS else {}
