"""The configuration of a run: one frozen dataclass, resolved once, written to config.json.

Precedence: default < preset < encoder < method < task < explicit flag. The docstring of a field is
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
from svea.agents.auxiliary import CURLOptions, PADOptions, SODAOptions
from svea.agents.ddpg import DDPGOptions
from svea.agents.dqn import DQNOptions
from svea.agents.sac import SACOptions
from svea.errors import UserError, unknown_name
from svea.methods import METHODS, uses_strong
from svea.networks.cnn import output_size
from svea.networks.vit import check_patches
from svea.recipes import RecipeOptions, streams


@dataclass(frozen=True)
class NetworkOptions:
    """Sizes of the networks; the defaults are the paper's."""

    layers: int = 11
    """Convolutions in the CNN."""
    filters: int = 32
    """Filters of each convolution."""
    strided_layers: int = 1
    """How many of the first convolutions have stride 2."""
    head_layers: int = 0
    """How many of the last convolutions each branch has for itself (PAD: 3)."""
    patch: int = 8
    """Height and width of the ViT's patches."""
    width: int = 128
    """Dimensions of the ViT's tokens."""
    depth: int = 4
    """Blocks of the ViT."""
    heads: int = 8
    """Attention heads of the ViT."""
    mlp_ratio: float = 1.0
    """Hidden layer of the ViT's blocks, in units of their width."""
    projection: int = 100
    """Size of the projected features."""
    hidden: int = 1024
    """Width of the policy's and the Q-functions' hidden layers."""


@dataclass(frozen=True)
class Config:
    """Everything that decides what a run does."""

    task: str
    """A dm_control suite task as domain_task, robot_reach, robot_reach_moving or robot_push, or
    module:function of your own environment."""
    method: str = "svea"
    """A method or recipe; `svea methods` lists them."""
    base: Literal["sac", "ddpg", "dqn"] = "sac"
    """The base algorithm; dqn is for discrete actions (see action_bins)."""
    encoder: Literal["cnn", "vit", "drqv2"] = "cnn"
    """The trunk: the paper's CNN or ViT, or DrQ-v2's four convolutions."""
    auxiliary: Literal["none", "curl", "soda", "pad"] = "none"
    """A task beside the Q-loss that shapes the trunk; set by the method."""
    preset: Literal["paper", "quick"] = "paper"
    """paper: the published setting. quick: smaller images and networks, for a CPU."""
    seed: int = 0
    """Seed of everything that is drawn."""
    decisions: int = 500_000
    """Length of the run in decisions (agent steps). A larger number extends a finished run."""
    warmup: int = 1_000
    """Random decisions at the start; after them as many updates are made at once."""
    envs: int = 1
    """Environments that collect in parallel, in other processes; 1 is the paper's schedule."""
    recipe: RecipeOptions = field(default_factory=RecipeOptions)
    """Coefficients and numbers of views."""
    augment: str = "conv"
    """The strong augmentation: a name, a+b in sequence, a|b one per sample, or none."""
    overlay_dir: str = ""
    """Pictures for overlay: a folder, or `procedural`; default: those of data_dir."""
    shift: int = 4
    """Largest random shift of the weak augmentation, in pixels."""
    crop: int = 0
    """If above 0, the weak augmentation is a random crop: this many pixels are rendered more."""
    network: NetworkOptions = field(default_factory=NetworkOptions)
    """Sizes of the networks."""
    sac: SACOptions = field(default_factory=SACOptions)
    """Numbers of SAC."""
    ddpg: DDPGOptions = field(default_factory=DDPGOptions)
    """Numbers of DDPG."""
    dqn: DQNOptions = field(default_factory=DQNOptions)
    """Numbers of DQN."""
    curl: CURLOptions = field(default_factory=CURLOptions)
    """Numbers of CURL."""
    soda: SODAOptions = field(default_factory=SODAOptions)
    """Numbers of SODA."""
    pad: PADOptions = field(default_factory=PADOptions)
    """Numbers of PAD."""
    batch_size: int = 128
    """Transitions per update."""
    replay: int = 500_000
    """Capacity of the replay buffer in decisions."""
    image_size: int = 84
    """Height and width in pixels of what the agent sees."""
    action_bins: int = 0
    """Make actions discrete: this many values per dimension (0: leave them as they are)."""
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
    speed: Literal["auto", "eager", "compiled", "captured"] = "auto"
    """How updates run: as written, compiled (in C on a CPU), or captured in CUDA graphs."""
    deterministic: bool = False
    """On a GPU, updates that repeat bit for bit (on a CPU they always do)."""
    time_limit: str = "none"
    """Save and stop after this wall time, e.g. 90s, 9m, 1h30m; the same command continues."""
    data_dir: str = ""
    """Folder with benchmark data (beats SVEA_DATA)."""
    out: str = ""
    """Folder of the run; default runs/TASK-METHOD-SEED, with base, encoder, preset if unusual."""
    tensorboard: bool = False
    """Also write TensorBoard events into the run folder."""
    wandb: bool = False
    """Also log to Weights & Biases."""

    @property
    def folder(self) -> Path:
        """Where the run lies; the name says what is not the method's usual choice."""
        usual = {"base": "sac", "encoder": "cnn", "preset": "paper"}
        usual["augment"] = METHODS[self.method].augment if self.method in METHODS else "none"
        chosen = [
            getattr(self, name) for name, value in usual.items() if getattr(self, name) != value
        ]
        name = "-".join([self.task, self.method, *chosen, str(self.seed)])
        return Path(self.out or Path("runs") / re.sub(r"[^\w.+-]+", "_", name))

    @property
    def episode_length(self) -> int:
        """Decisions per episode."""
        return -(-self.episode_frames // self.action_repeat)

    @property
    def environment(self) -> dict[str, Any]:
        """The arguments of ``make_env`` in training."""
        shared = ("task", "action_repeat", "episode_frames", "rendering", "action_bins")
        return {name: getattr(self, name) for name in shared} | {
            "image_size": self.rendered_size,
            "data_dir": self.data_dir or None,
        }

    @property
    def rendered_size(self) -> int:
        """Height and width of a stored frame: more than the agent sees where crops are taken."""
        return self.image_size + self.crop

    @property
    def options(self) -> SACOptions | DDPGOptions | DQNOptions:
        """The numbers of the base algorithm that is used."""
        return getattr(self, self.base)


# Fields that say how, where or how long to run, not what: they may change when a run is resumed.
HOW_TO_RUN = {
    "decisions", "eval_envs", "save_every", "device", "speed", "deterministic", "time_limit",
    "data_dir", "out", "tensorboard", "wandb",
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
        "ddpg": {"learning_rate": 1e-3, "noise_decisions": 3_000},
        "dqn": {"learning_rate": 1e-3, "epsilon_decisions": 3_000},
        "eval_every": 1_500,
        "eval_episodes": 6,
        "eval_actions": "sampled",
        "log_every": 500,
        "save_every": 1_500,
    },
}

