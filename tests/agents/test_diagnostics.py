"""Diagnostics of a batch, on an agent whose values are known."""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from svea.agents.diagnostics import q_gap_of, q_target_variance, q_targets
from svea.recipes import RECIPES, RecipeOptions, Streams, streams
from svea.replay import Batch
from svea.views import Views

WIDTH, DISCOUNT, SIZE = 6.0, 0.9, 4


@dataclass
class Guesser:
    """Values an image by its mean; its weak view adds one uniform number to all pixels.

    So the Q-target's variance over views is (discount * width)^2 / 12, that of a uniform law.
    """

    streams: Streams
    noise: float = 0.0
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def views(self, observations: Tensor, generator: torch.Generator) -> Views:
        def weak(images: Tensor) -> Tensor:
            draw = torch.rand(len(images), 1, 1, 1, generator=generator)
            return images + 255 * WIDTH * draw

        def strong(images: Tensor) -> Tensor:
            return 2 * images

        return Views(observations.float(), lambda images: images.clone(), weak, strong)

    def masked(self, images: Tensor) -> Tensor:
        return images

    def value(self, images: Tensor, generator: torch.Generator, vectors=None) -> Tensor:
        drawn = torch.randn(len(images), generator=generator)
        return images.mean((1, 2, 3)) + self.noise * drawn

    def q(self, images: Tensor, actions: Tensor, vectors=None) -> Tensor:
        return 3 * images.mean((1, 2, 3)) + actions[:, 0]


def guesser(recipe: str, noise: float = 0.0, **options: Any) -> Any:
    return Guesser(streams(RECIPES[recipe], RecipeOptions(**options)), noise)


def batch(size: int = 64) -> Batch:
    generator = torch.Generator().manual_seed(0)
    pictures = torch.randint(256, (2, size, 9, SIZE, SIZE), generator=generator, dtype=torch.uint8)
    numbers = torch.rand(2, size, generator=generator)
    return Batch(
        observations=pictures[0],
        actions=numbers[:1].T,
        rewards=numbers[1],
        discounts=torch.full((size,), DISCOUNT),
        next_observations=pictures[1],
    )


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


UNIFORM = (DISCOUNT * WIDTH) ** 2 / 12


@pytest.mark.parametrize(
    ("recipe", "options", "expected"),
    [
        ("svea", {}, UNIFORM),
        ("drq", {"K": 4}, UNIFORM / 4),  # the target is a mean over K independent views
        ("svea-augmented-target", {}, 4 * UNIFORM),  # the strong view is twice the weak one
        ("mix-all", {}, 2.5 * UNIFORM),  # each stream its own: the mean of both variances
        ("clean-target", {}, 0.0),
    ],
)
def test_the_variance_is_that_of_the_view_alone(recipe, options, expected):
    # The policy's noise is held fixed, so that a hundredfold of it changes nothing.
    for noise in (0.0, 100.0):
        found = q_target_variance(guesser(recipe, noise, **options), batch(), 400, seeded())
        assert found == pytest.approx(expected, rel=0.05, abs=1e-9)


def test_targets_are_reward_plus_discounted_value() -> None:
    transitions = batch()
    targets = q_targets(guesser("clean-target"), transitions, 2, seeded())
    means = transitions.next_observations.double().mean((1, 2, 3)) / 255
    expected = transitions.rewards.double() + DISCOUNT * means
    assert targets.shape == (2, 1, 64)
    torch.testing.assert_close(targets[1, 0], expected, atol=1e-5, rtol=1e-5)
    assert q_targets(guesser("mix-all"), transitions, 2, seeded()).shape == (2, 2, 64)


def test_a_gap_is_what_the_augmentation_does_to_q() -> None:
    def brighter(images: Tensor, generator: torch.Generator) -> Tensor:
        return images + 0.25

    def either(images: Tensor, generator: torch.Generator) -> Tensor:
        sign = torch.randint(2, (len(images), 1, 1, 1), generator=generator) * 2 - 1
        return images + 0.25 * sign

    agent = guesser("svea")
    assert q_gap_of(agent, batch(), brighter, 2, seeded()) == pytest.approx(0.75, abs=1e-5)
    # Differences do not cancel: it is a mean of absolute values.
    assert q_gap_of(agent, batch(), either, 2, seeded()) == pytest.approx(0.75, abs=1e-5)
    assert q_gap_of(agent, batch(), lambda x, generator: x, 2, seeded()) == 0
