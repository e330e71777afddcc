"""The options of `svea train` as a study takes them."""

from __future__ import annotations

import pytest

from svea.core.errors import UserError
from svea.studies import as_flags, parse_seeds, parse_settings


def test_seeds_and_settings_as_text() -> None:
    assert parse_seeds("0-2,7 9") == [0, 1, 2, 7, 9]
    assert parse_seeds([3, "5-6"]) == [3, 5, 6]  # type: ignore[list-item]
    words = ["eval-every=7", "--recipe.beta=0.25", "tensorboard=true", "augment=a=b"]
    assert parse_settings(words) == {
        "eval_every": 7, "recipe.beta": 0.25, "tensorboard": True, "augment": "a=b",
    }  # fmt: skip
    for wrong, word in (("decisions", "name=value"), ("decisions=ten", "a whole number"),
                        ("tensorboard=maybe", "true or false"), ("sede=3", "'seed'")):  # fmt: skip
        with pytest.raises(UserError, match=word):
            parse_settings([wrong])


def test_flags_of_nested_switches() -> None:
    assert as_flags({"dqn.dueling": False, "x_y": "z"}) == ["--dqn.no-dueling", "--x-y", "z"]
