"""Which view feeds which part: the paper's finding, as a table.

Every update draws *views* of a batch of observations:

- ``clean``: the stored observation (its centre, where crops are the weak augmentation);
- ``weak``: the stored observation after the weak augmentation (random shift, or random crop);
- ``strong``: weak after the strong augmentation (random convolution, overlay, ...).

A recipe says which views feed the Q-prediction (and with which coefficient), the Q-target and the
policy. The rows of the paper's ablation table differ in nothing else, so they are rows here too.
"""

from dataclasses import dataclass
from typing import Annotated

from svea.core.errors import at_least, between

VIEWS = ("clean", "weak", "strong")
OWN = "own"  # each stream of the prediction bootstraps from its own view of the successor


@dataclass(frozen=True)
class Recipe:
    """One row of the table.

    Attributes:
        prediction: the streams of the Q-loss, each a view of s_t with its coefficient: a number, or
            the name of the option (``alpha``, ``beta``) that holds it.
        target: the view of s_{t+1} that the Q-target is computed from, or ``own``.
        policy: the views of s_t that the policy is trained on.
        policy_q: the view on which Q judges the policy's actions: ``own`` or one fixed view.
        paper: where the row stands in the paper.
    """

    prediction: tuple[tuple[str, float | str], ...]
    target: str
    policy: tuple[str, ...]
    policy_q: str = OWN
    paper: str = ""

    @property
    def views(self) -> set[str]:
        """Every view this recipe looks at."""
        named = {view for view, _ in self.prediction} | {self.target, *self.policy, self.policy_q}
        return named - {OWN}

    @property
    def is_mixed(self) -> bool:
        """Whether alpha and beta weight its streams."""
        return any(isinstance(coefficient, str) for _, coefficient in self.prediction)

    @property
    def is_strong(self) -> bool:
        """Whether a strong augmentation is part of the recipe."""
        return "strong" in self.views


_WEAK = (("weak", 1.0),)
_STRONG = (("strong", 1.0),)
_MIXED = (("weak", "alpha"), ("strong", "beta"))

RECIPES: dict[str, Recipe] = {
    "sac": Recipe((("clean", 1.0),), "clean", ("clean",), paper="SAC, no augmentation"),
    "drq": Recipe(_WEAK, "weak", ("weak",), paper="DrQ [K=1, M=1]; rows 7, 8"),
    "drq+aug": Recipe(_STRONG, "strong", ("strong",), paper="naive augmentation; rows 9, 10"),
    "svea": Recipe(_MIXED, "weak", ("weak",), paper="SVEA; rows 1, 2"),
    "svea-augmented-target": Recipe(_MIXED, "strong", ("weak",), paper="row 3"),
    "mix-all": Recipe(_MIXED, OWN, ("weak", "strong"), paper="row 4"),
    "augmented-prediction": Recipe(_STRONG, "weak", ("weak",), paper="row 5"),
    "clean-target": Recipe(_WEAK, "clean", ("weak",), paper="row 6"),
    "svea-clean-target": Recipe(_MIXED, "clean", ("weak",), paper="other reading of rows 1, 2"),
    "sada": Recipe(_MIXED, "weak", ("weak", "strong"), policy_q="weak", paper="beyond the paper"),
}


@dataclass(frozen=True)
class RecipeOptions:
    """Coefficients and numbers of views of a recipe."""

    alpha: Annotated[float, at_least(0)] = 0.5
    """Coefficient of the unaugmented stream in the Q-loss (paper: 0.5)."""
    beta: Annotated[float, at_least(0)] = 0.5
    """Coefficient of the augmented stream in the Q-loss (paper: 0.5)."""
    K: Annotated[int, between(1, 64)] = 1
    """Views of the successor that the Q-target is averaged over (DrQ's K)."""
    M: Annotated[int, between(1, 64)] = 1
    """Views of the state that the Q-loss is averaged over (DrQ's M)."""


@dataclass(frozen=True)
class Streams:
    """A recipe with its options filled in: what an agent reads.

    A view here is a pair (name, copy): copies are independent draws of the same kind of view.
    """

    prediction: tuple[tuple[str, int], ...]
    weights: tuple[float, ...]
    target: tuple[tuple[str, int], ...]
    own_target: bool
    policy: tuple[tuple[str, int], ...]
    policy_q: tuple[tuple[str, int], ...]

    @property
    def policy_views(self) -> tuple[tuple[str, int], ...]:
        """What the policy sees and Q judges it by, each view once: a pass through the trunk."""
        return tuple(dict.fromkeys(self.policy + self.policy_q))


def streams(recipe: Recipe, options: RecipeOptions) -> Streams:
    """Fill in a recipe's options; streams whose coefficient is 0 are left out."""
    prediction, weights = [], []
    for view, coefficient in recipe.prediction:
        weight = getattr(options, coefficient) if isinstance(coefficient, str) else coefficient
        for copy in range(options.M if weight else 0):
            prediction.append((view, copy))
            weights.append(weight / options.M)
    own = recipe.target == OWN  # then K is 1: svea.config checks it
    target = prediction if own else [(recipe.target, copy) for copy in range(options.K)]
    policy = tuple((view, 0) for view in recipe.policy)
    policy_q = policy if recipe.policy_q == OWN else tuple((recipe.policy_q, 0) for _ in policy)
    return Streams(tuple(prediction), tuple(weights), tuple(target), own, policy, policy_q)
