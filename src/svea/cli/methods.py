"""`svea methods`: which views feed which part of each method."""

from __future__ import annotations

import json as jsonlib

from svea.cli.arguments import Positional, parse
from svea.config.names import find_method
from svea.methods import METHODS
from svea.recipes import OWN


def run(arguments: list[str]) -> int:
    """Read the arguments and run the verb."""
    return parse(command, "methods", arguments)


def command(names: Positional[tuple[str, ...]] = (), json: bool = False) -> int:
    """List methods with the views that feed Q-prediction, Q-target and policy.

    Args:
        names: which; default: all. One of your own is named as module:name.
        json: print JSON instead of a table.
    """
    from svea.cli.printing import print_table

    rows = [views_row(name) for name in names or METHODS]
    if json:
        print(jsonlib.dumps(rows, indent=1))
    else:
        print_table(rows)
    return 0


def views_row(name: str) -> dict[str, str]:
    """A method's row for `svea methods`."""
    method = find_method(name)
    recipe = method.recipe_for(method.augment)
    prediction = ", ".join(
        view if coefficient == 1 else f"{view} {coefficient}"
        for view, coefficient in recipe.prediction
    )
    target = "each stream its own" if recipe.target == OWN else recipe.target
    if method.n_step > 1:
        target += f" ({method.n_step}-step)"
    policy = ", ".join(recipe.policy)
    if recipe.policy_q != OWN:
        policy += f" (Q on {recipe.policy_q})"
    return {
        "row": method.rows or "-",
        "method": name,
        "Q-prediction": prediction,
        "Q-target": target,
        "policy": policy,
        "weak": "crop" if method.crop else "none" if recipe.views == {"clean"} else "shift",
        "strong": method.augment,
        "encoder": method.encoder,
        "auxiliary": method.auxiliary,
        "mask": method.mask,
        "about": method.about,
    }
