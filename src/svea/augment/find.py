"""Finding an augmentation: by its name, or a user's own by `module:name`."""

from __future__ import annotations

import inspect
import warnings

import torch
from torch import Generator, Tensor

from svea.augment.registry import AUGMENTATIONS, Augmentation, Draw
from svea.config.augmentations import own_names, split_number
from svea.config.shapes import FRAMES
from svea.core.errors import UserError, unknown_name
from svea.core.importing import import_named, is_import_path
from svea.core.tracebacks import where_raised


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
            try:
                results.append(augment(x, generator))
            except Exception as error:  # whatever a user's code may raise
                where = where_raised(error)
                raise UserError(
                    f"augmentation {name!r} raised {type(error).__name__}: {error}"
                    + (f" ({where})" if where else "")
                ) from error
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
