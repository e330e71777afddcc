"""Configurations made of named values: read, written, compared."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from svea.config.augmentations import spelled
from svea.config.checks import check
from svea.config.fields import fields, flat
from svea.config.run import MAY_CHANGE, Config
from svea.core.errors import UserError, unknown_name

DEFAULTS = {option.path: option for option in fields(Config(""))}
"""Every option by its dotted name, with its default; a task has none."""

REMOVED = {"updates_per_decision": 1.0}
"""Options that there were once, and the value with which a stored run is still what it was."""


def from_dict(values: dict[str, Any], to_train: bool = True) -> Config:
    """A Config from nested dictionaries, as in config.json; unknown names are refused.

    Args:
        values: of the fields.
        to_train: False where an agent only acts: its augmentation may then be unknown.
    """
    return check(build(stored(values)), to_train)


def to_dict(config: Config) -> dict[str, Any]:
    """Nested dictionaries, for config.json."""
    return dataclasses.asdict(config)


def build(values: dict[str, Any]) -> Config:
    """A configuration from values by their dotted names; all others have their defaults."""
    given: dict[str, Any] = {"": {}}
    for path, value in values.items():
        group, _, name = path.rpartition(".")
        if path in DEFAULTS:
            given.setdefault(group, {})[name] = value
        elif not any(known.startswith(f"{path}.") for known in DEFAULTS):
            raise _unknown(path, group)
        elif value != {}:
            raise UserError(f"{path} is {value!r}; allowed: named values")
    if "task" not in values:
        raise UserError("config lacks task, which has no default; add it")
    config = Config(**given.pop(""))
    groups = {
        name: dataclasses.replace(getattr(config, name), **own) for name, own in given.items()
    }
    return dataclasses.replace(config, **groups)


def _unknown(path: str, group: str) -> UserError:
    """The error that names the options of the same group, and those of any group like it."""
    start = f"{group}." if group else ""
    near = {
        start + known.removeprefix(start).partition(".")[0]
        for known in DEFAULTS
        if known.startswith(start)
    }
    return unknown_name("option", path, near or DEFAULTS, DEFAULTS)


def stored(values: dict[str, Any]) -> dict[str, Any]:
    """A stored configuration by dotted names, as this version writes it.

    An augmentation has the spelling that is stored now, and options of earlier versions are gone.
    """
    found = flat(values)
    for name, value in REMOVED.items():
        if found.pop(name, value) != value:
            raise UserError(
                f"{name} is {values[name]!r}, an option that this version does not have; allowed: "
                f"{value} (use the version that wrote this configuration)"
            )
    if isinstance(found.get("augment"), str):
        found["augment"] = spelled(found["augment"])
    return found


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """The fields in which two runs differ in substance, as readable lines.

    A new option's default is what earlier runs did, so a run from before it can be continued.
    """
    defaults = {path: option.value for path, option in DEFAULTS.items()}
    before, after = (defaults | stored(values) for values in (old, new))
    return [
        f"{path}: {before.get(path)!r} there, {after.get(path)!r} here"
        for path in sorted(before.keys() | after.keys())
        if path not in MAY_CHANGE and before.get(path) != after.get(path)
    ]


def parse_settings(words: Iterable[str]) -> dict[str, Any]:
    """Options as `name=value` words, with the names and values of `svea train`'s flags.

    >>> parse_settings(["decisions=500_000", "eval-every=100", "recipe.alpha=1"])
    {'decisions': 500000, 'eval_every': 100, 'recipe.alpha': 1.0}
    """
    values: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        name = name.strip().lstrip("-").replace("-", "_")
        if not equals:
            raise UserError(f"--set is {word!r}; allowed: name=value, e.g. decisions=500000")
        if name not in DEFAULTS:
            raise unknown_name("option", name, DEFAULTS)
        if name in values:
            raise UserError(f"--set gives {name} twice")
        values[name] = _read(name, text.strip())
    return values


def _read(name: str, text: str) -> Any:
    """The text of an option as its type; its bounds are checked with the whole configuration."""
    kind = DEFAULTS[name].type
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        return kind(text) if kind in (int, float) else text
    except (ValueError, KeyError):
        allowed = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
        raise UserError(f"{name} is {text!r}; allowed: {allowed}") from None
