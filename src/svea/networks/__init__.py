"""Encoders, and the heads that sit on their features; every size has the paper's default.

>>> import torch
>>> trunk, observations = CNN(), torch.rand(2, 9, 84, 84)
>>> trunk(observations).shape == FrameCNN()(observations).shape == (2, trunk.features)
True
>>> features = trunk(observations)
>>> action, log_probability = Actor(trunk.features, actions=6).sample(features, torch.Generator())
>>> action.shape, log_probability.shape
(torch.Size([2, 6]), torch.Size([2]))
>>> Critic(trunk.features, actions=6)(features, action).shape  # both Q-functions
torch.Size([2, 2])
>>> DeterministicActor(trunk.features, actions=6)(features).shape
torch.Size([2, 6])
>>> DiscreteCritic(trunk.features, actions=5)(features).shape  # the Q-value of each choice
torch.Size([2, 5])
>>> Projection(trunk.features)(features).shape
torch.Size([2, 100])
>>> Masker()(observations).shape
torch.Size([2, 9, 84, 84])
>>> ViT()(torch.rand(2, 9, 96, 96)).shape
torch.Size([2, 128])
>>> shared = CNN(layers=8)  # of 11: the others are someone's own
>>> HeadCNN(shared.maps, layers=3)(shared(observations)).shape == features.shape
True
"""

# ruff: noqa: F401
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
