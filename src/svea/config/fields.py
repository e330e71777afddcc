"""The options of a run, one by one: every loop over a configuration is a loop over `fields`."""

from __future__ import annotations

import dataclasses
import enum
import functools
import typing
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

from svea.core.errors import Bounds, UserError


class Role(enum.Enum):
    """What a field decides, and so whether it may change when a run is resumed."""

    WHAT = "what is learned, and how it is judged"
    SEED = "which of several equal runs this is"
    WATCH = "how often a run is looked at; may change when it is resumed: each evaluation says how"
    LENGTH = "how long to run; a resumed run may be longer"
    HOW = "how to run: time and machine, not results; may change when a run is resumed"
    WHERE = "where files lie; may change when a run is resumed"


@dataclass(frozen=True)
class Field:
    """An option.

    Attributes:
        path: its dotted name, such as `sac.learning_rate`.
        type: int, float, bool, str, or a Literal.
        bounds: of a number.
        role: its own, or that of the group it is in.
        value: in the configuration it was read from.
    """

    path: str
    type: Any
    bounds: Bounds | None
    role: Role
    value: Any


def fields(options: Any, group: str = "", role: Role = Role.WHAT) -> Iterator[Field]:
    """Every option of a configuration, those of its groups too."""
    made_of: Any = type(options)
    for name, (kind, bounds, own) in _declared(made_of).items():
        value = getattr(options, name)
        if dataclasses.is_dataclass(kind):
            yield from fields(value, f"{name}.", own or role)
        else:
            yield Field(group + name, kind, bounds, own or role, value)


@functools.cache
def _declared(kind: Hashable) -> dict[str, tuple[Any, Bounds | None, Role | None]]:
    """The type of each field of a class, with the bounds and the role that stand next to it."""
    found = {}
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        plain, *notes = typing.get_args(hint) if hasattr(hint, "__metadata__") else (hint,)
        bounds = next((note for note in notes if isinstance(note, Bounds)), None)
        found[name] = plain, bounds, next((note for note in notes if isinstance(note, Role)), None)
    return found


def flat(values: Any, group: str = "") -> dict[str, Any]:
    """Nested values by their dotted names.

    >>> flat({"recipe": {"K": 2}, "recipe.M": 3, "eval-every": 5})
    {'recipe.K': 2, 'recipe.M': 3, 'eval_every': 5}
    """
    if not isinstance(values, dict):
        raise UserError(f"options are {values!r}; allowed: named values")
    if group.count(".") > 2:  # a dictionary that holds itself, perhaps
        raise UserError(f"{group[:40]}... is nested too deeply; allowed: e.g. sac.learning_rate")
    found: dict[str, Any] = {}
    for name, value in values.items():
        path = group + str(name).replace("-", "_")
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = dataclasses.asdict(value)
        found |= flat(value, f"{path}.") if isinstance(value, dict) and value else {path: value}
    return found
