import itertools

import pytest
import torch
from torch import nn

from svea.networks import (
    Actor,
    Critic,
    Projection,
)

FEATURES, ACTIONS = 14_112, 6  # the paper's trunk; walker


def count(*networks: nn.Module) -> int:
    return sum(p.numel() for network in networks for p in network.parameters())


def test_parameter_counts_of_the_paper() -> None:
    assert count(Projection(FEATURES)) == FEATURES * 100 + 100 + 2 * 100 == 1_411_500
    with torch.device("meta"):  # sizes only
        actor, critic = Actor(FEATURES, ACTIONS), Critic(FEATURES, ACTIONS)
    assert count(actor.mlp) == 1_165_324
    assert count(critic.q1, critic.q2) == 2_320_386
    assert count(actor) == 1_411_500 + 1_165_324
    assert count(critic) == 1_411_500 + 2_320_386


def test_orthogonal_linear_layers_with_zero_biases() -> None:
    for layer in Critic(20, 2, projection=8, hidden=16).modules():
        if isinstance(layer, nn.Linear):
            weight = layer.weight.detach()
            rows, columns = weight.shape
            gram = weight.T @ weight if rows >= columns else weight @ weight.T
            torch.testing.assert_close(gram, torch.eye(len(gram)), rtol=1e-4, atol=1e-5)
            assert not layer.bias.any()


def test_log_probability_integrates_to_one() -> None:
    """A histogram of draws agrees with the density that is claimed for them."""
    actor, generator = Actor(3, 1, projection=3, hidden=4), torch.Generator().manual_seed(0)
    with torch.no_grad():
        actor.mlp.output.weight.zero_()
        actor.mlp.output.bias.copy_(torch.tensor([0.3, 0.8]))  # log std about 0
        features = torch.randn(1, 3).expand(400_000, 3)
        draws, log_probability = actor.sample(features, generator)
    draws, edges = draws.squeeze(1), torch.linspace(-0.95, 0.95, 20)
    # Within a bin the density bends, so compare finely enough: 5 %.
    for low, high in itertools.pairwise(edges):
        inside = (draws >= low) & (draws < high)
        share = inside.double().mean()
        density = log_probability[inside].double().exp().mean()
        assert float(share) == pytest.approx(float(density * (high - low)), rel=0.05)
