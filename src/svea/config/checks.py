"""Refuses configurations that cannot run, before any environment or device work."""

import itertools
import re
import typing
from collections.abc import Callable, Iterator
from typing import Any

from svea.config.modes import ROBOT_TASKS, check_task, check_worlds, expand_modes, is_foreign
from svea.config.names import (
    check_drift,
    encoder_defaults,
    find_method,
    is_whole,
    names_in,
    parse_augmentation,
    split_number,
)
from svea.config.options import check_patches, output_size
from svea.config.parts import OBSERVATIONS
from svea.config.run import Config, fields
from svea.core import files
from svea.core.errors import UserError, unknown_name
from svea.methods import uses_strong
from svea.recipes import OWN

KINDS: dict[type, tuple[str, Callable[[str], Any]]] = {
    bool: ("true or false", lambda text: {"true": True, "false": False}[text.lower()]),
    int: ("a whole number", int),
    float: ("a number", float),
    str: ("text", str),
}
"""What messages call an option's type, and how its value is read from text."""
Rules = Iterator[tuple[object, str, str, str]]
"""Whether an option is wrong, its dotted name, why, and what is allowed."""


def check(config: Config, to_train: bool = True) -> Config:
    """Refuse bad values, before any environment or device work; return a good configuration.

    Where an agent only acts (`to_train` is False), its augmentation may be unknown.
    """
    check_values(config)
    check_names(config, to_train)
    seconds(config.time_limit)
    network = config.network
    if config.encoder == "vit":
        check_patches(config.image_size, network.patch, network.width, network.heads)
    elif not is_whole(config.encoder):
        output_size(config.image_size, network.layers, network.strided_layers)
    values = {option.path: option.value for option in fields(config)}
    rules = itertools.chain(recipe_rules(config), network_rules(config), base_rules(config))
    for wrong, name, why, allowed in rules:
        if wrong:
            raise UserError(f"{name} is {values[name]}, but {why}; allowed: {allowed}")
    return config


def check_values(config: typing.Any) -> None:
    """Every value has its field's type and lies within its bounds; never bools as numbers."""
    for option in fields(config):
        value, kind = option.value, option.type
        if choices := typing.get_args(kind):  # of a Literal
            if value not in choices:
                raise unknown_name(option.path, str(value), map(str, choices))
            continue
        good = isinstance(value, int | float) if kind is float else isinstance(value, kind)
        if not good or (isinstance(value, bool) and kind is not bool):
            given = f"{value!r}, a {type(value).__name__}"
            raise UserError(f"{option.path} is {given}; allowed: {KINDS[kind][0]}")
        if option.bounds:
            option.bounds.check(option.path, value)


def check_names(config: Config, to_train: bool) -> None:
    """Task, mode, method, encoder and augmentation exist."""
    check_task(config.task)
    for name in ("out", "data_dir", "overlay_dir"):
        files.check_path(getattr(config, name), name)
    expand_modes(config.eval_modes, config.task)
    check_worlds(config.train_mode, config.train_vary, config.task)
    encoder_defaults(config.encoder, config.preset)
    find_method(config.method)
    if "crop" in re.split(r"[+|\s]+", config.augment):
        raise UserError(
            f"augment is {config.augment!r}, but a strong view keeps its size and crop cuts it "
            "smaller; leave it out. As the weak augmentation: --crop 16, or --method rad"
        )
    if to_train:
        parse_augmentation(config.augment)
        for name, number in map(split_number, names_in(config.augment)):
            if name == "overlay_drift":
                check_drift(config.image_size, **number)


def recipe_rules(config: Config) -> Rules:
    """Coefficients, recipe and strong augmentation fit together."""
    method, augment, auxiliary = config.method, config.augment, config.auxiliary
    alpha, beta = config.recipe.alpha, config.recipe.beta
    row = find_method(method).recipe_for(augment)
    is_used = uses_strong(row, auxiliary)
    both = "recipe.beta is 0 too, so that Q would not learn"
    yield alpha + beta == 0, "recipe.alpha", both, "one above 0"
    for name, weight in (("recipe.alpha", alpha), ("recipe.beta", beta)):
        one = f"method {method} has one stream, which none is weighed against"
        yield not row.is_mixed and weight != 0.5, name, one, "0.5, or --method svea"
    own = "each stream bootstraps from its own view of the successor"
    yield row.target == OWN and config.recipe.K != 1, "recipe.K", own, "1"
    unseen = f"nothing in method {method} looks at a strongly augmented view"
    cure = "none, or --method svea (or drq: naive augmentation)"
    yield not is_used and augment != "none", "augment", unseen, cure
    seen = f"method {method} trains on a strongly augmented view"
    cure = "conv, for one, or --method drq for no strong augmentation"
    yield row.is_strong and augment == "none", "augment", seen, cure
    seen = f"the auxiliary task {auxiliary} of method {method} looks at a strongly augmented view"
    cure = f"conv or overlay, or --method {auxiliary}, where only the task sees it"
    yield is_used and augment == "none", "augment", seen, cure


