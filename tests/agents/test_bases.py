"""One update of every base, against a second derivation from the equations on raw tensors."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from rederivation import (
    CHOICES,
    OPTIONS,
    TABLE,
    A,
    B,
    PlainDDPG,
    PlainDQN,
    PlainSAC,
    Reference,
    make_agent,
    make_batch,
    mlp,
    moved,
    poison,
    project,
    q_table,
    q_values,
    record_inputs,
    trunk,
    view,
    weights_of,
)  # fmt: skip
from torch import Tensor

from svea.agents import DDPG, DQN, SAC, Agent
from svea.agents import make_agent as configured_agent
from svea.agents.learning import check_update, restore_generator
from svea.config import configure
from svea.config.options import MaDiOptions
from svea.core.errors import NumericsError, UserError
from svea.recipes import RECIPES, RecipeOptions

BASES = [SAC, DDPG, DQN]
PLAIN: dict[type[Agent], type[Reference]] = {SAC: PlainSAC, DDPG: PlainDDPG, DQN: PlainDQN}
UNEVEN = [(name, RecipeOptions(alpha=0.7, beta=0.4)) for name in TABLE]
CASES = [
    *((base, *case) for base in BASES for case in UNEVEN),
    *((base, "drq", RecipeOptions(K=2, M=2)) for base in BASES),
    (SAC, "svea", RecipeOptions()),
    (SAC, "drq+aug", RecipeOptions(K=3, M=1)),
    (SAC, "mix-all", RecipeOptions(alpha=0.6, beta=0.2, M=2)),
    (DQN, "mix-all", RecipeOptions(alpha=0.6, beta=0.2, M=2)),
    (SAC, "sada", RecipeOptions(alpha=0.6, beta=0.2, K=2, M=2)),
    (DDPG, "sada", RecipeOptions(alpha=0.6, beta=0.2, K=2, M=2)),
]
MASKED = [
    *((base, "svea", RecipeOptions()) for base in BASES),
    (SAC, "sada", RecipeOptions(alpha=0.7, beta=0.4, K=2)),
]
CAREFUL = ["svea", "svea-clean-target", "sada", "augmented-prediction"]
"""Recipes whose target never sees the strong view."""


def telling(agent: Any) -> Any:
    """An agent whose weights let mistakes show."""
    with torch.no_grad():
        if isinstance(agent, DDPG):  # noise often leads over the border and is cut off there
            agent.actor.mlp.output.bias.copy_(torch.tensor([1.5, -1.5]))
        if isinstance(agent, DQN):  # online and target network prefer different choices
            agent.critic.advantage.output.bias.copy_(torch.tensor([1.0, 0.0, 0.5, -1.0]))
            agent.target_critic.advantage.output.bias.copy_(torch.tensor([0.0, 1.0, 0.9, 0.2]))
    return agent


def check(agent: Any, reference: Any) -> None:
    """Three updates; policy and target of SAC and DQN are updated on even decisions only."""
    if isinstance(agent, DDPG):
        for decision, deviation in ((1, 0.9), (2, 0.8), (9, 0.2)):  # 1 to 0.2 over 8 decisions
            reference.deviation = deviation
            _, found = reference.check_update(agent, decision)
            assert float(found["noise"]) == pytest.approx(deviation)
        return
    for decision in (2, 3, 4):
        even = decision % 2 == 0
        before, _ = reference.check_update(agent, decision, even)
        online = ("trunk.", "critic.", "masker.")
        assert even or all(name.startswith(online) for name in moved(agent, before))


def test_the_second_table_covers_every_recipe() -> None:
    assert TABLE.keys() == RECIPES.keys()


@pytest.mark.parametrize(("base", "recipe", "options"), CASES)
def test_updates_equal_a_plain_rederivation(base, recipe, options):
    check(telling(make_agent(recipe, options, base)), PLAIN[base](recipe, options))


@pytest.mark.parametrize(("base", "recipe", "options"), MASKED)
def test_updates_behind_a_masker_equal_a_plain_rederivation(base, recipe, options):
    masker = MaDiOptions(learning_rate=5e-3, filters=4)
    agent, reference = make_agent(recipe, options, base, masker=masker), PLAIN[base]
    check(telling(agent), reference(recipe, options, masker.learning_rate))


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize(
    ("recipe", "options"), [("svea", RecipeOptions(alpha=0.8, beta=0.3)), ("drq", RecipeOptions())]
)
def test_variants_of_dqn_equal_a_plain_rederivation(recipe, options, double, dueling):
    numbers = replace(OPTIONS[DQN], double=double, dueling=dueling)
    agent, reference = telling(make_agent(recipe, options, DQN, options=numbers)), PlainDQN(recipe)
    reference.options, reference.double = options, double
    assert ("critic.value.output.bias" in weights_of(agent)) == dueling
    check(agent, reference)


@pytest.mark.parametrize(("base", "encoder_tau"), [(DDPG, 0.05), (DQN, 1.0)])
def test_the_target_has_a_trunk_only_where_the_encoder_follows_slowly(base, encoder_tau):
    options = replace(OPTIONS[base], encoder_tau=encoder_tau)
    agent, reference = telling(make_agent("svea", base=base, options=options)), PLAIN[base]("svea")
    reference.encoder_tau = encoder_tau
    assert ("target_trunk" in agent.networks) == (encoder_tau < 1)
    assert (agent.target_trunk is agent.trunk) == (encoder_tau == 1)
    check(agent, reference)


# Who sees which view ------------------------------------------------------------------------------


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("recipe", [*CAREFUL, "svea-augmented-target", "mix-all", "drq+aug"])
def test_the_target_sees_the_strong_view_only_where_the_recipe_says_so(recipe, base):
    batch = make_batch(discrete=base.discrete)
    agents = [make_agent(recipe, base=base, **strong) for strong in ({}, {"strong": poison})]
    clean, poisoned = (a.q_target(batch, a.views(batch.next_observations)) for a in agents)
    assert torch.isnan(poisoned).any() == (recipe not in CAREFUL)
    assert recipe not in CAREFUL or torch.equal(clean, poisoned)


@pytest.mark.parametrize("base", [SAC, DDPG])
def test_in_a_whole_svea_update_the_successor_is_seen_once_and_weakly(base: type[Agent]) -> None:
    agent, batch = make_agent("svea", base=base), make_batch()
    slow = agent.target_trunk is not agent.trunk
    of_target, of_trunk = record_inputs(agent.target_trunk), record_inputs(agent.trunk)
    agent.update(batch, agent.schedule(2))
    assert len(of_target) == (1 if slow else 3)
    assert [len(images) for images in of_trunk] == [B, 2 * B, B]  # target, both streams, policy
    torch.testing.assert_close(of_target[0], view(batch.next_observations, "weak", 0))
    torch.testing.assert_close(of_trunk[2], view(batch.observations, "weak", 0))


# Acting -------------------------------------------------------------------------------------------


def test_acting_of_sac() -> None:
    agent, images = make_agent("svea"), make_batch().observations
    modes = agent.act(images)
    assert modes.shape == (B, A) and agent.act(images[0]).shape == (A,)
    assert (modes == agent.act(images.numpy())).all(), "the most likely action does not draw"
    w = weights_of(agent)
    mean = mlp(w, "actor.mlp", project(w, "actor", trunk(w, images / 255)))[:, :A]
    torch.testing.assert_close(torch.from_numpy(modes), torch.tanh(mean).detach())
    draws = torch.stack([torch.from_numpy(agent.act(images, explore=True)) for _ in range(5)])
    assert (draws.std(0) > 0).all() and (draws.abs() <= 1).all()


def test_acting_of_ddpg_has_scheduled_noise() -> None:
    agent, images = make_agent("svea", base=DDPG), make_batch().observations
    w = weights_of(agent)
    best = torch.tanh(mlp(w, "actor.mlp", project(w, "actor", trunk(w, images / 255)))).detach()
    torch.testing.assert_close(torch.from_numpy(agent.act(images)), best)
    for decision, deviation in ((0, 1.0), (4, 0.6), (100, 0.2)):
        agent.decision = decision
        noise = torch.randn(B, A, generator=torch.Generator().manual_seed(3))
        found = agent.act(images, explore=True, generator=torch.Generator().manual_seed(3))
        torch.testing.assert_close(torch.from_numpy(found), (best + deviation * noise).clamp(-1, 1))


def test_acting_of_dqn_is_the_maximum_or_with_a_falling_share_a_random_choice() -> None:
    options = replace(OPTIONS[DQN], epsilon_start=1.0, epsilon_end=0.1, epsilon_decisions=100)
    agent = telling(make_agent("svea", base=DQN, options=options))
    images = make_batch().observations
    w = weights_of(agent)
    best = q_table(w, "critic", trunk(w, images / 255)).argmax(1).numpy()
    found = agent.act(images)
    assert found.shape == (B, 1) and found.dtype == np.float32
    assert (found[:, 0] == best).all() and agent.act(images[0]).shape == (1,)
    many = images[:1].expand(4000, -1, -1, -1)
    for decision, share in ((0, 1.0), (50, 0.55), (1000, 0.1)):
        agent.decision = decision
        chosen = agent.act(many, explore=True)[:, 0].astype(int)
        others = np.bincount(chosen, minlength=CHOICES) / len(chosen)
        expected = np.full(CHOICES, share / CHOICES)
        expected[best[0]] += 1 - share
        np.testing.assert_allclose(others, expected, atol=0.04)  # 5 standard deviations


@pytest.mark.parametrize("base", BASES)
def test_every_row_draws_from_a_generator_of_its_own(base: type[Agent]) -> None:
    agent, images = make_agent("svea", base=base), make_batch().observations

    def generators() -> list[torch.Generator]:
        return [torch.Generator().manual_seed(seed) for seed in range(B)]

    together = agent.act(images, explore=True, generator=generators())
    for row in range(B):
        alone = agent.act(images[row : row + 1], explore=True, generator=[generators()[row]])
        np.testing.assert_allclose(alone[0], together[row], atol=1e-6)


def test_q_value_is_the_smaller_of_both() -> None:
    agent, batch = make_agent("svea"), make_batch()
    w = weights_of(agent)
    q1, q2 = q_values(w, "critic", trunk(w, batch.observations / 255), batch.actions)
    found = agent.q_value(batch.observations, batch.actions)
    torch.testing.assert_close(found, torch.minimum(q1, q2).detach())


def test_observations_of_another_size_are_refused_with_the_size_it_takes() -> None:
    agent = configured_agent(configure("walker_walk", preset="quick"), actions=6)
    with pytest.raises(UserError, match=r"\(9, 84, 84\).*\(9, 48, 48\)"):
        agent.act(np.zeros((9, 84, 84), np.uint8))
    assert agent.act(np.zeros((9, 48, 48), np.uint8)).shape == (6,)


# State and numbers --------------------------------------------------------------------------------


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


def changed(state: dict[str, Tensor], name: str, tensor: Tensor | None) -> dict[str, Tensor]:
    return {key: each for key, each in (state | {name: tensor}).items() if each is not None}


def test_a_state_that_is_not_the_agents_is_refused_whole() -> None:
    agent = make_agent("svea")
    agent.update(make_batch(), agent.schedule(2))
    good = deepcopy(agent.state_dict())
    weight, moment = "trunk.layers.0.weight", "optimiser.critic.0.exp_avg"
    for name, tensor in {
        weight: None,
        moment: None,
        "trunk.layers.9.weight": torch.zeros(1),
        "actor.mlp.output.bias": torch.zeros(3),
        "critic.q1.output.bias": torch.zeros(1, dtype=torch.float64),
        "log_temperature": torch.tensor(torch.nan),
        "optimiser.critic.1.exp_avg": torch.zeros(1),
        "optimiser.critic.1.exp_avg_sq": -good["optimiser.critic.1.exp_avg_sq"] - 1,
        "generator": torch.zeros(16),
    }.items():
        with pytest.raises(ValueError, match=name):
            agent.load_state_dict(changed(good, name, tensor))
    assert all(torch.equal(tensor, good[name]) for name, tensor in agent.state_dict().items())
    agent.load_state_dict({n: t for n, t in good.items() if not n.startswith("optimiser")})


def test_building_an_agent_leaves_the_global_generator_alone() -> None:
    before = torch.get_rng_state()
    agent = make_agent("svea")
    agent.update(make_batch(), agent.schedule(2))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_generator_of_another_device_is_left_alone() -> None:
    generator = torch.Generator().manual_seed(1)
    before = generator.get_state()
    on_a_gpu = torch.zeros(16, dtype=torch.uint8)  # CUDA's states are that small
    assert not restore_generator(generator, on_a_gpu)
    assert torch.equal(generator.get_state(), before)
    assert restore_generator(generator, torch.Generator().manual_seed(2).get_state())
    assert not torch.equal(generator.get_state(), before)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_an_update_that_is_not_finite_is_refused_by_name(bad: float) -> None:
    agent = make_agent("svea")
    check_update(agent, {"critic_loss": torch.tensor(1e30), "critic_gradient": torch.tensor(0.0)})
    with pytest.raises(NumericsError, match="actor_gradient"):
        check_update(agent, {"critic_loss": torch.tensor(1.0), "actor_gradient": torch.tensor(bad)})
    with pytest.raises(NumericsError, match=r"loss_0, loss_1, loss_2 and 2 more"):
        check_update(agent, {f"loss_{k}": torch.tensor(bad) for k in range(5)})
    for name, tensor in agent.learned().items():
        if name in ("critic.q2.output.weight", "log_temperature"):
            kept = tensor.detach().clone()
            with torch.no_grad():
                tensor.view(-1)[0] = bad
            with pytest.raises(NumericsError, match=name):
                check_update(agent, {})
            tensor.data.copy_(kept)
    agent.device = torch.device("meta")  # as a GPU's, a loss there cannot be read without waiting
    check_update(agent, {"critic_loss": torch.empty((), device="meta")})
