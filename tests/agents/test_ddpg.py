"""DDPG, against a second derivation of DrQ-v2's update on raw tensors."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from rederivation import (
    COINCIDING,
    OPTIONS,
    TABLE,
    A,
    B,
    PlainDDPG,
    assert_coincide,
    make_agent,
    make_batch,
    mlp,
    moved,
    poison,
    project,
    record_inputs,
    trunk,
    view,
    weights_of,
)

from svea.agents import DDPG
from svea.recipes import RecipeOptions

CASES = [
    *[(name, RecipeOptions(alpha=0.7, beta=0.4)) for name in TABLE],
    ("drq", RecipeOptions(K=2, M=2)),
    ("sada", RecipeOptions(alpha=0.6, beta=0.2, K=2, M=2)),
]


def at_the_border(agent: DDPG) -> DDPG:
    """Actions of about 0.9, so that noise often leads over the border and is cut off there."""
    with torch.no_grad():
        agent.actor.mlp.output.bias.copy_(torch.tensor([1.5, -1.5]))
    return agent


@pytest.mark.parametrize(("recipe", "options"), CASES)
def test_updates_equal_a_plain_rederivation(recipe: str, options: RecipeOptions) -> None:
    agent = at_the_border(make_agent(recipe, options, DDPG))
    reference = PlainDDPG(recipe, options)
    for decision in (1, 2, 9):
        reference.deviation = {1: 0.9, 2: 0.8, 9: 0.2}[decision]  # from 1 to 0.2 over 8 decisions
        _, found = reference.check_update(agent, decision)
        assert float(found["noise"]) == pytest.approx(reference.deviation)


def test_with_a_slow_encoder_the_target_has_a_trunk_and_the_projection_follows_it() -> None:
    options = replace(OPTIONS[DDPG], encoder_tau=0.05, actor_every=2, target_every=2)
    agent, reference = make_agent("svea", base=DDPG, options=options), PlainDDPG("svea")
    reference.encoder_tau = 0.05
    assert "target_trunk" in agent.networks
    for decision in (2, 3):
        reference.deviation = 1 - 0.1 * decision
        reference.check_update(agent, decision, even=decision % 2 == 0)


def test_by_default_there_is_no_slow_trunk() -> None:
    agent = make_agent("svea", base=DDPG)
    assert agent.target_trunk is agent.trunk and "target_trunk" not in agent.networks
    assert not any(name.startswith("target_trunk") for name in agent.state_dict())


def test_the_policy_loss_moves_the_policy_alone() -> None:
    for recipe in ("drq", "svea", "mix-all", "sada"):
        agent, batch = make_agent(recipe, base=DDPG), make_batch()
        before = weights_of(agent)
        agent.update_actor(agent.views(batch.observations))
        assert moved(agent, before) == {name for name in before if name.startswith("actor.")}
        assert all(p.grad is None for p in agent.trunk.parameters())


def test_the_q_loss_reaches_neither_policy_nor_target() -> None:
    agent, batch = make_agent("svea", base=DDPG), make_batch()
    before = weights_of(agent)
    agent.update_critic(
        batch, agent.views(batch.observations), agent.views(batch.next_observations)
    )
    online = ("trunk.", "critic.")
    assert moved(agent, before) == {name for name in before if name.startswith(online)}


def test_the_policy_gets_a_gradient_also_where_its_actions_are_cut_off() -> None:
    agent = make_agent("drq", base=DDPG)
    features = agent.trunk(view(make_batch().observations, "clean", 0)).detach()
    with torch.no_grad():
        agent.actor.mlp.output.bias.fill_(2.0)
    agent.noise.fill_(50.0)  # all noise is cut at 0.3: 0.96 + 0.3 is over the border
    actions = agent.noisy_actions(features, torch.Generator().manual_seed(0))
    assert (actions == 1).any()
    (gradient,) = torch.autograd.grad(actions[actions == 1].sum(), agent.actor.mlp.output.bias)
    assert (gradient > 0).all()


@pytest.mark.parametrize("recipe", ["svea", "svea-clean-target", "sada", "augmented-prediction"])
def test_the_target_never_sees_the_strong_view(recipe: str) -> None:
    agent, batch = make_agent(recipe, base=DDPG, strong=poison), make_batch()
    assert torch.isfinite(agent.q_target(batch, agent.views(batch.next_observations))).all()


def test_in_a_whole_svea_update_the_successor_is_seen_once_and_weakly() -> None:
    agent, batch = make_agent("svea", base=DDPG), make_batch()
    seen = record_inputs(agent.trunk)
    agent.update(batch, agent.schedule(1))
    successor = view(batch.next_observations, "weak", 0)
    assert [images.shape[0] for images in seen] == [B, 2 * B, B]  # target, both streams, policy
    torch.testing.assert_close(seen[0], successor)
    torch.testing.assert_close(seen[2], view(batch.observations, "weak", 0))


@pytest.mark.parametrize(("special", "plain"), COINCIDING)
def test_special_cases_coincide(
    special: tuple[str, RecipeOptions], plain: tuple[str, RecipeOptions]
) -> None:
    assert_coincide(DDPG, special, plain)


def test_acting_with_scheduled_noise() -> None:
    agent, images = make_agent("svea", base=DDPG), make_batch().observations
    w = weights_of(agent)
    best = torch.tanh(mlp(w, "actor.mlp", project(w, "actor", trunk(w, images / 255)))).detach()
    torch.testing.assert_close(torch.from_numpy(agent.act(images)), best)
    for decision, deviation in ((0, 1.0), (4, 0.6), (100, 0.2)):
        agent.decision = decision
        noise = torch.randn(B, A, generator=torch.Generator().manual_seed(3))
        found = agent.act(images, explore=True, generator=torch.Generator().manual_seed(3))
        torch.testing.assert_close(torch.from_numpy(found), (best + deviation * noise).clamp(-1, 1))
    assert np.abs(agent.act(images, explore=True)).max() <= 1


def test_every_row_draws_from_a_generator_of_its_own() -> None:
    agent, images = make_agent("svea", base=DDPG), make_batch().observations

    def generators(count: int) -> list[torch.Generator]:
        return [torch.Generator().manual_seed(seed) for seed in range(count)]

    together = agent.act(images, explore=True, generator=generators(B))
    for row in range(B):
        alone = agent.act(images[row : row + 1], explore=True, generator=[generators(B)[row]])
        np.testing.assert_allclose(alone[0], together[row], atol=1e-6)