def network_rules(config: Config) -> Rules:
    """PAD's own convolutions, and those that see one frame, fit the encoder."""
    encoder, network = config.encoder, config.network
    layers, heads, name = network.layers, network.head_layers, "network.head_layers"
    if is_whole(encoder):
        yield heads, name, f"encoder {encoder} has no convolutions that a task could own", "0"
        return
    together = f"one of {layers} layers, {heads} of them PAD's own, has to see all frames"
    too_many = encoder == "frames" and network.frame_layers + heads >= layers
    yield too_many, "network.frame_layers", together, f"up to {max(0, layers - heads - 1)}"
    shared = f"PAD's task shares at least one of {layers} layers"
    yield heads >= layers, name, shared, f"0 to {layers - 1}"
    plain = f"the {heads} layers of PAD's task have no stride"
    too_many = heads > 0 and network.strided_layers > layers - heads
    yield too_many, "network.strided_layers", plain, f"0 to {layers - heads}"
    others = f"only PAD's task has convolutions of its own and auxiliary is {config.auxiliary}"
    yield heads and config.auxiliary != "pad", name, others, "0, or --auxiliary pad"


def base_rules(config: Config) -> Rules:
    """Lengths, base, actions, auxiliary task and views fit together."""
    task, base, bins, envs = config.task, config.base, config.action_bins, config.envs
    yield config.warmup < envs, "warmup", f"{envs} environments decide at once", f"{envs} or more"
    late = any(not 1 <= decision <= config.decisions for decision in milestones(config.export_at))
    yield late, "export_at", "the run does not reach that", f"1 to {config.decisions:,} decisions"
    repeats = task in ROBOT_TASKS and config.action_repeat != 1
    yield repeats, "action_repeat", f"one decision of {task} is one step of 0.04 s", "1"
    other = config.observation != "pictures" and task not in ROBOT_TASKS
    robots = "only robot tasks have it; an environment of yours shows what it shows"
    yield other, "observation", robots, "pictures"
    is_one = not is_foreign(task) and OBSERVATIONS[config.observation].count == 1
    one = f"an observation of {task} has one picture"
    cure = "no, or --observation pictures+gripper for a robot task"
    yield is_one and config.shared_draws, "shared_draws", one, cure
    yield is_one and config.network.share_encoder, "network.share_encoder", one, cure
    yield bins == 1, "action_bins", "one value leaves nothing to choose", "0, 2 to 4096"
    continuous = f"base {base} has continuous actions"
    yield bins and base != "dqn", "action_bins", continuous, "0 (--action-bins 0), or --base dqn"
    vector = f"it chooses among discrete actions, and {task} has a vector of them"
    cure = "sac, or --action-bins 3 (three values per dimension)"
    yield base == "dqn" and not bins and not is_foreign(task), "base", vector, cure
    consecutive = config.auxiliary == "pad" and config.pad.task == "inverse_dynamics"
    ahead = consecutive and config.options.n_step > 1
    yield ahead, f"{base}.n_step", "PAD predicts the action that leads to the next observation", "1"
    moves = config.method != "sac" and (config.crop or config.shift)
    same = f"method {config.method} with a shift of {config.shift} pixels has one view of a state"
    cure = "another, or a method with two views: curl, or drq"
    yield config.auxiliary == "curl" and not moves, "auxiliary", same, cure


def milestones(text: str) -> list[int]:
    """Decisions at which an agent is exported, in order.

    >>> milestones("250000, 100_000"), milestones("")
    ([100000, 250000], [])
    """
    words = text.replace(",", " ").split()
    if not all(re.fullmatch(r"\d[\d_]{0,17}", word) for word in words):
        raise UserError(
            f"export_at is {text!r}; allowed: decisions such as 100000 or 100000,250000"
        )
    return sorted({int(word.replace("_", "")) for word in words})


def seconds(text: str) -> float:
    """A wall time such as 90s, 9m or 1h30m in seconds; ``none`` is infinite."""
    if text == "none":
        return float("inf")
    parts = re.fullmatch(r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s?)?", text.strip())
    if not text.strip() or not parts:
        raise UserError(f"time_limit is {text!r}; allowed: none, or a time such as 90s, 9m, 1h30m")
    hours, minutes, rest = (int(part or 0) for part in parts.groups())
    return float(hours * 3600 + minutes * 60 + rest)
