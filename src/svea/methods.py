"""The names that users type, each a product of independent choices."""

from __future__ import annotations

from dataclasses import dataclass

from svea.recipes import OWN, RECIPES, Recipe


@dataclass(frozen=True)
class Method:
    """A recipe with its usual augmentation.

    Attributes:
        recipe: row of the recipe table.
        augmented_recipe: the row that takes its place when a strong augmentation is asked for.
        augment: the strong augmentation by default.
        about: one line for `svea methods`.
    """

    recipe: str
    augmented_recipe: str
    augment: str
    about: str

    def recipe_for(self, augment: str) -> Recipe:
        """The row of the table that this method follows under an augmentation."""
        return RECIPES[self.recipe if augment == "none" else self.augmented_recipe]


def _from_recipe(name: str) -> Method:
    """Every row of the recipe table is a method too."""
    recipe = RECIPES[name]
    return Method(name, name, "conv" if recipe.is_strong else "none", recipe.paper)


METHODS: dict[str, Method] = {name: _from_recipe(name) for name in RECIPES}
METHODS["drq"] = Method("drq", "drq+aug", "none", "DrQ; with --augment: naive augmentation")


def default_augmentation(method: str) -> str:
    """The strong augmentation that a method has unless told otherwise."""
    return METHODS[method].augment if method in METHODS else "none"


def who_sees_what(name: str) -> dict[str, str]:
    """A method's row for `svea methods`."""
    method = METHODS[name]
    recipe = method.recipe_for(method.augment)
    prediction = ", ".join(
        view if coefficient == 1 else f"{view} {coefficient}"
        for view, coefficient in recipe.prediction
    )
    policy = ", ".join(recipe.policy)
    if recipe.policy_q != OWN:
        policy += f" (Q on {recipe.policy_q})"
    return {
        "method": name,
        "Q-prediction": prediction,
        "Q-target": "each stream its own" if recipe.target == OWN else recipe.target,
        "policy": policy,
        "augment": method.augment,
        "paper": method.about,
    }
