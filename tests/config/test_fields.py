"""Every option says at its field what it may be, what it is for, and which role it plays."""

import ast
import dataclasses
import inspect
import itertools
import subprocess
import sys
import typing
from collections.abc import Iterator
from typing import Any

import pytest

from svea.config import (
    Config,
    Role,
    configure,
    differences,
    fields_with,
    from_dict,
    to_dict,
)
from svea.config.names import AUGMENTATION_NAMES
from svea.core.errors import Bounds, UserError


def notes_of(kind: Any) -> dict[str, tuple[Any, ...]]:
    """The plain type of every field, and what stands next to it in its annotation."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {
        name: typing.get_args(hint) if hasattr(hint, "__metadata__") else (hint,)
        for name, hint in hints.items()
    }


def option_groups(kind: Any = Config) -> Iterator[Any]:
    yield kind
    for plain, *_ in notes_of(kind).values():
        if dataclasses.is_dataclass(plain):
            yield from option_groups(plain)


FIELDS = [(kind, name) for kind in option_groups() for name in notes_of(kind)]


def described(kind: Any) -> set[str]:
    """Fields that a docstring follows, in a class or its bases."""
    found: set[str] = set()
    for base in (base for base in kind.__mro__ if dataclasses.is_dataclass(base)):
        body = typing.cast(ast.ClassDef, ast.parse(inspect.getsource(base)).body[0]).body
        for field, text in itertools.pairwise(body):
            if (
                isinstance(field, ast.AnnAssign)
                and isinstance(text, ast.Expr)
                and isinstance(text.value, ast.Constant)
            ):
                found.add(typing.cast(ast.Name, field.target).id)
    return found


@pytest.mark.parametrize(("kind", "name"), FIELDS, ids=lambda it: getattr(it, "__name__", it))
def test_every_field_has_help_and_every_number_bounds(kind: Any, name: str) -> None:
    plain, *notes = notes_of(kind)[name]
    assert name in described(kind)
    assert sum(isinstance(note, Bounds) for note in notes) == (plain in (int, float))


def test_every_field_has_one_role() -> None:
    for name, (_, *notes) in notes_of(Config).items():
        assert sum(isinstance(note, Role) for note in notes) == 1, name
    assert fields_with(*Role) == {field.name for field in dataclasses.fields(Config)}
    assert fields_with(Role.LENGTH) == {"decisions"} and fields_with(Role.SEED) == {"seed"}


def test_the_names_of_augmentations_are_those_that_exist() -> None:
    code = (
        "from svea.config.names import AUGMENTATION_NAMES as names; builtin = set(names)\n"
        "from svea.augment import AUGMENTATIONS; assert builtin == set(AUGMENTATIONS) == names"
    )
    subprocess.run([sys.executable, "-c", code], check=True)  # where no test has added any


def test_an_augmentation_of_ones_own_is_known_to_the_configuration(monkeypatch):
    from svea import augment

    def brighter(x: Any) -> Any:
        return x

    with pytest.raises(UserError, match="unknown augmentation 'brighter'"):
        configure("walker_walk", augment="brighter|conv")
    augment.register(lambda x, generator=None: {})(brighter)
    try:
        assert configure("walker_walk", augment="brighter|conv").augment == "brighter|conv"
    finally:
        del augment.AUGMENTATIONS["brighter"]
        AUGMENTATION_NAMES.discard("brighter")


def test_a_setting_is_stored_in_one_spelling() -> None:
    for typed in ("overlay-drift", " overlay_drift", "overlay_drift:6", "overlay-drift:06"):
        assert configure("walker_walk", augment=typed).augment == "overlay_drift"
    old = to_dict(configure("walker_walk", augment="conv|overlay_drift:12"))
    stored = old | {"augment": "conv | overlay-drift:12"}
    assert from_dict(stored) == from_dict(old)
    assert not differences(stored, old)  # a run from before continues


def test_the_replay_holds_what_a_run_makes_and_no_more() -> None:
    assert configure("walker_walk").replay_capacity == 500_000
    assert configure("walker_walk", decisions=100).replay_capacity == 100
    assert configure("walker_walk", decisions=100, envs=16).replay_capacity == 112
    assert configure("walker_walk", decisions=100, replay=50).replay_capacity == 50
