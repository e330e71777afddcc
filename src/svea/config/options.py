"""Hyperparameters of networks, bases and auxiliary tasks, and sizes that follow from them.

The docstring of a field is its ``--help`` text; its bounds stand in its type.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from svea.core.errors import UserError, above, at_least, between

Positive = Annotated[float, above(0)]
Share = Annotated[float, between(0, 1)]
Every = Annotated[int, at_least(1)]  # of updates: every n-th


@dataclass(frozen=True)
class NetworkOptions:
    """Sizes of the networks; the defaults are the paper's."""

    layers: Annotated[int, between(1, 100)] = 11
    """Convolutions in the CNN."""
    filters: Annotated[int, between(1, 4096)] = 32
    """Filters of each convolution."""
    strided_layers: Annotated[int, at_least(0)] = 1
    """How many convolutions, from the first, have stride 2."""
    frame_layers: Annotated[int, between(1, 99)] = 3
    """How many convolutions, from the first, see one frame at a time (encoder frames)."""
    head_layers: Annotated[int, between(0, 99)] = 0
    """How many of the last convolutions PAD's task has for itself (with PAD: 3)."""
    patch: Annotated[int, between(1, 1024)] = 8
    """Height and width of the ViT's patches."""
    width: Annotated[int, between(1, 65_536)] = 128
    """Dimensions of the ViT's tokens."""
    depth: Annotated[int, between(1, 1000)] = 4
    """Blocks of the ViT."""
    heads: Annotated[int, between(1, 65_536)] = 8
    """Attention heads of the ViT."""
    mlp_ratio: Positive = 1.0
    """Hidden layer of the ViT's blocks, in units of their width."""
    projection: Annotated[int, between(1, 65_536)] = 100
    """Size of the projected features."""
    hidden: Annotated[int, between(1, 65_536)] = 1024
    """Width of the policy's and the Q-functions' hidden layers."""
    share_encoder: bool = False
    """One encoder for both pictures of an observation, not one for each: half of the weights, but
    two cameras see different things."""


@dataclass(frozen=True)
class AgentOptions:
    """Hyperparameters that every base algorithm has."""

    discount: Share = 0.99
    """Discount per decision."""
    n_step: Annotated[int, between(1, 100)] = 1
    """Decisions of reward before the target bootstraps."""
    learning_rate: Positive = 1e-3
    """Adam's learning rate for encoder, Q-functions and policy."""
    encoder_tau: Share = 0.05
    """How fast the target's encoder and projection follow; 1: it has no encoder of its own."""
    q_tau: Share = 0.01
    """How fast the target's Q-functions follow."""
    actor_every: Every = 2
    """The policy is updated in every n-th update."""
    target_every: Every = 2
    """The target network is updated in every n-th update."""


@dataclass(frozen=True)
class SACOptions(AgentOptions):
    """Hyperparameters of SAC; the defaults are the reference's."""

    temperature_learning_rate: Positive = 1e-4
    """Adam's learning rate for the entropy temperature."""
    temperature_beta1: Share = 0.5
    """Adam's first-moment decay for the temperature."""
    initial_temperature: Positive = 0.1
    """Entropy temperature at the start."""


@dataclass(frozen=True)
class DDPGOptions(AgentOptions):
    """Hyperparameters of DDPG; the defaults are DrQ-v2's."""

    n_step: Annotated[int, between(1, 100)] = 3
    learning_rate: Positive = 1e-4
    encoder_tau: Share = 1.0
    actor_every: Every = 1
    target_every: Every = 1
    noise_start: Annotated[float, at_least(0)] = 1.0
    """Standard deviation of the exploration noise at the start."""
    noise_end: Annotated[float, at_least(0)] = 0.1
    """Standard deviation of the exploration noise at the end."""
    noise_decisions: Annotated[int, at_least(0)] = 500_000
    """Decisions over which the noise falls linearly (DrQ-v2: 100k easy, 500k medium tasks)."""
    noise_clip: Annotated[float, at_least(0)] = 0.3
    """Largest noise on actions inside the losses."""


