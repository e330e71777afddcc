"""One update, against a second derivation from the paper's equations on raw tensors."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch
from rederivation import (
    COINCIDING,
    TABLE,
    A,
    B,
    CountingWeak,
    PlainSAC,
    assert_coincide,
    make_agent,
    make_batch,
    mlp,
    poison,
    project,
    q_values,
    record_inputs,
    same_weights,
    trunk,
    view,
    weights_of,
)
from torch import Tensor

from svea.agents.sac import SAC
from svea.recipes import RECIPES, RecipeOptions

CASES = [
    ("svea", RecipeOptions(alpha=0.5, beta=0.5)),
    ("svea", RecipeOptions(alpha=0.8, beta=0.3)),
    *[(name, RecipeOptions(alpha=0.7, beta=0.4)) for name in TABLE if name != "svea"],
    ("drq", RecipeOptions(K=2, M=2)),
    ("drq+aug", RecipeOptions(K=3, M=1)),
    ("mix-all", RecipeOptions(alpha=0.6, beta=0.2, M=2)),
    ("sada", RecipeOptions(alpha=0.6, beta=0.2, K=2, M=2)),
]


def case_name(case: Any) -> str:
    return case if isinstance(case, str) else f"{case.alpha}-{case.beta}-K{case.K}-M{case.M}"


def test_the_second_table_covers_every_recipe() -> None:
    assert TABLE.keys() == RECIPES.keys()


@pytest.mark.parametrize(("recipe", "options"), CASES, ids=case_name)
def test_updates_equal_a_plain_rederivation(recipe: str, options: RecipeOptions) -> None:
    agent, reference = make_agent(recipe, options), PlainSAC(recipe, options)
    for decision in (2, 3, 4):  # policy and target are updated on even decisions only
        even = decision % 2 == 0
        before, _ = reference.check_update(agent, decision, even)
        for name, tensor in weights_of(agent).items():
            moves = even or name.startswith(("trunk.", "critic."))
            assert moves or torch.equal(tensor, before[name]), f"{name} moved on an odd decision"


@pytest.mark.parametrize(("special", "plain"), COINCIDING)
def test_special_cases_coincide(
    special: tuple[str, RecipeOptions], plain: tuple[str, RecipeOptions]
) -> None:
    assert_coincide(SAC, special, plain)


def test_svea_differs_from_drq_in_views_alone() -> None:
    svea, drq = make_agent("svea"), make_agent("drq")
    assert same_weights(svea, drq)  # the same networks from the same seed: no extra parameters
    assert {k: v.shape for k, v in weights_of(svea).items()} == {
        k: v.shape for k, v in weights_of(drq).items()
    }
    svea.update(make_batch(), svea.schedule(2))
    drq.update(make_batch(), drq.schedule(2))
    assert not same_weights(svea, drq)


# Who sees which view ------------------------------------------------------------------------------


@pytest.mark.parametrize("recipe", ["svea", "svea-clean-target", "sada", "augmented-prediction"])
def test_the_target_never_sees_the_strong_view(recipe: str) -> None:
    clean, poisoned = make_agent(recipe), make_agent(recipe, strong=poison)
    batch = make_batch()

    def target(agent: SAC) -> Tensor:
        return agent.q_target(batch, agent.views(batch.next_observations))

    assert torch.isfinite(target(poisoned)).all()
    torch.testing.assert_close(target(make_agent(recipe)), target(clean), rtol=0, atol=0)


@pytest.mark.parametrize("recipe", ["svea-augmented-target", "mix-all", "drq+aug"])
def test_the_poison_would_be_seen_in_an_augmented_target(recipe: str) -> None:
    agent, batch = make_agent(recipe, strong=poison), make_batch()
    target = agent.q_target(batch, agent.views(batch.next_observations))
    assert torch.isnan(target).any()


def test_in_a_whole_svea_update_the_target_network_sees_weak_successors_alone() -> None:
    agent, batch = make_agent("svea"), make_batch()
    seen = record_inputs(agent.target_trunk)
    agent.update(batch, agent.schedule(2))
    assert len(seen) == 1
    torch.testing.assert_close(seen[0], view(batch.next_observations, "weak", 0))


def test_the_policy_of_svea_never_sees_the_strong_view() -> None:
    agent, batch = make_agent("svea"), make_batch()
    seen = record_inputs(agent.trunk)
    agent.update_actor(agent.views(batch.observations))
    assert seen
    for images in seen:
        torch.testing.assert_close(images, view(batch.observations, "weak", 0))
    agent = make_agent("svea", strong=poison)
    losses = agent.update_actor(agent.views(batch.observations))
    assert torch.isfinite(losses["actor_loss"])


@pytest.mark.parametrize("recipe", ["drq", "svea", "mix-all", "sada"])
def test_the_policy_loss_leaves_trunk_critic_and_target_untouched(recipe: str) -> None:
    agent, batch = make_agent(recipe), make_batch()
    before = weights_of(agent)
    agent.update_actor(agent.views(batch.observations))
    after = weights_of(agent)
    for name in before:
        moved = not torch.equal(before[name], after[name])
        assert moved == name.startswith(("actor.", "log_temperature")), name
    for network in (agent.trunk, agent.critic):
        assert all(p.grad is None or not p.grad.any() for p in network.parameters())


def test_unaugmented_and_policy_stream_see_the_same_shift() -> None:
    weak = CountingWeak()
    agent, batch = make_agent("svea", weak=weak), make_batch()
    agent.update(batch, agent.schedule(2))
    assert weak.calls(batch.observations) == weak.calls(batch.next_observations) == 1


# Bootstrapping ------------------------------------------------------------------------------------


def test_only_a_real_end_stops_bootstrapping() -> None:
    agent, batch = make_agent("svea"), make_batch()
    batch.discounts = torch.full((B,), 0.99)
    batch.discounts[0] = 0  # what the replay says of a real end
    target = agent.q_target(batch, agent.views(batch.next_observations))[0]
    assert target[0] == batch.rewards[0]
    assert (target[1:] != batch.rewards[1:]).all()


# Acting and saving --------------------------------------------------------------------------------


def test_acting() -> None:
    agent, images = make_agent("svea"), make_batch().observations
    modes = agent.act(images)
    assert modes.shape == (B, A)
    assert (modes == agent.act(images.numpy())).all(), "the most likely action does not draw"
    assert agent.act(images[0]).shape == (A,)
    w = weights_of(agent)
    mean = mlp(w, "actor.mlp", project(w, "actor", trunk(w, images / 255)))[:, :A]
    torch.testing.assert_close(torch.from_numpy(modes), torch.tanh(mean).detach())
    draws = torch.stack([torch.from_numpy(agent.act(images, explore=True)) for _ in range(5)])
    assert (draws.std(0) > 0).all() and (draws.abs() <= 1).all()


def test_q_value_is_the_smaller_of_both() -> None:
    agent, batch = make_agent("svea"), make_batch()
    w = weights_of(agent)
    q1, q2 = q_values(w, "critic", trunk(w, batch.observations / 255), batch.actions)
    found = agent.q_value(batch.observations, batch.actions)
    torch.testing.assert_close(found, torch.minimum(q1, q2).detach())


def test_a_state_is_taken_over_where_the_agent_has_its_own() -> None:
    """A captured update has the addresses of weights and moments: both must stay."""
    one, two = make_agent("svea"), make_agent("svea", seed=6)
    for agent in (one, two):
        agent.update(make_batch(), agent.schedule(2))
    before = {name: tensor.data_ptr() for name, tensor in two.state_dict().items()}
    wanted = deepcopy(one.state_dict())
    two.load_state_dict(wanted)
    after = two.state_dict()
    assert all(torch.equal(tensor, wanted[name]) for name, tensor in after.items())
    before.pop("generator")  # the generator's state is always a copy
    assert all(after[name].data_ptr() == address for name, address in before.items())


def test_building_an_agent_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    agent = make_agent("svea")
    agent.update(make_batch(), agent.schedule(2))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_generator_of_another_device_is_left_alone():
    from svea.agents.learning import restore_generator

    generator = torch.Generator().manual_seed(1)
    before = generator.get_state()
    on_a_gpu = torch.zeros(16, dtype=torch.uint8)  # CUDA's states are that small
    assert not restore_generator(generator, on_a_gpu)
    assert torch.equal(generator.get_state(), before)
    assert restore_generator(generator, torch.Generator().manual_seed(2).get_state())
    assert not torch.equal(generator.get_state(), before)


def test_observations_of_another_size_are_refused_with_the_size_it_takes():
    from svea.agents import make_agent
    from svea.config import configure
    from svea.core.errors import UserError

    config = configure("walker_walk", preset="quick")
    agent = make_agent(config, actions=6)
    with pytest.raises(UserError, match=r"\(9, 84, 84\).*\(9, 48, 48\)"):
        agent.act(np.zeros((9, 84, 84), np.uint8))
    assert agent.act(np.zeros((9, 48, 48), np.uint8)).shape == (6,)
