"""Agents, and how a configuration becomes one."""

from collections.abc import Callable
from functools import cache, partial

import torch

from svea.agents.agent import SAC, Agent
from svea.agents.auxiliary import CURL, PAD, SGQN, SODA, Auxiliary
from svea.agents.bases import DDPG, DQN
from svea.augment import Augment, augmentation
from svea.augment.images import ImageBank
from svea.config import Config
from svea.config.names import find_method, uses_pictures
from svea.config.options import FRAMES
from svea.core.importing import is_import_path
from svea.core.seeds import seed_for
from svea.networks import CNN, FrameCNN, OwnEncoder, Trunk, ViT
from svea.recipes import streams
from svea.replay import Replay
from svea.views import Views

__all__ = ["AUXILIARIES", "BASES", "DDPG", "DQN", "SAC", "Agent", "make_agent", "make_replay"]

BASES: dict[str, type[Agent]] = {"sac": SAC, "ddpg": DDPG, "dqn": DQN}
AUXILIARIES = {"curl": CURL, "soda": SODA, "pad": PAD, "sgqn": SGQN}


def make_agent(
    config: Config,
    actions: int,
    device: torch.device | str = "cpu",
    strong: Augment | None = None,
) -> Agent:
    """The agent that a configuration describes, freshly initialised.

    ``actions`` are the dimensions of the action, or the number of choices for DQN; ``strong`` takes
    the place of the configuration's strong augmentation.
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
    """The empty replay buffer of a run; the seed of its draws is the run's by default."""
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
    if is_import_path(config.encoder):
        return OwnEncoder(config.encoder, config.image_size)
    if config.encoder == "vit":
        names = ("patch", "width", "depth", "heads", "mlp_ratio")
        return ViT(image_size=config.image_size, **{name: getattr(network, name) for name in names})
    sizes = network.layers, network.filters, network.strided_layers
    if config.encoder == "frames":
        return FrameCNN(3 * FRAMES, config.image_size, *sizes, network.frame_layers)
    return CNN(3 * FRAMES, config.image_size, *sizes, config.encoder == "drqv2")


def make_auxiliary(config: Config, agent: Agent) -> Auxiliary:
    """The auxiliary task with its numbers."""
    task: Callable[..., Auxiliary] = AUXILIARIES[config.auxiliary]
    own = {"own_layers": config.network.head_layers} if config.auxiliary == "pad" else {}
    return task(agent, getattr(config, config.auxiliary), **own)
