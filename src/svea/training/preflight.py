"""Checks before the first decision: does the run fit into memory, onto the disk, into a day?"""

import time
from collections.abc import Callable

import torch

from svea.agents import make_encoder
from svea.agents.agent import Agent
from svea.config import Config
from svea.config.names import find_method
from svea.core import files, machine
from svea.core.errors import UserError
from svea.core.machine import usable_cores
from svea.core.words import duration, plural
from svea.envs.workers.pool import Workers
from svea.networks import Masker
from svea.recipes import streams
from svea.runs import layout
from svea.speed import EXACT, choose_speed
from svea.speed.accelerate import compute_in_c

GPU_SHARE = 0.8  # of a GPU's free memory that the replay may take
SLOW_SECONDS = 6 * 3600.0  # a run without a GPU that takes longer is announced with a warning
TIMED_IMAGES = 32  # a quarter of a batch: enough for several threads, less than one update


def check_actions(config: Config, environments: Workers) -> None:
    """The base algorithm fits the environment's actions."""
    choices, size, base = environments.choices, environments.action_size, config.base
    if choices and base != "dqn":
        raise UserError(
            f"{config.task} has {choices} discrete actions, but base {base} takes a vector; "
            "use --base dqn"
        )
    if not choices and base == "dqn":
        raise UserError(
            f"base dqn chooses among discrete actions, but {config.task} has a vector of {size}; "
            "use --action-bins 3, or --base sac"
        )


def replay_device(
    config: Config,
    needed: int,
    device: torch.device,
    runs_in_process: int,
    say: Callable[[str], None],
) -> torch.device:
    """The learner's device if the replay's bytes fit there, else the host if they do."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)  # without what other runs here have taken
        if needed < GPU_SHARE * free:
            return device
        say(
            f"replay: {needed / 1e9:.2f} GB do not fit into the GPU's free {free / 1e9:.2f} GB; "
            "it stays in main memory"
        )
    # The system counts memory when it is written to, so the runs' needs are added up here.
    several = f"{runs_in_process} times " if runs_in_process > 1 else ""
    machine.require(
        needed * runs_in_process,
        machine.available_bytes(),
        f"{several}the replay buffer of {config.replay_capacity:,} decisions",
        "Use a smaller --replay, fewer --decisions, a smaller --image-size"
        + (" or fewer runs in one process (--seeds, --together)" if several else ""),
    )
    return torch.device("cpu")


def check_disk(config: Config, agent: Agent, replay: int, runs_in_process: int) -> None:
    """Refuse a run that the disk has no room for; what is there already is not needed again."""
    moments = sum(  # Adam has two per weight
        2 * p.nbytes for o in agent.optimisers.values() for p in o.param_groups[0]["params"]
    )
    weights = sum(tensor.nbytes for tensor in agent.learned().values())
    needed = layout.folder_bytes(config, replay, weights + moments)
    for part in (layout.REPLAY, layout.CHECKPOINTS):
        needed -= files.size_of(config.folder / part)
    purpose = "this run" if runs_in_process == 1 else f"{runs_in_process} runs like this"
    files.require_space(config.folder, needed * runs_in_process, purpose)


def slow_warning(config: Config, device: torch.device, decisions: int) -> str:
    """A line about decisions that take many hours without a GPU; empty otherwise."""
    if device.type == "cuda":
        return ""
    each = update_seconds(config, device)
    if decisions * each < SLOW_SECONDS:
        return ""
    cure = "use --preset quick, fewer --decisions, or a GPU"
    return (
        f"warning: about {duration(decisions * each)} on this machine "
        f"({plural(usable_cores(), 'core')}, no NVIDIA GPU; {decisions:,} updates of about "
        f"{each:.2g} s each); {cure}"
    )


def update_seconds(config: Config, device: torch.device) -> float:
    """About how long an update takes, from one pass through a trunk like the agent's.

    A trunk, with a masker before it if there is one, takes nearly all of an update's time. The
    Q-loss goes through it forwards and backwards, once for each of its views; the target's and the
    policy's views go forwards only, a third of that.
    """
    with torch.random.fork_rng(devices=[]):  # the run's draws do not depend on this trunk's
        trunk = make_encoder(config).to(device)
        masker = Masker(config.madi.filters).to(device) if config.mask == "madi" else None
    if device.type == "cpu" and choose_speed(config.speed, device) == "compiled":
        compute_in_c([trunk])
    images = torch.zeros(TIMED_IMAGES, *trunk.input_shape, device=device)
    timed = []
    for _ in range(3):  # the shortest: the first sets up libraries, and others may be disturbed
        began = time.perf_counter()
        features = trunk(images if masker is None else masker(images))
        features.sum().backward()
        timed.append(time.perf_counter() - began)
    views = streams(find_method(config.method).recipe_for(config.augment), config.recipe)
    passes = len(views.prediction) + (len(views.target) + len(views.policy_views)) / 3
    return min(timed) * passes * config.batch_size / TIMED_IMAGES


def announcement(
    config: Config, device: torch.device, precision: torch.dtype, speed: str, replay: int
) -> str:
    """What is about to happen, in numbers, before it happens."""
    mask = "" if config.mask == "none" else f", mask {config.mask}"
    computed_in = EXACT if config.precision == EXACT else str(precision).removeprefix("torch.")
    frames = config.decisions * config.action_repeat
    return (
        f"{config.task}, {config.method} on {config.base} with {config.encoder} (augment "
        f"{config.augment}{mask}), seed {config.seed}, preset {config.preset}: "
        f"{config.decisions:,} decisions = {frames:,} frames, "
        f"{plural(config.envs, 'environment')}, {device.type} in {computed_in}, {speed}\n"
        f"run folder {config.folder}; replay {replay / 1e9:.2f} GB for "
        f"{config.replay_capacity:,} decisions, in memory"
        + (" and in the folder" if config.save_replay else " alone (--no-save-replay)")
    )
