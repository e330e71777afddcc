"""Encoders, and the heads that sit on their features.

>>> import torch
>>> trunk, observations = CNN(), torch.rand(2, 9, 84, 84)
>>> features = trunk(observations)
>>> action, log_probability = Actor(trunk.features, actions=6).sample(features, torch.Generator())
>>> action.shape, log_probability.shape
(torch.Size([2, 6]), torch.Size([2]))
>>> Critic(trunk.features, actions=6)(features, action).shape  # both Q-functions
torch.Size([2, 2])
>>> Projection(trunk.features)(features).shape
torch.Size([2, 100])
"""

from svea.networks.encoders import CNN, Trunk
from svea.networks.heads import Actor, Critic, Projection
from svea.networks.parts import (
    DeterministicActor,
    DiscreteCritic,
    DuelingCritic,
    FrameCNN,
    HeadCNN,
    Masker,
    OwnEncoder,
)
from svea.networks.vit import ViT

__all__ = [
    "CNN",
    "Actor",
    "Critic",
    "DeterministicActor",
    "DiscreteCritic",
    "DuelingCritic",
    "FrameCNN",
    "HeadCNN",
    "Masker",
    "OwnEncoder",
    "Projection",
    "Trunk",
    "ViT",
]
