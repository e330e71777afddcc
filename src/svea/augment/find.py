"""Finding an augmentation: by its name, or a user's own by `module:name`."""

from __future__ import annotations

import inspect

from torch import Generator, Tensor

from svea.augment.registry import AUGMENTATIONS, Augmentation, Draw
from svea.config.augmentations import split_number
from svea.envs.importing import import_named, is_import_path
from svea.errors import UserError, unknown_name


def find(name: str) -> Augmentation:
    """The augmentation of a name, with or without a number, or a user's own, `module:name`.

    A user's own is made with `register`, or is a plain function `f(x, generator)`.
    """
    if name in AUGMENTATIONS or not is_import_path(name):
        plain, number = split_number(name)
        if plain not in AUGMENTATIONS:
            raise unknown_name("augmentation", plain, AUGMENTATIONS)
        return AUGMENTATIONS[plain].bind(**number) if number else AUGMENTATIONS[plain]
    found = import_named("augmentation", name)
    if isinstance(found, Augmentation):
        return found
    try:
        inspect.signature(found).bind(None, generator=None)
    except (TypeError, ValueError):
        raise UserError(
            f"augmentation {name!r} is {type(found).__name__}; it must be made with "
            "svea.augment.register, or be a function f(x, generator)."
        ) from None
    return Augmentation(name, _hand_on_generator, found)


def _hand_on_generator(x: Tensor, generator: Generator | None = None) -> Draw:
    """The draw of a function that draws by itself."""
    return {"generator": generator}
