"""The values that a preset, an encoder, a method and a task decide, and how they combine.

Precedence: default < preset < encoder < method < task < explicit flag.
"""

from __future__ import annotations

from typing import Any

from svea.config.checks import check
from svea.config.codec import build
from svea.config.fields import flat
from svea.config.names import encoder_defaults, find_method, is_whole, own_modules
from svea.config.run import Config
from svea.config.tasks import ACTION_REPEAT, EPISODE_FRAMES, ROBOT_TASKS, is_foreign
from svea.core.errors import UserError, unknown_name
from svea.core.given import Factory, name_task
from svea.core.importing import trust
from svea.methods import Method

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    # Chosen by experiment (docs/notes/demo.md). SAC's numbers are not about size: with them returns
    # spread faster in the first thousands of decisions, which are all that a short run has.
    "quick": {
        "decisions": 15_000,
        "image_size": 48,
        "batch_size": 64,
        "shift": 2,
        "network": {
            "layers": 4,
            "filters": 16,
            "strided_layers": 2,
            "projection": 50,
            "hidden": 256,
        },
        "sac": {"n_step": 3, "discount": 0.97, "q_tau": 0.02, "target_every": 1},
        "ddpg": {"learning_rate": 1e-3, "noise_decisions": 3_000},
        "dqn": {"learning_rate": 1e-3, "epsilon_decisions": 3_000},
        "eval_every": 5_000,
        "eval_episodes": 6,
        "log_every": 500,
        "save_every": 2_500,
    },
}

CROP = {"paper": 16, "quick": 8}  # extra pixels to render if the weak augmentation is a crop
OWN_HEADS = {"paper": 3, "quick": 1}  # last convolutions that PAD's task has for itself


def configure(task: str | Factory, **explicit: Any) -> Config:
    """Resolve a configuration from a task and the values given explicitly.

    Args:
        task: a name, a Gymnasium id, or a function or class that makes an environment of yours.
        **explicit: any field of `Config`, by its name. Nested values are given as dictionaries or
            with dots: ``recipe={"alpha": 1.0}`` or ``**{"recipe.alpha": 1.0}``. Without an
            encoder, or with an empty one, it is the method's own.

    Example:
        >>> configure("cartpole_swingup", preset="quick", seed=3).action_repeat
        8
    """
    return check(resolve(task, **explicit))


def resolve(task: str | Factory, **explicit: Any) -> Config:
    """As `configure`, but without the checks: more flags may follow and make it valid."""
    task = name_task(task)
    trust(*own_modules({**explicit, "task": task}))
    preset, method = explicit.get("preset", "paper"), explicit.get("method", "svea")
    encoder = explicit.pop("encoder", "")
    for name, value in {"preset": preset, "encoder": encoder, "method": method}.items():
        if not isinstance(value, str):
            raise UserError(f"{name} is {value!r}; allowed: a name")
    if preset not in PRESETS:
        raise unknown_name("preset", preset, PRESETS)
    chosen = find_method(method)
    encoder = encoder or chosen.encoder
    layers = [
        PRESETS[preset],
        encoder_defaults(encoder, preset),
        method_defaults(chosen, preset, encoder),
        task_defaults(task),
        sgqn_quantile(task) if explicit.get("auxiliary", chosen.auxiliary) == "sgqn" else {},
        vit_coefficients(task, chosen) if encoder == "vit" else {},
        explicit,
    ]
    values = {"task": task, "encoder": encoder}
    for layer in layers:
        values |= flat(layer)
    return build(values)


def method_defaults(chosen: Method, preset: str, encoder: str) -> dict[str, Any]:
    """What a method decides; a ViT and a user's own encoder are shared whole by all branches."""
    own_heads = chosen.own_heads and not is_whole(encoder)
    longer = {"n_step": chosen.n_step} if chosen.n_step else {}
    return {
        **{base: dict(longer) for base in ("sac", "ddpg", "dqn")},
        "augment": chosen.augment,
        "auxiliary": chosen.auxiliary,
        "mask": chosen.mask,
        "crop": CROP[preset] if chosen.crop else 0,
        "network": {"head_layers": OWN_HEADS[preset] if own_heads else 0},
    }


def vit_coefficients(task: str, chosen: Method) -> dict[str, Any]:
    """The paper's alpha and beta for its ViT, where the method mixes two streams."""
    if not chosen.recipe_for(chosen.augment).is_mixed:
        return {}
    alpha, beta = {"walker": (1.0, 1.0), "robot_push": (1.0, 0.5)}.get(
        task if task.startswith("robot") else task.split("_")[0], (0.5, 0.5)
    )
    return {"recipe": {"alpha": alpha, "beta": beta}}


def sgqn_quantile(task: str) -> dict[str, Any]:
    """SGQN's quantile by task: small bodies take fewer pixels."""
    return {"sgqn": {"quantile": 0.98}} if task.startswith(("cartpole", "ball_in_cup")) else {}


def task_defaults(task: str) -> dict[str, Any]:
    """What a task decides; a user's own environment has no test modes and no action repeat.

    It has no time limit either: a robot that takes long must not be killed and driven again.
    """
    if is_foreign(task):
        return {"action_repeat": 1, "eval_mode": "train", "step_timeout": 0.0}
    own: dict[str, Any] = {"episode_frames": EPISODE_FRAMES.get(task, 1_000)}
    if task in ROBOT_TASKS:
        own["eval_mode"] = "test"
    return own | {"action_repeat": ACTION_REPEAT.get(task, 4)}
