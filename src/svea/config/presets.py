"""How named values become a configuration, and how configurations are read, written and compared.

Precedence: default < preset < encoder < method < task < explicit flag.
"""

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from svea.config.checks import KINDS, check
from svea.config.modes import ACTION_REPEAT, EPISODE_FRAMES, ROBOT_TASKS, is_foreign
from svea.config.names import encoder_defaults, find_method, is_whole, own_modules, spelled
from svea.config.run import MAY_CHANGE, Config, Role, fields, flat
from svea.core.errors import UserError, unknown_name
from svea.core.files import sha256
from svea.core.given import Factory, name_task
from svea.core.importing import trust
from svea.methods import Method

DEFAULTS = {option.path: option for option in fields(Config(""))}
"""Every option by its dotted name, with its default; a task has none."""

REMOVED = {"updates_per_decision": 1.0}
"""Options that there were once, and the value with which a stored run is still what it was."""


def from_dict(values: dict[str, Any], to_train: bool = True) -> Config:
    """A checked Config (`check`) from nested dictionaries, as in config.json; no unknown names."""
    return check(build(stored(values)), to_train)


to_dict: Callable[[Config], dict[str, Any]] = dataclasses.asdict  # nested, for config.json


def build(values: dict[str, Any]) -> Config:
    """A configuration from values by their dotted names; all others have their defaults."""
    given: dict[str, Any] = {"": {}}
    for path, value in values.items():
        group, _, name = path.rpartition(".")
        if path in DEFAULTS:
            given.setdefault(group, {})[name] = value
        elif not any(known.startswith(f"{path}.") for known in DEFAULTS):
            siblings = [known for known in DEFAULTS if known.rpartition(".")[0] == group]
            raise unknown_name("option", path, siblings or DEFAULTS, DEFAULTS)
        elif value != {}:
            raise UserError(f"{path} is {value!r}; allowed: named values")
    if "task" not in values:
        raise UserError("config lacks task, which has no default; add it")
    config = Config(**given.pop(""))
    groups = {
        name: dataclasses.replace(getattr(config, name), **own) for name, own in given.items()
    }
    return dataclasses.replace(config, **groups)


def stored(values: dict[str, Any]) -> dict[str, Any]:
    """A stored configuration by dotted names, as this version writes it.

    An augmentation has the spelling that is stored now, and options of earlier versions are gone.
    """
    found = flat(values)
    for name, value in REMOVED.items():
        if found.pop(name, value) != value:
            raise UserError(
                f"{name} is {values[name]!r}, an option that this version does not have; allowed: "
                f"{value} (use the version that wrote this configuration)"
            )
    if isinstance(found.get("augment"), str):
        found["augment"] = spelled(found["augment"])
    return found


