"""The configuration of a run: one frozen dataclass, resolved once, written to config.json.

The docstring of a field is its ``--help`` text; its bounds and its role stand in its type. Every
loop over a configuration is a loop over `fields`.
"""

import dataclasses
import enum
import functools
import typing
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from svea.config.factors import parse_ranges
from svea.config.modes import expand_modes
from svea.config.names import spelled
from svea.config.options import (
    CURLOptions,
    DDPGOptions,
    DQNOptions,
    MaDiOptions,
    NetworkOptions,
    PADOptions,
    SACOptions,
    SGQNOptions,
    SODAOptions,
)
from svea.core.errors import Bounds, UserError, at_least, between
from svea.recipes import RecipeOptions


class Role(enum.Enum):
    """What a field decides, and so whether it may change when a run is resumed."""

    WHAT = "what is learned, and how it is judged"
    SEED = "which of several equal runs this is"
    WATCH = "how often a run is looked at; may change when it is resumed: each evaluation says how"
    LENGTH = "how long to run; a resumed run may be longer"
    HOW = "how to run: time and machine, not results; may change when a run is resumed"
    WHERE = "where files lie; may change when a run is resumed"


class Field(NamedTuple):
    """An option of a configuration."""

    path: str  # its dotted name, such as `sac.learning_rate`
    type: Any  # int, float, bool, str, or a Literal
    bounds: Bounds | None
    role: Role  # its own, or that of the group it is in
    value: Any


def fields(options: Any, group: str = "", role: Role = Role.WHAT) -> Iterator[Field]:
    """Every option of a configuration, those of its groups too."""
    made_of: Any = type(options)
    for name, (kind, bounds, own) in _declared(made_of).items():
        value = getattr(options, name)
        if dataclasses.is_dataclass(kind):
            yield from fields(value, f"{name}.", own or role)
        else:
            yield Field(group + name, kind, bounds, own or role, value)


@functools.cache
def _declared(kind: Hashable) -> dict[str, tuple[Any, Bounds | None, Role | None]]:
    """The type of each field of a class, with the bounds and the role that stand next to it."""
    found = {}
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        plain, *notes = typing.get_args(hint) if hasattr(hint, "__metadata__") else (hint,)
        by_kind = {type(note): note for note in notes}
        found[name] = plain, by_kind.get(Bounds), by_kind.get(Role)
    return found


def flat(values: Any, group: str = "") -> dict[str, Any]:
    """Nested values by their dotted names.

    >>> flat({"recipe": {"K": 2}, "recipe.M": 3, "eval-every": 5})
    {'recipe.K': 2, 'recipe.M': 3, 'eval_every': 5}
    """
    if not isinstance(values, dict):
        raise UserError(f"options are {values!r}; allowed: named values")
    if group.count(".") > 2:  # a dictionary that holds itself, perhaps
        raise UserError(f"{group[:40]}... is nested too deeply; allowed: e.g. sac.learning_rate")
    found: dict[str, Any] = {}
    for name, value in values.items():
        path = group + str(name).replace("-", "_")
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            value = dataclasses.asdict(value)
        found |= flat(value, f"{path}.") if isinstance(value, dict) and value else {path: value}
    return found


WHAT, SEED, WATCH, LENGTH, HOW, WHERE = Role


