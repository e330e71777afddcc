from __future__ import annotations

import pytest

from svea.methods import METHODS, default_augmentation, who_sees_what
from svea.recipes import RECIPES


def test_every_recipe_is_a_method() -> None:
    assert METHODS.keys() >= RECIPES.keys()


@pytest.mark.parametrize("name", METHODS)
def test_the_usual_augmentation_fits_the_recipe(name: str) -> None:
    method = METHODS[name]
    assert method.recipe_for(method.augment).is_strong == (method.augment != "none")
    assert default_augmentation(name) == method.augment
    assert method.about


def test_drq_with_an_augmentation_is_naive_augmentation() -> None:
    assert METHODS["drq"].recipe_for("none") is RECIPES["drq"]
    assert METHODS["drq"].recipe_for("conv") is RECIPES["drq+aug"]


def test_unknown_methods_have_no_augmentation() -> None:
    assert default_augmentation("nonsense") == "none"


def test_who_sees_what_in_svea_and_sada() -> None:
    row = who_sees_what("svea")
    assert row["Q-prediction"] == "weak alpha, strong beta"
    assert row["Q-target"] == row["policy"] == "weak"
    assert who_sees_what("mix-all")["Q-target"] == "each stream its own"
    assert who_sees_what("sada")["policy"] == "weak, strong (Q on weak)"
