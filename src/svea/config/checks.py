"""Refuses configurations that cannot run, before any environment or device work."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator

from svea.config.modes import ROBOT_TASKS, check_task, expand_modes, is_foreign
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
from svea.config.run import Config, fields
from svea.core import files
from svea.core.errors import UserError, unknown_name
from svea.methods import uses_strong
from svea.recipes import streams

KINDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
"""How a user is told what an option may be."""
Rules = Iterator[tuple[object, str]]
"""What must not be, and what a user is told if it is."""


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
    for rules in (length_rules, recipe_rules, network_rules, base_rules):
        for wrong, message in rules(config):
            if wrong:
                raise UserError(message)
    streams(find_method(config.method).recipe_for(config.augment), config.recipe)
    return config


def check_values(config: Config) -> None:
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
            raise UserError(f"{option.path} is {given}; allowed: {KINDS[kind]}")
        if option.bounds:
            option.bounds.check(option.path, value)


def check_names(config: Config, to_train: bool = True) -> None:
    """Task, mode, method, encoder and augmentation exist."""
    check_task(config.task)
    for name in ("out", "data_dir", "overlay_dir"):
        files.check_path(getattr(config, name), name)
    expand_modes(config.eval_modes, config.task)
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


def length_rules(config: Config) -> Rules:
    """The warm-up and the exports fit the run."""
    yield (
        config.warmup < config.envs,
        f"warmup is {config.warmup}, but {config.envs} environments decide at once; allowed: "
        f"{config.envs} or more",
    )
    for decision in milestones(config.export_at):
        yield (
            not 1 <= decision <= config.decisions,
            f"export_at has {decision:,}; allowed: 1 to {config.decisions:,}, the run's decisions",
        )


def recipe_rules(config: Config) -> Rules:
    """Coefficients, recipe and strong augmentation fit together."""
    method, augment, auxiliary = config.method, config.augment, config.auxiliary
    alpha, beta = config.recipe.alpha, config.recipe.beta
    row = find_method(method).recipe_for(augment)
    is_used = uses_strong(row, auxiliary)
    yield (
        alpha + beta == 0,
        "recipe.alpha and recipe.beta are both 0, so that Q would not learn; allowed: one above 0",
    )
    yield (
        not row.is_mixed and (alpha, beta) != (0.5, 0.5),
        f"recipe.alpha and recipe.beta weigh two streams, but method {method} has one; leave them "
        "out, or use --method svea",
    )
    yield (
        not is_used and augment != "none",
        f"nothing in method {method} looks at a strongly augmented view, but augment is {augment}; "
        "use --augment none, or --method svea (or drq: naive augmentation)",
    )
    yield (
        row.is_strong and augment == "none",
        f"method {method} trains on a strongly augmented view, but augment is none; use --augment "
        "conv, or --method drq for no strong augmentation",
    )
    yield (
        is_used and augment == "none",
        f"the auxiliary task {auxiliary} of method {method} looks at a strongly augmented view, "
        "but augment is none; use --augment conv or overlay, "
        f"or --method {auxiliary}, where only the task sees it",
    )


def network_rules(config: Config) -> Rules:
    """PAD's own convolutions, and those that see one frame, fit the encoder."""
    encoder, network = config.encoder, config.network
    layers, heads = network.layers, network.head_layers
    if is_whole(encoder):
        yield (
            heads,
            f"network.head_layers is {heads}, but encoder {encoder} has no convolutions that PAD's "
            "task could have for itself; allowed: 0",
        )
        return
    yield (
        encoder == "frames" and network.frame_layers + heads >= layers,
        f"network.frame_layers is {network.frame_layers} of {layers} layers, {heads} of them for "
        "PAD's task, but at least one has to see all frames; allowed: up to "
        f"{max(0, layers - heads - 1)}",
    )
    yield (
        heads >= layers,
        f"network.head_layers is {heads} of {layers} layers, but PAD's task shares at least one; "
        f"allowed: 0 to {layers - 1}",
    )
    yield (
        heads and network.strided_layers > layers - heads,
        f"network.strided_layers is {network.strided_layers}, but the {heads} layers of PAD's task "
        f"have no stride; allowed: 0 to {layers - heads}",
    )
    yield (
        heads and config.auxiliary != "pad",
        f"network.head_layers is {heads}, but only PAD's task has convolutions of its own and "
        f"auxiliary is {config.auxiliary}; allowed: 0, or --auxiliary pad",
    )


def base_rules(config: Config) -> Rules:
    """Base, actions, auxiliary task and views fit together."""
    task, base, bins = config.task, config.base, config.action_bins
    yield (
        task in ROBOT_TASKS and config.action_repeat != 1,
        f"action_repeat is {config.action_repeat}, but one decision of {task} is one step of "
        "0.04 s; allowed: 1",
    )
    yield bins == 1, "action_bins is 1: one value leaves nothing to choose; allowed: 0, 2 to 4096"
    yield (
        bins and base != "dqn",
        f"action_bins is {bins}, but base {base} has continuous actions; use --base dqn or "
        "--action-bins 0",
    )
    yield (
        base == "dqn" and not bins and not is_foreign(task),
        f"base dqn chooses among discrete actions, but {task} has a vector of them; use "
        "--action-bins 3 (three values per dimension), or --base sac",
    )
    consecutive = config.auxiliary == "pad" and config.pad.task == "inverse_dynamics"
    yield (
        consecutive and config.options.n_step > 1,
        f"PAD predicts the action between two consecutive observations, but {base} looks "
        f"{config.options.n_step} decisions ahead; use --{base}.n-step 1",
    )
    moves = config.method != "sac" and (config.crop or config.shift)
    yield (
        config.auxiliary == "curl" and not moves,
        f"CURL contrasts two different views of a state, but method {config.method} with a shift "
        f"of {config.shift} pixels has one; use --method curl (or drq with --auxiliary curl)",
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
