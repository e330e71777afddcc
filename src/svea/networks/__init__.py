"""Encoders and heads."""

from svea.networks.cnn import CNN
from svea.networks.heads import Actor, Critic, Projection

__all__ = ["CNN", "Actor", "Critic", "Projection"]
