"""The names of strong augmentations and how they combine: `conv+cutout|overlay`."""

from __future__ import annotations

from collections.abc import Collection

from svea.envs.importing import is_import_path
from svea.errors import UserError, unknown_name

AUGMENTATION_NAMES = {
    "shift", "crop", "rotation", "conv", "overlay", "cutout", "blur", "affine_jitter",
}  # fmt: skip
"""What `--augment` takes; `svea.augment.register` adds to it."""


def parse_augmentation(
    spec: str, known: Collection[str] = AUGMENTATION_NAMES
) -> tuple[tuple[str, ...], ...]:
    """The ways that samples may go, each a sequence of names.

    Names are joined by `+` (one after the other) and `|` (each sample goes one of the ways, all
    equally likely); `+` binds tighter. `none` changes nothing. A name is one of `known`, or
    `module:name` of a user's own, which is imported where it is needed.

    >>> parse_augmentation("conv+cutout|affine-jitter")
    (('conv', 'cutout'), ('affine_jitter',))
    >>> parse_augmentation("conv|my_module:gamma")
    (('conv',), ('my_module:gamma',))
    """
    ways = tuple(
        tuple(name.strip().replace("-", "_") for name in way.split("+")) for way in spec.split("|")
    )
    for name in (name for way in ways for name in way):
        if name != "none" and name not in known and not is_import_path(name):
            unknown = unknown_name("augmentation", name, [*known, "none"])
            raise UserError(f"{unknown}; or one of your own as module:name")
    if len({"crop" in way for way in ways}) > 1:
        raise UserError(
            f"augmentation {spec!r} gives samples of one batch different sizes, because crop cuts "
            "some of them smaller; allowed: crop in every way or in none"
        )
    return ways


def uses_pictures(spec: str) -> bool:
    """Whether a composition mixes pictures in: overlay does.

    >>> uses_pictures("conv|overlay+cutout"), uses_pictures("conv")
    (True, False)
    """
    return "overlay" in (name.strip() for way in spec.split("|") for name in way.split("+"))
