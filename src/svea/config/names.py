"""Methods and encoders by name, and a user's own by `module:name`."""

from __future__ import annotations

from typing import Any

from svea.config.augmentations import own_names
from svea.config.tasks import is_foreign
from svea.core.errors import UserError, unknown_name
from svea.core.importing import import_named, is_import_path
from svea.methods import METHODS, Method
from svea.recipes import OWN, RECIPES, Recipe

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