@dataclass(frozen=True)
class Config:
    """Everything that decides what a run does.

    `configure` makes one from a preset, a method and a task, and checks it; here the defaults are
    the paper's for most tasks.

    Example:
        >>> config = Config("walker_walk", crop=16)
        >>> config.episode_length, config.rendered_size
        (250, 100)
    """

    task: Annotated[str, WHAT]
    """A dm_control suite task as domain_task, robot_reach, robot_reach_moving or robot_push; or an
    environment of your own: module:function, or a Gymnasium id as gymnasium:CarRacing-v3."""
    method: Annotated[str, WHAT] = "svea"
    """A method or recipe; `svea methods` lists them. One of your own: module:name."""
    base: Annotated[Literal["sac", "ddpg", "dqn"], WHAT] = "sac"
    """The base algorithm; dqn is for discrete actions (see action_bins)."""
    encoder: Annotated[str, WHAT] = "cnn"
    """The trunk: cnn or vit (the paper's), drqv2 (DrQ-v2's four convolutions), or frames (SimGRL's,
    whose first layers see each frame by itself). One of your own: module:class."""
    auxiliary: Annotated[Literal["none", "curl", "soda", "pad", "sgqn"], WHAT] = "none"
    """An auxiliary loss that also trains the trunk; set by the method."""
    mask: Annotated[Literal["none", "madi"], WHAT] = "none"
    """What covers pixels before the encoder sees them: nothing, or MaDi's learned masker; set by
    the method."""
    preset: Annotated[Literal["paper", "quick"], WHAT] = "paper"
    """paper: the published setting. quick: smaller images and networks, for a CPU."""
    seed: Annotated[int, at_least(0), SEED] = 0
    """Seed of all random draws."""
    decisions: Annotated[int, at_least(1), LENGTH] = 500_000
    """Length of the run in decisions (agent steps). A larger number extends a finished run."""
    warmup: Annotated[int, at_least(1), WHAT] = 1_000
    """Random decisions at the start, followed by the same number of updates."""
    envs: Annotated[int, between(1, 1024), WHAT] = 1
    """Environments that collect in parallel, in processes of their own; the paper uses 1."""
    recipe: Annotated[RecipeOptions, WHAT] = field(default_factory=RecipeOptions)
    """Coefficients and numbers of views."""
    augment: Annotated[str, WHAT] = "conv"
    """The strong augmentation: a name, a+b in sequence, a|b one per sample, or none; a name may be
    module:name of your own, or have a number (overlay_drift:12)."""
    overlay_dir: Annotated[str, WHAT] = ""
    """Pictures for overlay: a folder, or `procedural`; default: those of data_dir."""
    shift: Annotated[int, between(0, 1024), WHAT] = 4
    """Largest random shift of the weak augmentation, in pixels."""
    crop: Annotated[int, between(0, 1024), WHAT] = 0
    """If above 0, the weak augmentation is a random crop: frames are rendered this much larger."""
    shared_draws: Annotated[bool, WHAT] = False
    """Let both pictures of an observation have the same draw of an augmentation. By default each
    has its own: two cameras rarely shake, or get another light, together."""
    network: Annotated[NetworkOptions, WHAT] = field(default_factory=NetworkOptions)
    """Sizes of the networks."""
    sac: Annotated[SACOptions, WHAT] = field(default_factory=SACOptions)
    """Hyperparameters of SAC."""
    ddpg: Annotated[DDPGOptions, WHAT] = field(default_factory=DDPGOptions)
    """Hyperparameters of DDPG."""
    dqn: Annotated[DQNOptions, WHAT] = field(default_factory=DQNOptions)
    """Hyperparameters of DQN."""
    madi: Annotated[MaDiOptions, WHAT] = field(default_factory=MaDiOptions)
    """Hyperparameters of MaDi's masker."""
    curl: Annotated[CURLOptions, WHAT] = field(default_factory=CURLOptions)
    """Hyperparameters of CURL."""
    soda: Annotated[SODAOptions, WHAT] = field(default_factory=SODAOptions)
    """Hyperparameters of SODA."""
    pad: Annotated[PADOptions, WHAT] = field(default_factory=PADOptions)
    """Hyperparameters of PAD."""
    sgqn: Annotated[SGQNOptions, WHAT] = field(default_factory=SGQNOptions)
    """Hyperparameters of SGQN."""
    batch_size: Annotated[int, between(1, 65_536), WHAT] = 128
    """Transitions per update."""
    replay: Annotated[int, at_least(1), WHAT] = 500_000
    """Capacity of the replay buffer in decisions."""
    image_size: Annotated[int, between(16, 1024), WHAT] = 84
    """Height and width in pixels of what the agent sees."""
    observation: Annotated[
        Literal["pictures", "pictures+joints", "pictures+gripper", "pictures+gripper+joints"],
        WHAT,
    ] = "pictures"
    """What a robot task shows: only the paper's pictures, with the angles and velocities of the
    joints, with those of a second camera at the gripper, or with both."""
    action_bins: Annotated[int, between(0, 4096), WHAT] = 0
    """Make actions discrete: this many values per dimension (0: leave them as they are)."""
    action_repeat: Annotated[int, between(1, 1000), WHAT] = 4
    """Simulator steps per decision; set by the task (finger 2, cartpole 8, others 4)."""
    episode_frames: Annotated[int, at_least(1), WHAT] = 1_000
    """Simulator steps per episode."""
    rendering: Annotated[Literal["full", "fast"], WHAT] = "full"
    """full: shadows, reflections, antialiasing. fast: none of them, many times faster on a CPU."""
    renderer: Annotated[Literal["auto", "raster", "opengl"], HOW] = "auto"
    """Who draws: raster, a program of our own, for all that it can draw; opengl, MuJoCo; auto, the
    first wherever there is a C compiler. Decided once: the run and its evaluations keep it."""
    eval_every: Annotated[int, at_least(0), WATCH] = 10_000
    """Decisions between evaluations; 0: none, not even at the end, and `svea eval` plays later."""
    eval_episodes: Annotated[int, at_least(1), WATCH] = 30
    """Episodes per mode and evaluation."""
    eval_first: Annotated[bool, WATCH] = True
    """Also evaluate before the first decision, which costs a run its first seconds."""
    eval_mode: Annotated[str, WHAT] = "color_hard"
    """The test mode to evaluate in, in addition to train; several with commas between them, or a
    group such as colors. Each takes the time of an evaluation."""
    eval_actions: Annotated[Literal["most_likely", "sampled"], WHAT] = "most_likely"
    """What evaluations take: the policy's most likely action (as in the paper) or a sample."""
    train_mode: Annotated[str, WHAT] = "train"
    """The world to train in: a mode, or several with shares, of which each episode shows one, e.g.
    train:0.7,color_easy:0.3. Results say that such an agent has seen these worlds."""
    train_vary: Annotated[str, WHAT] = ""
    """Factors that each episode of training draws from a range, e.g.
    light.strength=0.3..1.5,camera.roll=-10..10; `svea tasks` lists factors."""
    step_timeout: Annotated[float, at_least(0), HOW] = 30.0
    """Seconds that an environment may take for a decision, before its process is killed and its
    episode played again; 0: any time, the default for your own environment."""
    eval_envs: Annotated[int, between(0, 1024), HOW] = 0
    """Environments that evaluate in parallel; 0: one per core, at most 16."""
    log_every: Annotated[int, at_least(1), WATCH] = 1_000
    """Decisions between log lines."""
    save_every: Annotated[int, at_least(1), HOW] = 10_000
    """Decisions between checkpoints."""
    save_replay: Annotated[bool, HOW] = True
    """Keep the replay in checkpoints. Without it saving takes no time and hardly any disk, and a
    run that is stopped cannot be continued."""
    device: Annotated[Literal["auto", "cuda", "mps", "cpu"], HOW] = "auto"
    """The device to learn on."""
    precision: Annotated[Literal["auto", "float32", "float32-exact", "bfloat16"], WHAT] = "auto"
    """auto: bfloat16 on GPUs that multiply it natively, float32 elsewhere, as always on a CPU. On
    GPUs from Ampere on, float32 multiplies in TF32 (10-bit mantissas), float32-exact never does."""
    speed: Annotated[Literal["auto", "eager", "compiled", "captured"], HOW] = "auto"
    """How updates run: as written, compiled (in C on a CPU), or captured in CUDA graphs."""
    deterministic: Annotated[bool, HOW] = False
    """Make GPU updates repeatable bit for bit (CPU updates always are)."""
    time_limit: Annotated[str, HOW] = "none"
    """Save and stop after this wall time, e.g. 90s, 9m, 1h30m; the same command continues."""
    export_at: Annotated[str, HOW] = ""
    """Keep the agent as it is after this many decisions, e.g. 100000 or 100000,250000, in
    RUN/exports; the run continues."""
    data_dir: Annotated[str, WHERE] = ""
    """Folder with benchmark data; overrides SVEA_DATA."""
    out: Annotated[str, WHERE] = ""
    """Folder of the run; default runs/TASK-METHOD-SEED, with every option that is not a default."""
    tensorboard: Annotated[bool, WHERE] = False
    """Also write TensorBoard events into the run folder."""
    wandb: Annotated[bool, WHERE] = False
    """Also log to Weights & Biases."""
    wandb_project: Annotated[str, WHERE] = ""
    """The project there; given, it turns --wandb on. Default: WANDB_PROJECT, or svea."""

    def __post_init__(self) -> None:
        """One setting has one spelling, however it was typed or stored."""
        if isinstance(self.augment, str):  # else the checks say what is wrong
            object.__setattr__(self, "augment", spelled(self.augment))

    @property
    def folder(self) -> Path:
        """The run's folder; its default name includes what differs from the defaults."""
        from svea.config.presets import run_name  # it compares with presets, which are made of this

        return Path(self.out or Path("runs") / run_name(self))

    @property
    def episode_length(self) -> int:
        """Decisions per episode."""
        return -(-self.episode_frames // self.action_repeat)

    @property
    def environment(self) -> dict[str, Any]:
        """The arguments of ``make_env`` for the training world, the same for every agent."""
        shared = (
            "task", "action_repeat", "episode_frames", "rendering", "renderer", "action_bins",
            "observation",
        )  # fmt: skip
        return {name: getattr(self, name) for name in shared} | {
            "image_size": self.rendered_size,
            "data_dir": self.data_dir or None,
        }

    @property
    def training_environment(self) -> dict[str, Any]:
        """The arguments of ``make_env`` for the worlds that this run trains in."""
        mode = {} if self.train_mode == "train" else {"mode": self.train_mode}
        ranges = parse_ranges(self.train_vary)
        return self.environment | mode | ({"variation": ranges} if ranges else {})

    def environment_in(
        self, mode: str, data_dir: str | None = None, task: str = ""
    ) -> dict[str, Any]:
        """The arguments of ``make_env`` in a mode, perhaps with other data or another task."""
        chosen = self.environment | {"mode": mode} | ({"task": task} if task else {})
        return chosen | {"data_dir": data_dir} if data_dir else chosen

    @property
    def eval_modes(self) -> tuple[str, ...]:
        """Train and the test modes of ``eval_mode``, spelled out for the task."""
        named = [name.strip() for name in self.eval_mode.split(",")]
        return tuple(dict.fromkeys(("train", *expand_modes(named, self.task))))

    @property
    def rendered_size(self) -> int:
        """Height and width of a stored frame: larger than what the agent sees if it sees crops."""
        return self.image_size + self.crop

    @property
    def replay_capacity(self) -> int:
        """Decisions that the replay holds: never more than the run makes.

        Environments decide together, so a run may end a few decisions late; all are remembered.
        """
        return min(self.replay, -(-self.decisions // self.envs) * self.envs)

    @property
    def options(self) -> SACOptions | DDPGOptions | DQNOptions:
        """The hyperparameters of the base algorithm in use."""
        return getattr(self, self.base)


def fields_with(*roles: Role) -> frozenset[str]:
    """Names of the fields that have one of these roles."""
    return frozenset(
        option.path.partition(".")[0] for option in fields(Config("")) if option.role in roles
    )


MAY_CHANGE = fields_with(Role.WATCH, Role.LENGTH, Role.HOW, Role.WHERE)
"""Fields that may change when a run is resumed: how, where and how long to run, how often to look.
What is learned stays the same, and every evaluation records its own episodes."""