# What an encoder changes, by preset: everything that the paper changes for its ViT.
ENCODERS: dict[str, dict[str, dict[str, Any]]] = {
    "cnn": {"paper": {}, "quick": {}},
    "vit": {
        "paper": {
            "image_size": 96,
            "shift": 6,
            "batch_size": 512,
            "decisions": 300_000,
            "replay": 300_000,
        },
        "quick": {"network": {"width": 64, "depth": 2, "heads": 4}},
    },
    "drqv2": {"paper": {"network": {"layers": 4}}, "quick": {}},
}
CROP = {"paper": 16, "quick": 8}  # pixels rendered more where the weak augmentation is a crop
OWN_HEADS = {"paper": 3, "quick": 1}  # PAD's convolutions per branch

_MINIMUM = {
    "seed": 0, "decisions": 1, "warmup": 1, "envs": 1, "shift": 0, "batch_size": 1, "replay": 1,
    "image_size": 16, "action_repeat": 1, "episode_frames": 1, "eval_every": 1, "eval_episodes": 1,
    "eval_envs": 0, "log_every": 1, "save_every": 1,
    "network.layers": 1, "network.filters": 1, "network.strided_layers": 0, "network.projection": 1,
    "network.hidden": 1, "network.head_layers": 0, "network.patch": 1, "network.width": 1,
    "network.depth": 1, "network.heads": 1, "recipe.K": 1, "recipe.M": 1, "crop": 0,
    "action_bins": 0, "ddpg.noise_decisions": 0, "dqn.epsilon_decisions": 0, "curl.every": 1,
    "soda.every": 1, "soda.batch_size": 2, "pad.every": 1, "pad.copies": 1,
    **{f"{base}.{name}": 1 for base in ("sac", "ddpg", "dqn")
       for name in ("n_step", "actor_every", "target_every")},
}  # fmt: skip
_ABOVE_ZERO = (
    "sac.temperature_learning_rate", "sac.initial_temperature", "network.mlp_ratio",
    *(f"{part}.learning_rate" for part in ("sac", "ddpg", "dqn", "curl", "soda", "pad")),
)  # fmt: skip
_UNIT_INTERVAL = (
    "sac.temperature_beta1", "soda.tau", "dqn.epsilon_start", "dqn.epsilon_end",
    *(f"{base}.{name}" for base in ("sac", "ddpg", "dqn")
      for name in ("discount", "encoder_tau", "q_tau")),
)  # fmt: skip
_NOT_NEGATIVE = (
    "recipe.alpha", "recipe.beta", "ddpg.noise_start", "ddpg.noise_end", "ddpg.noise_clip",
)  # fmt: skip
_MAXIMUM = {
    "envs": 1024, "eval_envs": 1024, "batch_size": 65_536, "image_size": 1024,
    "action_repeat": 1000, "shift": 1024, "network.layers": 100, "network.filters": 4096,
    "network.projection": 65_536, "network.hidden": 65_536, "recipe.K": 64, "recipe.M": 64,
    "network.head_layers": 99, "network.patch": 1024, "network.width": 65_536,
    "network.depth": 1000, "network.heads": 65_536, "crop": 1024, "action_bins": 4096,
    "soda.batch_size": 65_536, "pad.copies": 65_536, "sac.n_step": 100, "ddpg.n_step": 100,
    "dqn.n_step": 100,
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
    return check(resolve(task, **explicit))


def resolve(task: str, **explicit: Any) -> Config:
    """As `configure`, but not checked as a whole: other flags may have yet to make it fit."""
    preset, encoder = explicit.get("preset", "paper"), explicit.get("encoder", "cnn")
    method = explicit.get("method", "svea")
    names = {"task": task, "preset": preset, "encoder": encoder, "method": method}
    for name, value in names.items():
        if not isinstance(value, str):
            raise UserError(f"{name} is {value!r}; allowed: a name")
    for name, known in (("preset", PRESETS), ("encoder", ENCODERS), ("method", METHODS)):
        if names[name] not in known:
            raise unknown_name(name, names[name], known)
    values: dict[str, Any] = {"task": task}
    _merge(values, PRESETS[preset])
    if explicit.get("base", "sac") != "sac":
        # What these bases add to explore is noise, not a policy's own spread: it says nothing.
        _merge(values, {"eval_actions": "most_likely"})
    _merge(values, ENCODERS[encoder][preset])
    _merge(values, method_defaults(method, preset, encoder))
    _merge(values, task_defaults(task))
    if encoder == "vit":
        _merge(values, vit_coefficients(task, method))
    _merge(values, explicit)
    return _build(Config, values, "")


def method_defaults(method: str, preset: str, encoder: str) -> dict[str, Any]:
    """What a method decides; a ViT is shared whole by all branches."""
    chosen = METHODS[method]
    own_heads = chosen.own_heads and encoder != "vit"
    return {
        "augment": chosen.augment,
        "auxiliary": chosen.auxiliary,
        "crop": CROP[preset] if chosen.crop else 0,
        "network": {"head_layers": OWN_HEADS[preset] if own_heads else 0},
    }


def vit_coefficients(task: str, method: str) -> dict[str, Any]:
    """The paper's alpha and beta for its ViT, where the method mixes two streams."""
    if not METHODS[method].recipe_for(METHODS[method].augment).is_mixed:
        return {}
    alpha, beta = {"walker": (1.0, 1.0), "robot_push": (1.0, 0.5)}.get(
        task if task.startswith("robot") else task.split("_")[0], (0.5, 0.5)
    )
    return {"recipe": {"alpha": alpha, "beta": beta}}


def task_defaults(task: str) -> dict[str, Any]:
    """What a task decides; a user's own environment has no test modes and no action repeat."""
    if envs.is_foreign(task):
        return {"action_repeat": 1, "eval_mode": "train"}
    own: dict[str, Any] = {"episode_frames": envs.EPISODE_FRAMES.get(task, 1_000)}
    if task in envs.ROBOT_TASKS:
        own["eval_mode"] = "test"
    return own | {"action_repeat": envs.ACTION_REPEAT.get(task, 4)}


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
    check_networks(config)
    check_combination(config)
    streams(METHODS[config.method].recipe_for(config.augment), config.recipe)
    return config


def check_networks(config: Config) -> None:
    """The images fit the encoder."""
    network = config.network
    if config.encoder == "vit":
        check_patches(config.image_size, network.patch, network.width, network.heads)
        if network.head_layers:
            raise UserError(
                f"network.head_layers is {network.head_layers}, but a ViT has no convolutions to "
                "give each branch; allowed: 0 with --encoder vit"
            )
        return
    output_size(config.image_size, network.layers, network.strided_layers)
    if network.head_layers >= network.layers:
        raise UserError(
            f"network.head_layers is {network.head_layers} of {network.layers} layers; the trunk "
            f"needs at least one: allowed: 0 to {network.layers - 1}"
        )
    shared = network.layers - network.head_layers
    if network.strided_layers > shared and network.head_layers:
        raise UserError(
            f"network.strided_layers is {network.strided_layers}, but of {network.layers} layers "
            f"only the first {shared} are shared, and those of the branches have no stride; "
            f"allowed with --network.head-layers {network.head_layers}: 0 to {shared}"
        )


def check_combination(config: Config) -> None:
    """Base, auxiliary task and actions fit together."""
    if config.task in envs.ROBOT_TASKS and config.action_repeat != 1:
        raise UserError(
            f"action_repeat is {config.action_repeat}, but one decision of {config.task} is one "
            "step of 0.04 s; allowed: 1"
        )
    bins, discrete = config.action_bins, config.base == "dqn"
    if bins == 1:
        raise UserError(
            "action_bins is 1: one value leaves nothing to choose; allowed: 0, 2 to 4096"
        )
    if bins and not discrete:
        raise UserError(
            f"action_bins is {bins}, but base {config.base} has continuous actions; use --base dqn "
            "or --action-bins 0"
        )
    if discrete and not bins and not envs.is_foreign(config.task):
        raise UserError(
            f"base dqn chooses among discrete actions, but {config.task} has a vector of them; use "
            "--action-bins 3 (three values per dimension), or --base sac"
        )
    inverse_dynamics = config.auxiliary == "pad" and config.pad.task == "inverse_dynamics"
    if inverse_dynamics and config.options.n_step > 1:
        raise UserError(
            f"PAD predicts the action between two consecutive observations, but {config.base} "
            f"looks {config.options.n_step} decisions ahead; use --{config.base}.n-step 1"
        )
    still = config.method == "sac" or not (config.crop or config.shift)
    if config.auxiliary == "curl" and still:
        which = "method sac" if config.method == "sac" else "a shift of 0 pixels"
        raise UserError(
            f"CURL contrasts two different views of a state, but {which} leaves only the stored "
            "one; use --method curl (or drq with --auxiliary curl)"
        )


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
            allowed = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
            raise UserError(
                f"{path} is {value!r}, a {type(value).__name__}; allowed: {allowed[kind]}"
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
    for path in _NOT_NEGATIVE:
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

    if not envs.is_foreign(config.task) and config.task not in envs.TASKS:
        raise unknown_name("task", config.task, envs.TASKS)
    envs.check_mode(config.eval_mode, config.task)
    if config.method not in METHODS:
        raise unknown_name("method", config.method, METHODS)
    if "crop" in re.split(r"[+|\s]+", config.augment):
        raise UserError(
            f"augment is {config.augment!r}, but a strong view keeps the size that the agent sees, "
            "and crop cuts it smaller; leave it out. As the weak augmentation: --crop 16, or "
            "--method rad"
        )
    augmentation(config.augment)
    row = METHODS[config.method].recipe_for(config.augment)
    if not row.is_mixed and (config.recipe.alpha, config.recipe.beta) != (0.5, 0.5):
        raise UserError(
            f"recipe.alpha and recipe.beta weigh two streams, but method {config.method} has one; "
            "leave them out, or use --method svea"
        )
    if not uses_strong(row, config.auxiliary) and config.augment != "none":
        raise UserError(
            f"nothing in method {config.method} looks at a strongly augmented view, but augment is "
            f"{config.augment}; use --augment none, or --method svea (or drq: naive augmentation)"
        )
    if uses_strong(row, config.auxiliary) and config.augment == "none":
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


def _merge(into: Any, values: dict[str, Any], prefix: str = "") -> None:
    """Lay values over others; dotted names and dictionaries reach into nested options."""
    if not isinstance(into, dict):
        given = ", ".join(prefix + name for name in values)
        raise UserError(
            f"{given} cannot be set, because {prefix.rstrip('.')} is {into!r}; allowed there: "
            "named values"
        )
    for name, value in values.items():
        head, _, rest = name.partition(".")
        if rest or isinstance(value, dict):
            inner = {rest: value} if rest else value
            _merge(into.setdefault(head, {}), inner, f"{prefix}{head}.")
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