def differences(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """The fields in which two runs differ in substance, as readable lines.

    A new option's default is what earlier runs did, so a run from before it can be continued.
    """
    defaults = {path: option.value for path, option in DEFAULTS.items()}
    before, after = (defaults | stored(values) for values in (old, new))
    return [
        f"{path}: {before.get(path)!r} there, {after.get(path)!r} here"
        for path in sorted(before.keys() | after.keys())
        if path not in MAY_CHANGE and before.get(path) != after.get(path)
    ]


def parse_settings(words: Iterable[str]) -> dict[str, Any]:
    """Options as `name=value` words, with the names and values of `svea train`'s flags.

    >>> parse_settings(["decisions=500_000", "eval-every=100", "recipe.alpha=1"])
    {'decisions': 500000, 'eval_every': 100, 'recipe.alpha': 1.0}
    """
    values: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        name = name.strip().lstrip("-").replace("-", "_")
        if not equals or name in values:
            raise UserError(f"--set has {word!r}; allowed: name=value, once for each option")
        if name not in DEFAULTS:
            raise unknown_name("option", name, DEFAULTS)
        allowed, read = KINDS.get(DEFAULTS[name].type, KINDS[str])
        try:
            values[name] = read(text.strip())
        except (ValueError, KeyError):
            raise UserError(f"{name} is {text!r}; allowed: {allowed}") from None
    return values


PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    # Chosen by experiment (docs/lab-book.md). SAC's numbers are not about size: with them returns
    # spread faster in the first thousands of decisions, which are all that a short run has.
    "quick": {
        "decisions": 15_000,
        "image_size": 48,
        "batch_size": 64,
        "shift": 2,
        "network.layers": 4,
        "network.filters": 16,
        "network.strided_layers": 2,
        "network.projection": 50,
        "network.hidden": 256,
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
    values = {"task": task, "encoder": encoder}
    for layer in (
        PRESETS[preset],
        encoder_defaults(encoder, preset),
        method_defaults(chosen, preset, encoder),
        task_defaults(task, chosen, encoder, explicit.get("auxiliary", chosen.auxiliary)),
        explicit,
    ):
        values |= flat(layer)
    return build(values)


def method_defaults(chosen: Method, preset: str, encoder: str) -> dict[str, Any]:
    """What a method decides; a ViT and a user's own encoder are shared whole by all branches."""
    own_heads = chosen.own_heads and not is_whole(encoder)
    longer = {f"{base}.n_step": chosen.n_step for base in ("sac", "ddpg", "dqn") if chosen.n_step}
    return longer | {
        "augment": chosen.augment,
        "auxiliary": chosen.auxiliary,
        "mask": chosen.mask,
        "crop": CROP[preset] if chosen.crop else 0,
        "network.head_layers": OWN_HEADS[preset] if own_heads else 0,
    }


VIT_COEFFICIENTS = {
    "walker_walk": (1.0, 1.0), "walker_stand": (1.0, 1.0), "walker_run": (1.0, 1.0),
    "robot_push": (1.0, 0.5),
}  # fmt: skip
"""The paper's alpha and beta for its ViT, where they are not 0.5."""


def task_defaults(task: str, chosen: Method, encoder: str, auxiliary: str) -> dict[str, Any]:
    """What a task decides; a user's own environment has no test modes and no action repeat.

    It has no time limit either: a robot that takes long must not be killed and driven again.
    """
    own: dict[str, Any] = {}
    if encoder == "vit" and chosen.recipe_for(chosen.augment).is_mixed:
        own["recipe.alpha"], own["recipe.beta"] = VIT_COEFFICIENTS.get(task, (0.5, 0.5))
    if is_foreign(task):
        return own | {"action_repeat": 1, "eval_mode": "train", "step_timeout": 0.0}
    if auxiliary == "sgqn" and task.startswith(("cartpole", "ball_in_cup")):
        own["sgqn.quantile"] = 0.98  # small bodies take fewer pixels
    if task in ROBOT_TASKS:
        own["eval_mode"] = "test"
    own["episode_frames"] = EPISODE_FRAMES.get(task, 1_000)
    return own | {"action_repeat": ACTION_REPEAT.get(task, 4)}


def as_flags(values: Mapping[str, Any]) -> list[str]:
    """Options as flags of `svea train`.

    >>> as_flags({"eval_every": 5, "recipe.alpha": 1.0, "tensorboard": False})
    ['--eval-every', '5', '--recipe.alpha', '1.0', '--no-tensorboard']
    """
    flags = []
    for name, value in values.items():
        parent, dot, leaf = name.replace("_", "-").rpartition(".")
        if isinstance(value, bool):
            flags.append(f"--{parent}{dot}{'' if value else 'no-'}{leaf}")
        else:
            flags += [f"--{parent}{dot}{leaf}", str(value)]
    return flags


def as_command(values: Mapping[str, Any]) -> list[str]:
    """What a user types to train a run with these options, by their dotted names."""
    options = dict(values)
    return ["svea", "train", options.pop("task"), *as_flags(options)]


LONGEST = 120  # bytes
FIRST = ("base", "encoder", "preset", "augment")  # come after the method, as values without names


def run_name(config: Config) -> str:
    """The default name of a run's folder, such as walker_walk-svea-quick-envs4-K2-fast-0."""
    method = find_method(config.method)
    usual = {"base": "sac", "encoder": method.encoder, "preset": "paper", "augment": method.augment}
    values = {name: str(getattr(config, name)) for name in FIRST}
    first = [config.task, config.method, *(v for name, v in values.items() if v != usual[name])]
    return bounded("-".join([*first, *_differing(config)]), config.seed, LONGEST)


def bounded(name: str, last: object, longest: int) -> str:
    """A name that a folder can have; what is cut off a long one is replaced by a hash.

    >>> bounded("walker walk " * 9, 0, longest=30)
    'walker_walk_walker_-197854a9-0'
    """
    end, name = f"-{last}", re.sub(r"[^\w.+=-]+", "_", name)
    if len(f"{name}{end}".encode()) > longest:
        digest = sha256(name)[:8]
        room = longest - len(end) - len(digest) - 1
        name = f"{name.encode()[:room].decode(errors='ignore')}-{digest}"
    return f"{name}{end}"


def _differing(config: Config) -> Iterator[str]:
    """A word for every other option that decides what is learned and is not at its default."""
    chosen = {name: getattr(config, name) for name in ("preset", "base", "encoder", "method")}
    usual = {option.path: option.value for option in fields(resolve(config.task, **chosen))}
    leaves = Counter(path.rpartition(".")[2] for path in usual)
    for option in fields(config):
        decides = option.role is Role.WHAT and option.path not in ("task", "method", *FIRST)
        if decides and option.value != usual[option.path]:
            leaf = option.path.rpartition(".")[2]
            yield _word(option.path if leaves[leaf] > 1 else leaf, option.value)


def _word(name: str, value: Any) -> str:
    """An option and its value: K2, learning_rate0.0003, fast, no_double."""
    if isinstance(value, bool):
        return name if value else f"no_{name}"
    if isinstance(value, int | float):
        return f"{name}{value}" if isinstance(value, int) else f"{name}{value:g}"
    text = str(value).rstrip("/").rpartition("/")[2]  # of a folder, its own name
    if name.startswith("train_"):
        return f"train_{text}"
    return text if text not in ("", "none", "auto") else f"{name}_{text}"
