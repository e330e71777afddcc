"""Encoders and heads."""

from svea.networks.cnn import CNN, HeadCNN
from svea.networks.discrete import DiscreteCritic, DuelingCritic
from svea.networks.heads import Actor, Critic, DeterministicActor, Projection
from svea.networks.trunk import Trunk
from svea.networks.vit import ViT

__all__ = [
    "CNN",
    "Actor",
    "Critic",
    "DeterministicActor",
    "DiscreteCritic",
    "DuelingCritic",
    "HeadCNN",
    "Projection",
    "Trunk",
    "ViT",
]
