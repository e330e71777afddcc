"""The names of augmentations, encoders and methods, and a user's own by `module:name`."""

from typing import Any

from svea.config.modes import is_foreign
from svea.config.options import FRAMES
from svea.core.errors import UserError, between, unknown_name
from svea.core.importing import import_named, is_import_path
from svea.data.decode import OVERLAY_SIDE
from svea.methods import METHODS, Method
from svea.recipes import OWN, RECIPES, VIEWS, Recipe

AUGMENTATION_NAMES = {
    "shift", "crop", "rotation", "conv", "overlay", "overlay_drift", "cutout", "blur",
    "affine_jitter", "spectrum", "amplitude_mix",
}  # fmt: skip
"""What `--augment` takes; `svea.augment.register` adds to it."""

WITH_PICTURES = {"overlay", "overlay_drift"}  # those that mix pictures in

DRIFT = 6  # pixels per frame that `overlay_drift` moves a picture at most, on each axis (SimGRL)


def parse_augmentation(spec: str) -> tuple[tuple[str, ...], ...]:
    """The ways that samples may go, each a sequence of names; `svea.augment` says what they mean.

    >>> parse_augmentation("conv+overlay-drift:12|my_module:gamma")
    (('conv', 'overlay_drift:12'), ('my_module:gamma',))
    """
    ways = _split(spec)
    for name in names_in(spec):
        plain, _ = split_number(name)
        if plain not in (*AUGMENTATION_NAMES, "none") and not is_import_path(plain):
            unknown = unknown_name("augmentation", plain or spec, [*AUGMENTATION_NAMES, "none"])
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

    def one(name: str) -> str:
        plain, _, text = name.partition(":")
        if plain != "overlay_drift" or not text.isdecimal():
            return name  # what is wrong with it is said elsewhere
        return plain if int(text) == DRIFT else f"{plain}:{int(text)}"

    return "|".join("+".join(map(one, way)) for way in _split(spec))


def uses_pictures(spec: str) -> bool:
    """Whether a composition mixes pictures in."""
    return any(name.partition(":")[0] in WITH_PICTURES for name in names_in(spec))


def own_names(spec: str) -> list[str]:
    """A user's own augmentations in a composition."""
    return [name for name in names_in(spec) if is_import_path(split_number(name)[0])]


def split_number(name: str) -> tuple[str, dict[str, Any]]:
    """A name, and what the number after it sets.

    >>> split_number("overlay_drift:12"), split_number("my_module:gamma")
    (('overlay_drift', {'drift': 12}), ('my_module:gamma', {}))
    """
    plain, colon, text = name.partition(":")
    if not colon or plain != "overlay_drift":
        return name, {}
    if not text.isdecimal():
        raise UserError(
            f"augmentation {name!r} has {text!r} after its colon; allowed: a whole number"
        )
    between(0, 64).check(f"augmentation {name!r}: drift", int(text))
    return plain, {"drift": int(text)}


def check_drift(
    size: int, drift: int = DRIFT, frames: int = FRAMES, side: int = OVERLAY_SIDE
) -> None:
    """Refuse a drift in pixels per frame that leads observations of a size out of the pictures."""
    needed = size + 2 * frames * drift  # windows drift in both directions
    if needed > side:
        raise UserError(
            f"overlay_drift: {frames} frames of {size}x{size} pixels that drift by up to {drift} "
            f"pixels each need pictures of {needed}x{needed}, but they are {side}x{side}; allowed: "
            f"overlay_drift:{max(0, side - size) // (2 * frames)} or less, or overlay, which does "
            "not drift"
        )


def _split(spec: str) -> tuple[tuple[str, ...], ...]:
    """The ways and their names, as `parse_augmentation` gives them, not checked."""
    return tuple(
        tuple(name.strip().replace("-", "_") for name in way.split("+")) for way in spec.split("|")
    )


def names_in(spec: str) -> list[str]:
    """The names of a composition, not checked."""
    return [name for way in _split(spec) for name in way]


ENCODERS: dict[str, dict[str, dict[str, Any]]] = {
    "cnn": {},
    "vit": {
        "paper": {"image_size": 96, "shift": 6, "batch_size": 512, "decisions": 300_000,
                  "replay": 300_000},
        "quick": {"network": {"width": 64, "depth": 2, "heads": 4}},
    },
    "drqv2": {"paper": {"network": {"layers": 4}}},
    "frames": {"quick": {"network": {"frame_layers": 2}}},
}  # fmt: skip
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
    for row in (found.recipe, found.augmented_recipe or found.recipe):
        _check_recipe(name, row)
    return found


def _check_recipe(method: str, row: str | Recipe) -> None:
    """Refuse a row that does not exist, or one of a user's own that cannot be fed."""
    if not isinstance(row, Recipe):
        if row not in RECIPES:
            raise unknown_name(f"recipe of method {method!r}:", str(row), RECIPES)
        return
    if not row.prediction or not row.policy:
        raise UserError(
            f"method {method!r}: prediction is {row.prediction} and policy is {row.policy}; "
            "allowed: one view or more for each"
        )
    for view in sorted(row.views - {*VIEWS}):
        raise unknown_name(f"view of method {method!r}:", str(view), [*VIEWS, OWN])
    for _, weight in row.prediction:
        if weight not in ("alpha", "beta") and not (isinstance(weight, int | float) and weight > 0):
            raise UserError(
                f"method {method!r}: a coefficient of its prediction is {weight!r}; allowed: a "
                "number above 0, 'alpha' or 'beta'"
            )


def is_whole(encoder: str) -> bool:
    """Whether an encoder has no last convolutions that PAD's task could have for itself."""
    return encoder == "vit" or is_import_path(encoder)


def encoder_defaults(encoder: str, preset: str) -> dict[str, Any]:
    """What an encoder decides; a user's own, `module:class`, decides nothing."""
    if is_import_path(encoder):
        return {}
    if encoder not in ENCODERS:
        unknown = unknown_name("encoder", encoder, ENCODERS)
        raise UserError(f"{unknown}; or one of your own as module:class")
    return ENCODERS[encoder].get(preset, {})
