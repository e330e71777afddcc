"""The names that users type: products of base, recipe, encoder, mask and auxiliary task."""

from dataclasses import dataclass

from svea.recipes import RECIPES, Recipe


@dataclass(frozen=True)
class Method:
    """A recipe with what usually goes with it; all but the recipe can be overridden by flags.

    Attributes:
        recipe: row of the recipe table, by its name, or a row of your own.
        about: one line for `svea methods`.
        rows: its rows in the paper's ablation table; the first of two is with a ViT.
        augmented_recipe: the row that takes its place when a strong augmentation is asked for;
            None if the recipe stays.
        augment: the strong augmentation by default.
        encoder: the encoder by default.
        auxiliary: the auxiliary task.
        mask: what covers pixels before the encoder.
        crop: whether the weak augmentation is a random crop of a larger picture, not a shift.
        own_heads: whether the auxiliary task has the last convolutions for itself (PAD).
        n_step: decisions of reward before the target bootstraps; 0: the base's own.
    """

    recipe: str | Recipe
    about: str = ""
    rows: str = ""
    augmented_recipe: str | Recipe | None = None
    augment: str = "none"
    encoder: str = "cnn"
    auxiliary: str = "none"
    mask: str = "none"
    crop: bool = False
    own_heads: bool = False
    n_step: int = 0

    def recipe_for(self, augment: str) -> Recipe:
        """The row of the table that this method follows under an augmentation."""
        row = self.recipe if augment == "none" else self.augmented_recipe or self.recipe
        return row if isinstance(row, Recipe) else RECIPES[row]


METHODS: dict[str, Method] = {
    "svea": Method("svea", "SVEA", "1, 2", augment="conv"),
    "svea-augmented-target": Method(
        "svea-augmented-target", "SVEA bootstrapping from the strong view", "3", augment="conv"
    ),
    "mix-all": Method("mix-all", "data mixing in every place", "4", augment="conv"),
    "augmented-prediction": Method(
        "augmented-prediction", "alpha 0, beta 1: no unaugmented stream", "5", augment="conv"
    ),
    "clean-target": Method("clean-target", "DrQ with an unshifted target", "6"),
    "drq": Method("drq", "DrQ [K=1, M=1], the base", "7, 8", augmented_recipe="drq+aug"),
    "drq+aug": Method("drq+aug", "naive: drq --augment conv", "9, 10", augment="conv"),
    "rad": Method("drq", "RAD: DrQ with crops", "11", augmented_recipe="drq+aug", crop=True),
    "rad+aug": Method("drq+aug", "naive: rad --augment conv", "12", augment="conv", crop=True),
    "svea-clean-target": Method(
        "svea-clean-target", "the other reading: target unshifted", "1, 2", augment="conv"
    ),
    "svea-rad": Method("svea", "SVEA with RAD's crops", augment="conv", crop=True),
    "sac": Method("sac", "SAC, no augmentation"),
    "curl": Method("drq", "CURL: RAD and contrast", auxiliary="curl", crop=True),
    "pad": Method(
        "drq", "PAD: RAD; learns in tests too", auxiliary="pad", crop=True, own_heads=True, n_step=1
    ),
    "soda": Method(
        "drq", "SODA: RAD; its task sees strong", augment="overlay", auxiliary="soda", crop=True
    ),
    "sada": Method("sada", "SADA (2024): the policy sees strong too", augment="conv"),
    "svea-drift": Method("svea", "ours: colours or drift", augment="conv|overlay_drift:12"),
    "svea-motion": Method("svea", "ours: drift, 3-step", augment="overlay|overlay_drift", n_step=3),
    "simgrl": Method("svea", "SimGRL (2024)", augment="overlay_drift", encoder="frames"),
    "sgqn": Method("drq", "SGQN (2022): few pixels", augment="overlay", auxiliary="sgqn"),
    "madi": Method("svea", "MaDi (2024): a learned mask", augment="overlay", mask="madi"),
}
"""The rows of the paper's ablation table first, in its order."""


SAME_RUN = {"drq+aug": "drq", "rad+aug": "rad"}
"""Names that with an augmentation are the same run as another name: results use the other."""


def uses_strong(recipe: Recipe, auxiliary: str) -> bool:
    """Whether anything looks at the strong view."""
    return recipe.is_strong or auxiliary in ("soda", "sgqn")
