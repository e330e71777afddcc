from __future__ import annotations

import itertools

import pytest
import torch
from torch import nn

from svea.networks import (
    Actor,
    Critic,
    DeterministicActor,
    DiscreteCritic,
    DuelingCritic,
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


def test_projection_is_linear_norm_tanh_without_more() -> None:
    assert [type(layer) for layer in Projection(8, 4)] == [nn.Linear, nn.LayerNorm, nn.Tanh]


def test_orthogonal_linear_layers_with_zero_biases() -> None:
    for layer in Critic(20, 2, projection=8, hidden=16).modules():
        if isinstance(layer, nn.Linear):
            weight = layer.weight.detach()
            rows, columns = weight.shape
            gram = weight.T @ weight if rows >= columns else weight @ weight.T
            torch.testing.assert_close(gram, torch.eye(len(gram)), rtol=1e-4, atol=1e-5)
            assert not layer.bias.any()


def test_log_standard_deviation_stays_within_its_bounds() -> None:
    actor = Actor(4, 2, projection=3, hidden=5)
    for value, bound in ((1e6, 2.0), (-1e6, -10.0)):
        with torch.no_grad():
            actor.mlp.output.weight.zero_()
            actor.mlp.output.bias.fill_(value)
            _, log_std = actor(torch.randn(3, 4))
        torch.testing.assert_close(log_std, torch.full((3, 2), bound))


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


def test_sampling_is_differentiable_and_mode_is_its_centre() -> None:
    actor, features = Actor(3, 2, projection=3, hidden=4), torch.randn(5, 3)
    actions, log_probability = actor.sample(features, torch.Generator().manual_seed(0))
    assert actions.shape == (5, 2) and log_probability.shape == (5,)
    (actions.sum() + log_probability.sum()).backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in actor.parameters())
    torch.testing.assert_close(actor.mode(features), torch.tanh(actor(features)[0]))


def test_both_q_functions_are_independent_but_share_the_projection() -> None:
    critic = Critic(4, 2, projection=3, hidden=5)
    q = critic(torch.randn(7, 4), torch.randn(7, 2))
    assert q.shape == (2, 7)
    assert not torch.allclose(q[0], q[1])
    assert {id(p) for p in critic.q1.parameters()}.isdisjoint(id(p) for p in critic.q2.parameters())


def test_a_deterministic_policy_answers_within_the_borders() -> None:
    actor = DeterministicActor(4, 2, projection=3, hidden=5)
    actions = actor(torch.randn(7, 4) * 100)
    assert actions.shape == (7, 2) and actions.abs().max() < 1
    state = actor.projection(torch.zeros(1, 4))
    torch.testing.assert_close(actor(torch.zeros(1, 4)), torch.tanh(actor.mlp(state)))


def test_dueling_adds_a_value_to_advantages_of_mean_zero() -> None:
    critic, features = DuelingCritic(4, 3, 3, 5), torch.randn(7, 4)
    q = critic(features)
    assert q.shape == (7, 3)
    state = critic.projection(features)
    torch.testing.assert_close(q.mean(1, keepdim=True), critic.value(state))
    advantage = critic.advantage(state)
    torch.testing.assert_close(q[:, 0] - q[:, 2], advantage[:, 0] - advantage[:, 2])
    plain = DiscreteCritic(4, 3, 3, 5)
    torch.testing.assert_close(plain(features), plain.advantage(plain.projection(features)))
