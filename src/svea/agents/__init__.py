"""Agents, and how a configuration becomes one."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING

import torch

from svea.agents.agent import Agent
from svea.agents.auxiliary import CURL, PAD, SODA, Auxiliary
from svea.agents.bases import DDPG, DQN
from svea.agents.sac import SAC
from svea.agents.sgqn import SGQN
from svea.augment import Augment, augmentation
from svea.augment.images import ImageBank
from svea.config.names import find_method, is_own_encoder, uses_pictures
from svea.core.seeds import seed_for
from svea.networks import CNN, FrameCNN, OwnEncoder, Trunk, ViT
from svea.recipes import streams
from svea.replay import Replay
from svea.views import Views

if TYPE_CHECKING:
    from svea.config import Config

__all__ = ["AUXILIARIES", "BASES", "DDPG", "DQN", "SAC", "Agent", "make_agent", "make_replay"]

BASES: dict[str, type[Agent]] = {"sac": SAC, "ddpg": DDPG, "dqn": DQN}
AUXILIARIES: dict[str, Callable[..., Auxiliary]] = {
    "curl": CURL,
    "soda": SODA,
    "pad": PAD,
    "sgqn": SGQN,
}


def make_agent(
    config: Config,
    actions: int,
    device: torch.device | str = "cpu",
    strong: Augment | None = None,
) -> Agent:
    """The agent that a configuration describes, freshly initialised.

    Args:
        config: what to make.
        actions: dimensions of the action, or the number of choices for DQN.
        device: where it computes.
        strong: takes the place of the configuration's strong augmentation.
    """
    pictures = pictures_of(config, device)
    views = Views.of(config, strong or augmentation(config.augment, pictures))
    agent = BASES[config.base](
        partial(make_encoder, config),
        actions,
        streams(find_method(config.method).recipe_for(config.augment), config.recipe),
        views,
        projection=config.network.projection,
        hidden=config.network.hidden,
        options=config.options,
        masker=config.madi if config.mask == "madi" else None,
        make_auxiliary=partial(make_auxiliary, config) if config.auxiliary != "none" else None,
        device=device,
        seed=config.seed,
    )
    agent.pictures = None
    if strong is None and uses_pictures(config.augment):
        agent.pictures = pictures().record
    return agent


def pictures_of(config: Config, device: torch.device | str = "cpu") -> Callable[[], ImageBank]:
    """What finds the pictures that a configuration mixes in, once: reading them takes time."""
    folders = config.overlay_dir or None, config.data_dir or None
    return cache(lambda: ImageBank.find(*folders, device))


def make_replay(
    config: Config, actions: int, device: torch.device | str = "cpu", seed: int | None = None
) -> Replay:
    """The empty replay buffer of a run.

    Args:
        config: of the run.
        actions: dimensions of a stored action.
        device: where it lies.
        seed: of the batches to be drawn; default: the run's.
    """
    return Replay(
        config.replay_capacity,
        config.rendered_size,
        actions,
        config.envs,
        config.episode_length,
        device,
        seed_for(config.seed, "replay") if seed is None else seed,
        discount=config.options.discount,
        n_step=config.options.n_step,
    )


def make_encoder(config: Config) -> Trunk:
    """The trunk."""
    network = config.network
    if is_own_encoder(config.encoder):
        return OwnEncoder(config.encoder, config.image_size)
    if config.encoder == "vit":
        return ViT(
            image_size=config.image_size,
            patch=network.patch,
            width=network.width,
            depth=network.depth,
            heads=network.heads,
            mlp_ratio=network.mlp_ratio,
        )
    sizes: dict[str, int] = {
        "image_size": config.image_size,
        "layers": network.layers,
        "filters": network.filters,
        "strided_layers": network.strided_layers,
    }
    if config.encoder == "frames":
        return FrameCNN(**sizes, frame_layers=network.frame_layers)
    return CNN(**sizes, drqv2=config.encoder == "drqv2")


def make_auxiliary(config: Config, agent: Agent) -> Auxiliary:
    """The auxiliary task with its numbers."""
    own = {"own_layers": config.network.head_layers} if config.auxiliary == "pad" else {}
    return AUXILIARIES[config.auxiliary](agent, getattr(config, config.auxiliary), **own)
