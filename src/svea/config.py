"""The configuration of a run: one frozen dataclass, resolved once, written to config.json.

Precedence: default < preset < method < task < explicit flag. The docstring of a field is
its ``--help`` text.
"""

from __future__ import annotations

import dataclasses
import re
import typing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from svea import envs
from svea.agents.sac import SACOptions
from svea.errors import UserError, unknown_name
from svea.methods import METHODS, default_augmentation
from svea.networks.cnn import output_size
from svea.recipes import RecipeOptions, streams


@dataclass(frozen=True)
class NetworkOptions:
    """Sizes of the networks; the defaults are the paper's."""

    layers: int = 11
    """Convolutions in the encoder."""
    filters: int = 32
    """Filters of each convolution."""
    strided_layers: int = 1
    """How many of the first convolutions have stride 2."""
    projection: int = 100
    """Size of the projected features."""
    hidden: int = 1024
    """Width of the policy's and the Q-functions' hidden layers."""


@dataclass(frozen=True)
class Config:
    """Everything that decides what a run does."""

    task: str
    """A dm_control suite task as domain_task, or module:function of your own environment."""
    method: str = "svea"
    """A method or recipe; `svea methods` lists them."""
    preset: Literal["paper", "quick"] = "paper"
    """paper: the published setting. quick: smaller images and networks, for a CPU."""
    seed: int = 0
    """Seed of everything that is drawn."""
    decisions: int = 500_000
    """Length of the run in decisions (agent steps). A larger number extends a finished run."""
    warmup: int = 1_000
    """Random decisions at the start; after them as many updates are made at once."""
    envs: int = 1
    """Environments that collect in parallel, each in its own process; 1 is the paper's schedule."""
    recipe: RecipeOptions = field(default_factory=RecipeOptions)
    """Coefficients and numbers of views."""
    augment: str = "conv"
    """The strong augmentation: a name, a+b in sequence, a|b one per sample, or none."""
    overlay_dir: str = ""
    """Pictures for overlay: a folder, or `procedural`; default: those of data_dir."""
    shift: int = 4
    """Largest random shift of the weak augmentation, in pixels."""
    encoder: Literal["cnn"] = "cnn"
    """The trunk."""
    network: NetworkOptions = field(default_factory=NetworkOptions)
    """Sizes of the networks."""
    sac: SACOptions = field(default_factory=SACOptions)
    """Numbers of the base algorithm."""
    batch_size: int = 128
    """Transitions per update."""
    replay: int = 500_000
    """Capacity of the replay buffer in decisions."""
    image_size: int = 84
    """Height and width of the observation in pixels."""
    action_repeat: int = 4
    """Simulator steps per decision; set by the task (finger 2, cartpole 8, others 4)."""
    episode_frames: int = 1_000
    """Simulator steps per episode."""
    rendering: Literal["full", "fast"] = "full"
    """full: shadows, reflections, antialiasing. fast: none of them, many times faster on a CPU."""
    eval_every: int = 10_000
    """Decisions between evaluations."""
    eval_episodes: int = 30
    """Episodes per mode and evaluation."""
    eval_mode: str = "color_hard"
    """The test mode evaluated beside train."""
    eval_actions: Literal["most_likely", "sampled"] = "most_likely"
    """What evaluations do: the policy's most likely action (as in the paper), or a sampled one."""
    eval_envs: int = 0
    """Environments that evaluate in parallel; 0: as many as there are cores, at most 16."""
    log_every: int = 1_000
    """Decisions between log lines."""
    save_every: int = 10_000
    """Decisions between checkpoints."""
    device: Literal["auto", "cuda", "mps", "cpu"] = "auto"
    """Where to learn."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """auto: bfloat16 where the hardware multiplies it natively, float32 elsewhere."""
    time_limit: str = "none"
    """Save and stop after this wall time, e.g. 90s, 9m, 1h30m; the same command continues."""
    data_dir: str = ""
    """Folder with benchmark data (beats SVEA_DATA)."""
    out: str = ""
    """Folder of the run; default runs/TASK-METHOD-SEED."""
    tensorboard: bool = False
    """Also write TensorBoard events into the run folder."""
    wandb: bool = False
    """Also log to Weights & Biases."""

    @property
    def folder(self) -> Path:
        """Where the run lies."""
        name = re.sub(r"[^\w.+-]+", "_", f"{self.task}-{self.method}-{self.seed}")
        return Path(self.out or Path("runs") / name)

    @property
    def episode_length(self) -> int:
        """Decisions per episode."""
        return -(-self.episode_frames // self.action_repeat)

    @property
    def environment(self) -> dict[str, Any]:
        """The arguments of ``make_env`` in training."""
        shared = ("task", "image_size", "action_repeat", "episode_frames", "rendering")
        return {name: getattr(self, name) for name in shared} | {"data_dir": self.data_dir or None}


# Fields that say how, where or how long to run, not what: they may change when a run is resumed.
HOW_TO_RUN = {
    "decisions", "eval_envs", "save_every", "device", "time_limit", "data_dir", "out",
    "tensorboard", "wandb",
}  # fmt: skip

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {},
    # Chosen by experiment; docs/demo.md says how. Two choices are not about size: at the paper's
    # initial temperature the entropy bonus outweighs early rewards for all of a short run, and in
    # trials the most likely action of a young policy scored lower than the sampled one.
    "quick": {
        "decisions": 6_000,
        "image_size": 40,
        "rendering": "fast",
        "shift": 2,
        "network": {
            "layers": 4,
            "filters": 16,
            "strided_layers": 2,
            "projection": 50,
            "hidden": 256,
        },
        "sac": {"initial_temperature": 0.01},
        "eval_every": 1_500,
        "eval_episodes": 6,
        "eval_actions": "sampled",
        "log_every": 500,
        "save_every": 1_500,
    },
}

_MINIMUM = {
    "seed": 0, "decisions": 1, "warmup": 1, "envs": 1, "shift": 0, "batch_size": 1, "replay": 1,
    "image_size": 16, "action_repeat": 1, "episode_frames": 1, "eval_every": 1, "eval_episodes": 1,
    "eval_envs": 0, "log_every": 1, "save_every": 1,
    "network.layers": 1, "network.filters": 1, "network.strided_layers": 0, "network.projection": 1,
    "network.hidden": 1, "sac.actor_every": 1, "sac.target_every": 1, "recipe.K": 1, "recipe.M": 1,
}  # fmt: skip
_ABOVE_ZERO = ("sac.learning_rate", "sac.temperature_learning_rate", "sac.initial_temperature")
_UNIT_INTERVAL = ("sac.discount", "sac.encoder_tau", "sac.q_tau", "sac.temperature_beta1")
_MAXIMUM = {
    "envs": 1024, "eval_envs": 1024, "batch_size": 65_536, "image_size": 1024,
    "action_repeat": 1000, "shift": 1024, "network.layers": 100, "network.filters": 4096,
    "network.projection": 65_536, "network.hidden": 65_536, "recipe.K": 64, "recipe.M": 64,
}  # fmt: skip
_LARGEST = 10**9  # keeps sums and products far from any integer or memory overflow


def configure(task: str, **explicit: Any) -> Config:
    """Resolve a configuration from a task and the values given explicitly.

    Nested values are given as dictionaries or with dots: ``recipe={"alpha": 1.0}`` or
    ``**{"recipe.alpha": 1.0}``.

    Example:
        >>> configure("cartpole_swingup", preset="quick", seed=3).action_repeat
        8
    """
    preset, method = explicit.get("preset", "paper"), explicit.get("method", "svea")
    for name, value in (("task", task), ("preset", preset), ("method", method)):
        if not isinstance(value, str):
            raise UserError(f"{name} is {value!r}; allowed: a name")
    if preset not in PRESETS:
        raise unknown_name("preset", preset, PRESETS)
    values: dict[str, Any] = {"task": task}
    _merge(values, PRESETS[preset])
    _merge(values, {"augment": default_augmentation(method)})
    _merge(values, task_defaults(task))
    _merge(values, explicit)
    return from_dict(values)


def task_defaults(task: str) -> dict[str, Any]:
    """What a task decides; a user's own environment has no test modes and no action repeat."""
    if ":" in task:
        return {"action_repeat": 1, "eval_mode": "train"}
    return {"action_repeat": envs.ACTION_REPEAT.get(task, 4)}


