"""DQN, against a second derivation on raw tensors."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from rederivation import (
    CHOICES,
    COINCIDING,
    OPTIONS,
    TABLE,
    B,
    PlainDQN,
    assert_coincide,
    make_agent,
    make_batch,
    moved,
    poison,
    q_table,
    trunk,
    weights_of,
)

from svea.agents import DQN
from svea.recipes import RecipeOptions

CASES = [
    *[(name, RecipeOptions(alpha=0.7, beta=0.4)) for name in TABLE],
    ("drq", RecipeOptions(K=2, M=2)),
    ("mix-all", RecipeOptions(alpha=0.6, beta=0.2, M=2)),
]


def disagreeing(agent: DQN) -> DQN:
    """Online and target network prefer different choices, so that double Q-learning shows."""
    with torch.no_grad():
        agent.critic.advantage.output.bias.copy_(torch.tensor([1.0, 0.0, 0.5, -1.0]))
        agent.target_critic.advantage.output.bias.copy_(torch.tensor([0.0, 1.0, 0.9, 0.2]))
    return agent


@pytest.mark.parametrize("dueling", [False, True])
@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize(
    ("recipe", "options"), [("svea", RecipeOptions(alpha=0.8, beta=0.3)), ("drq", RecipeOptions())]
)
def test_variants_equal_a_plain_rederivation(
    recipe: str, options: RecipeOptions, double: bool, dueling: bool
) -> None:
    numbers = replace(OPTIONS[DQN], double=double, dueling=dueling)
    agent = disagreeing(make_agent(recipe, options, DQN, options=numbers))
    reference = PlainDQN(recipe, options)
    reference.double = double
    assert ("critic.value.output.bias" in weights_of(agent)) == dueling
    check(agent, reference)


@pytest.mark.parametrize(("recipe", "options"), CASES)
def test_every_recipe_equals_a_plain_rederivation(recipe: str, options: RecipeOptions) -> None:
    check(disagreeing(make_agent(recipe, options, DQN)), PlainDQN(recipe, options))


def check(agent: DQN, reference: PlainDQN) -> None:
    for decision in (2, 3, 4):  # the target is updated on even decisions only
        even = decision % 2 == 0
        before, _ = reference.check_update(agent, decision, even)
        assert even or not any(name.startswith("target_") for name in moved(agent, before))


def test_double_q_learning_asks_the_online_network() -> None:
    """The two differ here, so that a mix-up of networks cannot pass."""
    images = make_batch(discrete=True).next_observations / 255
    agents = [
        disagreeing(make_agent("drq", base=DQN, options=replace(OPTIONS[DQN], double=double)))
        for double in (True, False)
    ]
    double, single = (agent.value(images) for agent in agents)
    assert (double < single).all(), "a maximum is the most that any choice is worth"


def test_without_a_slow_encoder_the_trunk_is_evaluated_once() -> None:
    options = replace(OPTIONS[DQN], encoder_tau=1.0)
    agent, reference = make_agent("svea", base=DQN, options=options), PlainDQN("svea")
    reference.encoder_tau = 1.0
    check(agent, reference)


@pytest.mark.parametrize("recipe", ["svea", "svea-clean-target", "sada", "augmented-prediction"])
def test_the_target_never_sees_the_strong_view(recipe: str) -> None:
    agent, batch = make_agent(recipe, base=DQN, strong=poison), make_batch(discrete=True)
    assert torch.isfinite(agent.q_target(batch, agent.views(batch.next_observations))).all()


@pytest.mark.parametrize(("special", "plain"), COINCIDING)
def test_special_cases_coincide(
    special: tuple[str, RecipeOptions], plain: tuple[str, RecipeOptions]
) -> None:
    assert_coincide(DQN, special, plain)


def test_acting_is_the_maximum_or_with_a_falling_share_a_random_choice() -> None:
    options = replace(OPTIONS[DQN], epsilon_start=1.0, epsilon_end=0.1, epsilon_decisions=100)
    agent = disagreeing(make_agent("svea", base=DQN, options=options))
    images = make_batch().observations
    w = weights_of(agent)
    best = q_table(w, "critic", trunk(w, images / 255)).argmax(1).numpy()
    found = agent.act(images)
    assert found.shape == (B, 1) and found.dtype == np.float32
    assert (found[:, 0] == best).all()
    assert agent.act(images[0]).shape == (1,)
    many = images[:1].expand(4000, -1, -1, -1)
    for decision, share in ((0, 1.0), (50, 0.55), (1000, 0.1)):
        agent.decision = decision
        chosen = agent.act(many, explore=True)[:, 0]
        assert set(chosen) <= set(range(CHOICES))
        others = np.bincount(chosen.astype(int), minlength=CHOICES) / len(chosen)
        expected = np.full(CHOICES, share / CHOICES)
        expected[best[0]] += 1 - share
        np.testing.assert_allclose(others, expected, atol=0.04)  # 5 standard deviations


def test_every_row_draws_from_a_generator_of_its_own() -> None:
    agent, images = make_agent("svea", base=DQN), make_batch().observations

    def generators() -> list[torch.Generator]:
        return [torch.Generator().manual_seed(seed) for seed in range(B)]

    together = agent.act(images, explore=True, generator=generators())
    for row in range(B):
        alone = agent.act(images[row : row + 1], explore=True, generator=[generators()[row]])
        assert alone[0] == together[row]


def test_state_round_trip_of_a_dueling_network_continues_bit_for_bit() -> None:
    options = replace(OPTIONS[DQN], dueling=True)
    one = make_agent("svea", base=DQN, options=options)
    two = make_agent("svea", base=DQN, options=options, seed=6)
    for decision in range(3):
        one.update(make_batch(decision, discrete=True), one.schedule(decision))
    two.load_state_dict(deepcopy(one.state_dict()))
    for decision in range(3, 6):
        one.update(make_batch(decision, discrete=True), one.schedule(decision))
        two.update(make_batch(decision, discrete=True), two.schedule(decision))
    first, second = one.state_dict(), two.state_dict()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert DQN.actions_in(first) == CHOICES