@dataclass(frozen=True)
class DQNOptions(AgentOptions):
    """Hyperparameters of DQN."""

    learning_rate: Positive = 3e-4
    double: bool = True
    """Choose the successor's action by the online network (double Q-learning)."""
    dueling: bool = False
    """Q as value plus advantage."""
    epsilon_start: Share = 1.0
    """Share of random actions at the start."""
    epsilon_end: Share = 0.05
    """Share of random actions at the end."""
    epsilon_decisions: Annotated[int, at_least(0)] = 100_000
    """Decisions over which that share falls linearly."""


@dataclass(frozen=True)
class MaDiOptions:
    """Hyperparameters of MaDi's masker."""

    learning_rate: Positive = 1e-3
    """Adam's learning rate for the masker."""
    filters: Annotated[int, between(1, 4096)] = 32
    """Filters of its first two convolutions."""


@dataclass(frozen=True)
class CURLOptions:
    """Hyperparameters of CURL."""

    learning_rate: Positive = 1e-3
    """Adam's learning rate for encoder and contrast."""
    every: Every = 1
    """Updated in every n-th update."""


@dataclass(frozen=True)
class SODAOptions:
    """Hyperparameters of SODA."""

    learning_rate: Positive = 3e-4
    """Adam's learning rate (its script's and paper's value)."""
    every: Every = 2
    """Updated in every n-th update."""
    batch_size: Annotated[int, between(2, 65_536)] = 256
    """Observations per update, drawn for this task alone."""
    tau: Share = 0.005
    """How fast the target branch follows."""


@dataclass(frozen=True)
class SGQNOptions:
    """Hyperparameters of SGQN."""

    learning_rate: Positive = 3e-4
    """Adam's learning rate for encoder and decoder."""
    every: Every = 2
    """Updated in every n-th update."""
    quantile: Share = 0.95
    """Share of a frame's pixels that do not count (cartpole and ball_in_cup: 0.98)."""
    consistency: Annotated[float, at_least(0)] = 0.5
    """Coefficient in the Q-loss of staying the same when those pixels are painted over."""


@dataclass(frozen=True)
class PADOptions:
    """Hyperparameters of PAD."""

    learning_rate: Positive = 1e-3
    """Adam's learning rate, in training and at test time."""
    every: Every = 2
    """Updated in every n-th update."""
    task: Literal["inverse_dynamics", "rotation"] = "inverse_dynamics"
    """Predict the action between two observations, or by how many quarter turns one is rotated."""
    copies: Annotated[int, between(1, 65_536)] = 32
    """Augmented copies of the newest transition in a step of test-time adaptation."""


FRAMES = 3  # pictures in an observation, by default

WINDOW = FRAMES + 1  # frames that a stored transition points to


def output_size(image_size: int, layers: int, strided_layers: int) -> int:
    """Height and width that are left of an image after the convolutions.

    >>> output_size(84, layers=11, strided_layers=1)
    21
    """
    size = image_size
    for layer in range(layers):
        size = (size - 3) // (2 if layer < strided_layers else 1) + 1
        if size < 1:
            raise UserError(
                f"images of {image_size} pixels are too small for {layers} layers: nothing is left "
                f"after layer {layer + 1}; use a larger --image-size or fewer --network.layers"
            )
    return size


def check_patches(image_size: int, patch: int, width: int, heads: int) -> None:
    """Refuse images that do not split into patches, and widths that do not split into heads."""
    if image_size % patch:
        raise UserError(
            f"images of {image_size} pixels do not split into patches of {patch}: use a multiple, "
            f"e.g. --image-size {max(1, round(image_size / patch)) * patch}"
        )
    if width % heads:
        raise UserError(
            f"{width} dimensions do not split into {heads} heads: use a multiple of {heads} for "
            "--network.width"
        )


def frame_slots(capacity: int, environments: int, episode_length: int) -> int:
    """Frames to keep for ``capacity`` decisions: one each, one per episode, and the open stacks.

    A stack spans three turns, and in each an environment may write two frames: the last of an
    episode and the first of the next.
    """
    return capacity + -(-capacity // max(1, episode_length)) + 2 * WINDOW * environments