def from_dict(values: dict[str, Any]) -> Config:
    """A Config from nested dictionaries, as in config.json; unknown names are refused."""
    return check(_build(Config, values, ""))


def to_dict(config: Config) -> dict[str, Any]:
    """Nested dictionaries, for config.json."""
    return dataclasses.asdict(config)


def differences(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> list[str]:
    """The fields in which two configurations would do different things, as readable lines."""
    lines = []
    for name in sorted(old.keys() | new.keys()):
        path = prefix + name
        before, after = old.get(name), new.get(name)
        if path in HOW_TO_RUN or before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            lines += differences(before, after, f"{path}.")
        else:
            lines.append(f"{path}: {before!r} there, {after!r} here")
    return lines


def seconds(text: str) -> float:
    """A wall time such as 90s, 9m or 1h30m in seconds; ``none`` is infinite.

    >>> seconds("1h30m")
    5400.0
    """
    if text == "none":
        return float("inf")
    parts = re.fullmatch(r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s?)?", text.strip())
    if not text.strip() or not parts:
        raise UserError(f"time_limit is {text!r}; allowed: none, or a time such as 90s, 9m, 1h30m")
    hours, minutes, rest = (int(part or 0) for part in parts.groups())
    return float(hours * 3600 + minutes * 60 + rest)


def check(config: Config) -> Config:
    """Refuse bad values, before any environment or device work; a good configuration comes back."""
    check_types(config)
    check_ranges(config)
    check_names(config)
    seconds(config.time_limit)
    output_size(config.image_size, config.network.layers, config.network.strided_layers)
    streams(METHODS[config.method].recipe_for(config.augment), config.recipe)
    return config


def check_types(options: Any, prefix: str = "") -> None:
    """Every value has its field's type; whole floats pass as floats, never bools as numbers."""
    for name, kind in typing.get_type_hints(type(options)).items():
        value, path = getattr(options, name), prefix + name
        if dataclasses.is_dataclass(kind):
            check_types(value, f"{path}.")
            continue
        choices = typing.get_args(kind) if typing.get_origin(kind) is Literal else None
        if choices is not None:
            if value not in choices:
                raise unknown_name(path, str(value), map(str, choices))
            continue
        good = isinstance(value, int | float) if kind is float else isinstance(value, kind)
        if not good or (isinstance(value, bool) and kind is not bool):
            raise UserError(
                f"{path} is {value!r}, a {type(value).__name__}; allowed: a {kind.__name__}"
            )


def check_ranges(config: Config) -> None:
    """Every number lies where it can mean something."""
    for path, least in _MINIMUM.items():
        value, most = _at(config, path), _MAXIMUM.get(path, _LARGEST)
        if not least <= value <= most:
            raise UserError(f"{path} is {value}; allowed: {least} to {most}")
    if config.warmup < config.envs:
        raise UserError(
            f"warmup is {config.warmup}, but {config.envs} environments decide at once; "
            f"allowed: {config.envs} or more"
        )
    for path in _ABOVE_ZERO:
        if not 0 < _at(config, path) <= _LARGEST:
            raise UserError(f"{path} is {_at(config, path)}; allowed: above 0, to {_LARGEST}")
    for path in ("recipe.alpha", "recipe.beta"):
        if not 0 <= _at(config, path) <= _LARGEST:
            raise UserError(f"{path} is {_at(config, path)}; allowed: 0 to {_LARGEST}")
    if config.recipe.alpha + config.recipe.beta == 0:
        raise UserError("recipe.alpha and recipe.beta are both 0: the Q-function would not learn")
    for path in _UNIT_INTERVAL:
        if not 0 <= _at(config, path) <= 1:
            raise UserError(f"{path} is {_at(config, path)}; allowed: 0 to 1")


def check_names(config: Config) -> None:
    """Task, mode, method and augmentation exist and fit together."""
    from svea.augment import augmentation

    if ":" not in config.task and config.task not in envs.TASKS:
        raise unknown_name("task", config.task, envs.TASKS)
    envs.check_mode(config.eval_mode)
    if config.method not in METHODS:
        raise unknown_name("method", config.method, METHODS)
    augmentation(config.augment)
    row = METHODS[config.method].recipe_for(config.augment)
    mixes = any(isinstance(coefficient, str) for _, coefficient in row.prediction)
    if not mixes and (config.recipe.alpha, config.recipe.beta) != (0.5, 0.5):
        raise UserError(
            f"recipe.alpha and recipe.beta weigh two streams, but method {config.method} has one; "
            "leave them out, or use --method svea"
        )
    if not row.is_strong and config.augment != "none":
        raise UserError(
            f"method {config.method} has no strongly augmented view, but augment is "
            f"{config.augment}; use --augment none, or --method svea (or drq: naive augmentation)"
        )
    if row.is_strong and config.augment == "none":
        raise UserError(
            f"method {config.method} trains on a strongly augmented view, but augment is none; "
            "use --augment conv, or --method drq for no strong augmentation"
        )


def _at(config: Config, path: str) -> Any:
    """A nested value by its dotted name."""
    value: Any = config
    for name in path.split("."):
        value = getattr(value, name)
    return value


def _merge(into: dict[str, Any], values: dict[str, Any]) -> None:
    """Lay values over others; dotted names and dictionaries reach into nested options."""
    if not isinstance(into, dict):
        raise UserError(f"{', '.join(map(repr, values))} cannot be set inside {into!r}")
    for name, value in values.items():
        head, _, rest = name.partition(".")
        if rest:
            _merge(into.setdefault(head, {}), {rest: value})
        elif isinstance(value, dict):
            _merge(into.setdefault(head, {}), value)
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            into[head] = dataclasses.asdict(value)
        else:
            into[head] = value


def _build(kind: type, values: Any, prefix: str) -> Any:
    """A dataclass from nested dictionaries."""
    hints = typing.get_type_hints(kind)
    if not isinstance(values, dict):
        raise UserError(f"{prefix.rstrip('.') or 'config'} is {values!r}; allowed: named values")
    arguments = {}
    for name, value in values.items():
        if name not in hints:
            raise unknown_name("option", prefix + str(name), [prefix + h for h in hints])
        nested = dataclasses.is_dataclass(hints[name])
        arguments[name] = _build(hints[name], value, f"{prefix}{name}.") if nested else value
    missing = [
        f.name
        for f in dataclasses.fields(kind)
        if f.name not in arguments
        and f.default is dataclasses.MISSING
        and isinstance(f.default_factory, type(dataclasses.MISSING))
    ]
    if missing:
        raise UserError(f"config lacks {', '.join(missing)}")
    return kind(**arguments)
