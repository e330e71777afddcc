"""Refuses configurations that cannot run, before any environment or device work."""

from __future__ import annotations

import dataclasses
import functools
import re
import typing
from collections.abc import Hashable
from typing import Any, Literal

from svea.config.augmentations import check_drift, drifts, parse_augmentation
from svea.config.modes import expand_modes
from svea.config.names import check_encoder, find_method, is_whole
from svea.config.run import Config
from svea.config.shapes import check_patches, output_size
from svea.config.tasks import ROBOT_TASKS, check_task, is_foreign
from svea.core import files
from svea.core.errors import Bounds, UserError, unknown_name
from svea.methods import uses_strong
from svea.recipes import streams


def check(config: Config, to_train: bool = True) -> Config:
    """Refuse bad values, before any environment or device work; return a good configuration.

    Args:
        config: what to check.
        to_train: False where an agent only acts: its augmentation may then be unknown.
    """
    check_types(config)
    check_ranges(config)
    check_names(config, to_train)
    seconds(config.time_limit)
    check_milestones(config)
    check_networks(config)
    check_combination(config)
    streams(find_method(config.method).recipe_for(config.augment), config.recipe)
    return config


def check_networks(config: Config) -> None:
    """The images fit the encoder."""
    network = config.network
    if config.encoder == "vit":
        check_patches(config.image_size, network.patch, network.width, network.heads)
    if is_whole(config.encoder) and network.head_layers:
        which = "a ViT" if config.encoder == "vit" else "an encoder of your own"
        raise UserError(
            f"network.head_layers is {network.head_layers}, but {which} has no convolutions that "
            f"PAD's task could have for itself; allowed: 0 with --encoder {config.encoder}"
        )
    if is_whole(config.encoder):
        return
    output_size(config.image_size, network.layers, network.strided_layers)
    if config.encoder == "frames" and network.frame_layers + network.head_layers >= network.layers:
        raise UserError(
            f"network.frame_layers is {network.frame_layers} of {network.layers} layers, but at "
            "least one has to see all frames"
            + (f", next to the {network.head_layers} of PAD's task" if network.head_layers else "")
            + f"; allowed: 1 to {network.layers - network.head_layers - 1} of them"
        )
    if network.head_layers >= network.layers:
        raise UserError(
            f"network.head_layers is {network.head_layers} of {network.layers} layers, but PAD's "
            f"task shares at least one; allowed: 0 to {network.layers - 1}"
        )
    shared = network.layers - network.head_layers
    if network.strided_layers > shared and network.head_layers:
        raise UserError(
            f"network.strided_layers is {network.strided_layers}, but of {network.layers} layers "
            f"only the first {shared} are shared, and those of PAD's task have no stride; "
            f"allowed with --network.head-layers {network.head_layers}: 0 to {shared}"
        )
    if network.head_layers and config.auxiliary != "pad":
        raise UserError(
            f"network.head_layers is {network.head_layers}, but only PAD's task has convolutions "
            f"of its own and auxiliary is {config.auxiliary}; allowed: 0, or --auxiliary pad"
        )


def check_combination(config: Config) -> None:
    """Base, auxiliary task and actions fit together."""
    if config.task in ROBOT_TASKS and config.action_repeat != 1:
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
    if discrete and not bins and not is_foreign(config.task):
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
    check_bounds(config)
    if config.warmup < config.envs:
        raise UserError(
            f"warmup is {config.warmup}, but {config.envs} environments decide at once; "
            f"allowed: {config.envs} or more"
        )
    if config.recipe.alpha + config.recipe.beta == 0:
        raise UserError(
            "recipe.alpha and recipe.beta are both 0: the Q-function would not learn; allowed: at "
            "least one above 0"
        )


def check_bounds(options: Any, prefix: str = "") -> None:
    """Every value lies within the bounds that its field names."""
    kind: Any = type(options)
    for name, bounds in bounds_of(kind).items():
        value = getattr(options, name)
        if isinstance(bounds, Bounds):
            bounds.check(prefix + name, value)
        else:
            check_bounds(value, f"{prefix}{name}.")


@functools.cache
def bounds_of(kind: Hashable) -> dict[str, Bounds | None]:
    """The bounds of the fields that have some; None for nested options."""
    found: dict[str, Bounds | None] = {}
    for name, hint in typing.get_type_hints(kind, include_extras=True).items():
        plain, *notes = typing.get_args(hint) if hasattr(hint, "__metadata__") else (hint,)
        if dataclasses.is_dataclass(plain):
            found[name] = None
        for note in notes:
            if isinstance(note, Bounds):
                found[name] = note
    return found


def check_names(config: Config, to_train: bool = True) -> None:
    """Task, mode, method and augmentation exist and fit together."""
    check_task(config.task)
    for name in ("out", "data_dir", "overlay_dir"):
        files.check_path(getattr(config, name), name)
    expand_modes(config.eval_modes, config.task)
    check_encoder(config.encoder)
    if "crop" in re.split(r"[+|\s]+", config.augment):
        raise UserError(
            f"augment is {config.augment!r}, but a strong view keeps the size that the agent sees, "
            "and crop cuts it smaller; leave it out. As the weak augmentation: --crop 16, or "
            "--method rad"
        )
    if to_train:
        parse_augmentation(config.augment)
        for drift in drifts(config.augment):
            check_drift(config.image_size, drift)
    row = find_method(config.method).recipe_for(config.augment)
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
        if row.is_strong:
            raise UserError(
                f"method {config.method} trains on a strongly augmented view, but augment is none; "
                "use --augment conv, or --method drq for no strong augmentation"
            )
        alone = f"--method {config.auxiliary}, where the task alone sees it, or "
        raise UserError(
            f"the auxiliary task {config.auxiliary} of method {config.method} looks at a strongly "
            f"augmented view, but augment is none; use "
            f"{'' if config.method == config.auxiliary else alone}--augment conv or overlay"
        )


def check_milestones(config: Config) -> None:
    """Exports are asked for at decisions that the run makes."""
    for decision in milestones(config.export_at):
        if not 1 <= decision <= config.decisions:
            raise UserError(
                f"export_at has {decision:,}, but the run makes {config.decisions:,} decisions; "
                f"allowed: 1 to {config.decisions:,}"
            )


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
