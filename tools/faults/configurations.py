"""Configurations made at random: taken, or refused by name before anything starts."""

import contextlib
import copy
import dataclasses
import io
import json
import math
from pathlib import Path
from typing import Any

from faults.profiles import TOY
from faults.tally import Tally, expect, numbers

from svea.config import Config, configure, from_dict, to_dict
from svea.core.errors import SveaError, UserError

ODD: tuple[Any, ...] = (
    *(0, -1, 1, 2, 7, 16, 84, 10**6, 10**12, -(10**30), 2**63, 0.5, 1e-9, 1e308),
    *(math.nan, math.inf, -math.inf, True, False, None, "", " ", "none", "auto", "walker_walk"),
    *("../../etc", "/", "a\nb", "\0", "ü" * 300, "x" * 10_000, "svea", "sac", "conv|cutout", "1h"),
    *([], [1], {}, {"a": 1}, b"bytes", (1, 2), 1j, object()),
)


def fuzzed(cases: range, seed: int, folder: Path) -> Tally:
    """From Python, from JSON and from the command line in turn."""
    tally, names = Tally(), field_names()
    for case in cases:
        random = numbers("configurations", seed, case)
        chosen = random.choice(names, int(random.integers(1, 4)))
        changes = {str(name): copy.deepcopy(ODD[random.integers(len(ODD))]) for name in chosen}
        way = (from_python, from_json, from_flags)[case % 3]
        with tally.case(f"{way.__name__}: {changes!r:.300}"):
            try:
                taken = way(changes)
            except UserError as error:
                expect(str(error).strip(), "refused without a word")
            except SveaError as error:
                raise AssertionError(f"exit code {error.exit_code}: {error}") from error
            else:
                expect(from_dict(json.loads(json.dumps(to_dict(taken)))) == taken, "not the same")
                expect(isinstance(taken.folder, Path), "no folder")
    return tally


def field_names() -> list[str]:
    """Every field, dotted where nested, and some that are none."""
    names = ["", "unknown", "task.task", "recipe.unknown", "__class__"]
    for field in dataclasses.fields(Config):
        value = getattr(configure("toy:make"), field.name)
        inner = dataclasses.fields(value) if dataclasses.is_dataclass(value) else []
        names += [f"{field.name}.{each.name}" for each in inner] + [field.name]
    return names


def from_python(changes: dict[str, Any]) -> Config:
    """As a script does."""
    settings = TOY | changes
    return configure(settings.pop("task"), **settings)


def from_json(changes: dict[str, Any]) -> Config:
    """As a run folder is read."""
    values: Any = to_dict(configure("toy:make"))
    for name, value in changes.items():
        place, *rest = name.split(".")
        inner = values.get(place)
        if rest and isinstance(inner, dict):
            inner[rest[0]] = value
        else:
            values[name] = value
    return from_dict(values)


def from_flags(changes: dict[str, Any]) -> Config:
    """As the command line does; what the parser refuses counts as refused by name."""
    from svea.cli.train import train_flags

    flags = ["toy:make"]
    for name, value in changes.items():
        if name != "task":
            flags += [f"--{name.replace('_', '-')}", str(value)]
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed):
            return train_flags(flags)[0]
    except SystemExit as end:
        if end.code == 0 or not printed.getvalue():
            raise AssertionError(f"the parser ended with {end.code}") from end
        raise UserError(printed.getvalue()) from None
