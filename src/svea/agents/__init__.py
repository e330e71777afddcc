"""Agents, and how a configuration becomes one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from svea.agents.sac import SAC, SACOptions
from svea.augment import augmentation, shift
from svea.images import ImageBank
from svea.methods import METHODS
from svea.networks import CNN
from svea.recipes import streams

if TYPE_CHECKING:
    from svea.config import Config

__all__ = ["SAC", "SACOptions", "make_agent"]


def make_agent(config: Config, actions: int, device: torch.device | str = "cpu") -> SAC:
    """The agent that a configuration describes, freshly initialised."""
    recipe = METHODS[config.method].recipe_for(config.augment)
    network = config.network
    strong = augmentation(
        config.augment,
        lambda: ImageBank.find(config.overlay_dir or None, config.data_dir or None, device),
    )
    return SAC(
        partial(
            CNN,
            image_size=config.image_size,
            layers=network.layers,
            filters=network.filters,
            strided_layers=network.strided_layers,
        ),
        actions,
        streams(recipe, config.recipe),
        weak=lambda images, generator: shift(images, generator=generator, pad=config.shift),
        strong=lambda images, generator: strong(images, generator=generator),
        projection=network.projection,
        hidden=network.hidden,
        options=config.sac,
        device=device,
        seed=config.seed,
    )
