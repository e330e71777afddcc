"""The name of a run's folder: its task, its method, and what differs from their defaults."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from svea.config.fields import fields
from svea.config.names import find_method
from svea.config.presets import resolve
from svea.config.run import Config, Role
from svea.core.files import sha256

LONGEST = 120  # bytes
FIRST = ("base", "encoder", "preset", "augment")
"""Options that come right after the method, by their values alone."""


def run_name(config: Config) -> str:
    """The default name of a run's folder.

    >>> from svea.config import configure
    >>> options = {"recipe.K": 2, "envs": 4, "rendering": "fast"}
    >>> run_name(configure("walker_walk", preset="quick", **options))
    'walker_walk-svea-quick-envs4-K2-fast-0'
    """
    return bounded("-".join([*_first_words(config), *_differing(config)]), config.seed, LONGEST)


def bounded(name: str, last: object, longest: int) -> str:
    """A name that a folder can have; what is cut off a long one is replaced by a hash.

    >>> bounded("walker walk " * 9, 0, longest=30)
    'walker_walk_walker_-197854a9-0'
    """
    end, name = f"-{last}", _plain(name)
    if len(f"{name}{end}".encode()) > longest:
        digest = sha256(name)[:8]
        room = longest - len(end) - len(digest) - 1
        name = f"{name.encode()[:room].decode(errors='ignore')}-{digest}"
    return f"{name}{end}"


def _plain(name: str) -> str:
    return re.sub(r"[^\w.+=-]+", "_", name)


def _first_words(config: Config) -> list[str]:
    """Task and method, and what is unusual among FIRST."""
    method = find_method(config.method)
    usual = {"base": "sac", "encoder": method.encoder, "preset": "paper", "augment": method.augment}
    values = {name: str(getattr(config, name)) for name in FIRST}
    return [config.task, config.method, *(v for name, v in values.items() if v != usual[name])]


def _differing(config: Config) -> list[str]:
    """A word for every other option that decides what is learned and is not at its default."""
    chosen = {name: getattr(config, name) for name in ("preset", "base", "encoder", "method")}
    usual = {option.path: option.value for option in fields(resolve(config.task, **chosen))}
    leaves = Counter(path.rpartition(".")[2] for path in usual)
    words = []
    for option in fields(config):
        decides = option.role is Role.WHAT and option.path not in ("task", "method", *FIRST)
        if decides and option.value != usual[option.path]:
            leaf = option.path.rpartition(".")[2]
            words.append(_word(option.path if leaves[leaf] > 1 else leaf, option.value))
    return words


def _word(name: str, value: Any) -> str:
    """An option and its value: K2, learning_rate0.0003, fast, no_double."""
    if isinstance(value, bool):
        return name if value else f"no_{name}"
    if isinstance(value, int | float):
        return f"{name}{value}" if isinstance(value, int) else f"{name}{value:g}"
    text = str(value).rstrip("/").rpartition("/")[2]  # of a folder, its own name
    return text if text not in ("", "none", "auto") else f"{name}_{text}"
