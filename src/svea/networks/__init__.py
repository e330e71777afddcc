"""Encoders and heads."""

from svea.networks.cnn import CNN, HeadCNN
from svea.networks.heads import (
    Actor,
    Critic,
    DeterministicActor,
    DiscreteCritic,
    DuelingCritic,
    Projection,
)
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
    "ViT",
]
