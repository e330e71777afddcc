"""The options of `svea train` as a study takes them: seeds, `name=value` words, nested tables."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from svea.config import Config
from svea.config.codec import DEEPEST, option_types
from svea.core.errors import UserError, unknown_name

Values = dict[str, Any]
"""Options of `svea train` by their dotted names."""


def parse_seeds(seeds: Sequence[int] | Sequence[str] | str | int) -> list[int]:
    """Seeds as numbers or text.

    >>> parse_seeds("0-2,7")
    [0, 1, 2, 7]
    """
    allowed = "allowed: numbers and ranges such as 3 or 0-4"
    if isinstance(seeds, bool) or not isinstance(seeds, int | str | list | tuple | range):
        raise UserError(f"seeds is {seeds!r}; {allowed}")
    if isinstance(seeds, int):
        return [seeds]
    words = seeds.replace(",", " ").split() if isinstance(seeds, str) else list(seeds)
    found: list[int] = []
    for word in words:
        parts = re.fullmatch(r"(\d{1,18})(?:-(\d{1,18}))?", str(word).strip())
        first, last = (int(parts[1]), int(parts[2] or parts[1])) if parts else (1, 0)
        if not first <= last < first + 1_000_000:
            raise UserError(f"seeds is {word!r}; {allowed}")
        found += range(first, last + 1)
    return found


def parse_settings(words: Iterable[str]) -> Values:
    """Options as `name=value` words, with the names and values of `svea train`'s flags.

    >>> parse_settings(["decisions=500_000", "eval-every=100", "recipe.alpha=1"])
    {'decisions': 500000, 'eval_every': 100, 'recipe.alpha': 1.0}
    """
    values: Values = {}
    kinds = option_types(Config)
    for word in words:
        name, equals, text = word.partition("=")
        name = name.strip().lstrip("-").replace("-", "_")
        if not equals:
            raise UserError(f"--set is {word!r}; allowed: name=value, e.g. decisions=500000")
        if name not in kinds:
            raise unknown_name("option", name, kinds)
        if name in values:
            raise UserError(f"--set gives {name} twice")
        values[name] = _parse_value(name, kinds[name], text.strip())
    return values


def as_flags(values: Values) -> list[str]:
    """Options as flags of `svea train`.

    >>> as_flags({"eval_every": 5, "recipe.alpha": 1.0, "tensorboard": False})
    ['--eval-every', '5', '--recipe.alpha', '1.0', '--no-tensorboard']
    """
    flags = []
    for name, value in values.items():
        parent, dot, leaf = name.replace("_", "-").rpartition(".")
        if isinstance(value, bool):
            flags.append(f"--{parent}{dot}{'' if value else 'no-'}{leaf}")
        else:
            flags += [f"--{parent}{dot}{leaf}", str(value)]
    return flags


def flatten(values: Values, prefix: str = "") -> Values:
    """Nested options under dotted names.

    >>> flatten({"recipe": {"K": 2}, "eval-every": 5})
    {'recipe.K': 2, 'eval_every': 5}
    """
    if not isinstance(values, dict):
        raise UserError(f"set is {values!r}; allowed: named values")
    if prefix.count(".") > DEEPEST:
        raise UserError(f"set nests more than {DEEPEST} tables; allowed: options of `svea train`")
    flat: Values = {}
    for name, value in values.items():
        path = prefix + str(name).replace("-", "_")
        flat |= flatten(value, f"{path}.") if isinstance(value, dict) else {path: value}
    return flat


def _parse_value(name: str, kind: Any, text: str) -> Any:
    """The text of an option as its type; limits beyond the type are checked with the config."""
    try:
        if kind is bool:
            return {"true": True, "false": False}[text.lower()]
        return kind(text) if kind in (int, float) else text
    except (ValueError, KeyError):
        allowed = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
        raise UserError(f"{name} is {text!r}; allowed: {allowed}") from None
