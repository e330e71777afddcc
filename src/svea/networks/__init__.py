"""Encoders and heads."""

from svea.networks.cnn import CNN
from svea.networks.deterministic import DeterministicActor
from svea.networks.discrete import DiscreteCritic, DuelingCritic
from svea.networks.frame_cnn import FrameCNN
from svea.networks.head_cnn import HeadCNN
from svea.networks.heads import Actor, Critic, Projection
from svea.networks.masker import Masker
from svea.networks.trunk import Trunk
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
    "Projection",
    "Trunk",
    "ViT",
]
