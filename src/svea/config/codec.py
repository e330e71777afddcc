"""Configurations as nested dictionaries: read, written, compared."""

from __future__ import annotations

import dataclasses
import typing
from typing import Any

from svea.config.augmentations import spelled
from svea.config.checks import check
from svea.config.run import MAY_CHANGE, Config
from svea.core.errors import UserError, unknown_name


def from_dict(values: dict[str, Any], to_train: bool = True) -> Config:
    """A Config from nested dictionaries, as in config.json; unknown names are refused.

    Args:
        values: of the fields.
        to_train: False where an agent only acts: its augmentation may then be unknown.
    """
    return check(build(Config, _without_removed(values), ""), to_train)


REMOVED = {"updates_per_decision": 1.0}
"""Options that there were once, and the value with which a stored run is still what it was."""


def _without_removed(values: dict[str, Any]) -> dict[str, Any]:
    """A stored configuration without options that there were once."""
    for name, value in REMOVED.items():
        if isinstance(values, dict) and values.get(name, value) != value:
            raise UserError(
                f"{name} is {values[name]!r}, an option that this version does not have; allowed: "
                f"{value} (use the version that wrote this configuration)"
            )
    return {k: v for k, v in values.items() if k not in REMOVED}


def to_dict(config: Config) -> dict[str, Any]:
    """Nested dictionaries, for config.json."""
    return dataclasses.asdict(config)


def with_defaults(values: dict[str, Any], kind: type = Config) -> dict[str, Any]:
    """A stored configuration, with the defaults of options that did not exist when it was stored.

    An augmentation has the spelling that is stored now.

    A new option's default is what earlier runs did, so a run from before it can be continued.
    """
    filled, hints = _without_removed(values), typing.get_type_hints(kind)
    for field in dataclasses.fields(kind):
        name, nested = field.name, dataclasses.is_dataclass(hints[field.name])
        given = filled.get(name, {} if nested else field.default)
        if nested and isinstance(given, dict):
            filled[name] = with_defaults(given, hints[name])
        elif given is not dataclasses.MISSING:
            filled[name] = given
    if isinstance(filled.get("augment"), str):
        filled["augment"] = spelled(filled["augment"])
    return filled


def differences(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> list[str]:
    """The fields in which two runs differ in substance, as readable lines."""
    lines = []
    old, new = (old, new) if prefix else (with_defaults(old), with_defaults(new))
    for name in sorted(old.keys() | new.keys()):
        path = prefix + name
        before, after = old.get(name), new.get(name)
        if path in MAY_CHANGE or before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            lines += differences(before, after, f"{path}.")
        else:
            lines.append(f"{path}: {before!r} there, {after!r} here")
    return lines


DEEPEST = 8
"""Levels of named values that are looked into; options have two."""


def merge(into: Any, values: dict[str, Any], prefix: str = "") -> None:
    """Lay values over others; dotted names and dictionaries reach into nested options."""
    if not isinstance(into, dict):
        given = ", ".join(prefix + name for name in values)
        raise UserError(
            f"{given} cannot be set, because {prefix.rstrip('.')} is {into!r}; allowed there: "
            "named values"
        )
    if prefix.count(".") > DEEPEST:  # a dictionary that holds itself, perhaps
        raise UserError(f"{prefix[:40]}... is nested too deeply; allowed: e.g. sac.learning_rate")
    for name, value in values.items():
        head, _, rest = name.partition(".")
        if rest or isinstance(value, dict):
            inner = {rest: value} if rest else value
            merge(into.setdefault(head, {}), inner, f"{prefix}{head}.")
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            into[head] = dataclasses.asdict(value)
        else:
            into[head] = value


def build(kind: type, values: Any, prefix: str) -> Any:
    """A dataclass from nested dictionaries."""
    hints = typing.get_type_hints(kind)
    if not isinstance(values, dict):
        raise UserError(f"{prefix.rstrip('.') or 'config'} is {values!r}; allowed: named values")
    arguments = {}
    for name, value in values.items():
        if name not in hints:
            whole, allowed = f"{prefix}{name}", [prefix + hint for hint in hints]
            raise unknown_name("option", whole, allowed, option_types(kind))
        nested = dataclasses.is_dataclass(hints[name])
        arguments[name] = build(hints[name], value, f"{prefix}{name}.") if nested else value
    missing = [
        f.name
        for f in dataclasses.fields(kind)
        if f.name not in arguments
        and f.default is dataclasses.MISSING
        and isinstance(f.default_factory, type(dataclasses.MISSING))
    ]
    if missing:
        raise UserError(f"config lacks {', '.join(missing)}, which has no default; add it")
    return kind(**arguments)


def option_types(kind: type, prefix: str = "") -> dict[str, Any]:
    """Dotted names of all options and their types."""
    found: dict[str, Any] = {}
    for name, hint in typing.get_type_hints(kind).items():
        nested = dataclasses.is_dataclass(hint)
        found |= (
            option_types(typing.cast(type, hint), f"{prefix}{name}.")
            if nested
            else {prefix + name: hint}
        )
    return found
