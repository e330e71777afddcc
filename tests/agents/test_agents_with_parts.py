"""Agents that see two pictures and a vector: where each goes, and that all else works with them."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from test_make_agent import ROWS, SIZE, small
from torch import Tensor

from svea.agents import BASES, Agent, make_agent
from svea.config.parts import Parts
from svea.core.errors import NumericsError, UserError
from svea.networks import Scale
from svea.replay import Batch
from svea.speed import accelerate

BOTH = Parts(("front", "wrist"), "joints", 3)
KINDS = [BOTH, Parts(("front", "wrist")), Parts(("front",), "joints", 3)]


def agent_of(parts: Parts, method: str = "svea", base: str = "sac", **changes: Any) -> Agent:
    config = small(method, base=base, **changes)
    return make_agent(config, 3 if base == "dqn" else 2, parts=parts)


def batch_for(agent: Agent, seed: int = 0, pixels: int = SIZE) -> Batch:
    random, parts = torch.Generator().manual_seed(seed), agent.parts
    shape = (ROWS, 9 * parts.count, pixels, pixels)
    images = [torch.randint(0, 256, shape, generator=random, dtype=torch.uint8) for _ in range(2)]
    vectors = [5 + 100 * torch.rand(ROWS, 3, generator=random) for _ in range(2)]
    actions = torch.rand(ROWS, 1 if agent.discrete else 2, generator=random)
    rewards = torch.rand(ROWS, generator=random)
    has = vectors if parts.numbers else [None, None]
    return Batch(images[0], actions.round() if agent.discrete else actions, rewards,
                 torch.full((ROWS,), 0.9), images[1], *has)  # fmt: skip


def update(agent: Agent, seed: int) -> dict[str, Tensor]:
    own = batch_for(agent, seed) if agent.auxiliary and agent.auxiliary.batch_size else None
    return agent.update(batch_for(agent, seed), agent.schedule(0), own)


# What a vector becomes ------------------------------------------------------------------------


@settings(max_examples=40)
@given(arrays(np.float32, (5, 4, 3), elements=st.floats(-1e3, 1e3, width=32)))
def test_a_vector_is_scaled_by_the_mean_and_deviation_of_all_batches(batches):
    scale = Scale(3)
    assert torch.equal(scale(torch.ones(1, 3)), torch.ones(1, 3) / (1 + 1e-6) ** 0.5)
    for batch in batches:
        scale.observe(torch.as_tensor(batch))
    everything = batches.reshape(-1, 3).astype(np.float64)
    np.testing.assert_allclose(scale.mean, everything.mean(0), rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(scale.variance, everything.var(0), rtol=1e-3, atol=1e-1)
    assert scale(torch.full((1, 3), 1e30)).amax() == 10


def test_policy_and_q_functions_see_both_encoders_and_the_scaled_vector():
    """Networks written out: encoders, projections, and behind these the vector."""
    agent = agent_of(BOTH)
    batch = batch_for(agent)
    assert batch.vectors is not None and agent.scale is not None
    for seed in range(3):
        update(agent, seed)
    mean, deviation = agent.scale.mean, (agent.scale.variance + 1e-6).sqrt()
    vector = ((batch.vectors - mean) / deviation).clamp(-10, 10)
    pixels, trunk = batch.observations / 255, agent.trunk
    features = torch.cat([trunk.first(pixels[:, :9]), trunk.second(pixels[:, 9:])], 1)
    state = torch.cat([agent.actor.projection(features), vector], 1)
    action = torch.tanh(agent.actor.mlp(state)[:, :2])
    shown = {
        "front": batch.observations[:, :9].numpy(),
        "wrist": batch.observations[:, 9:].numpy(),
        "joints": batch.vectors.numpy(),
    }
    np.testing.assert_allclose(agent.act(shown), action.detach(), atol=1e-5)
    one = {name: part[1] for name, part in shown.items()}
    np.testing.assert_allclose(agent.act(one), action[1].detach(), atol=1e-5)
    np.testing.assert_allclose(agent.act(BOTH.pack(shown)), action.detach(), atol=1e-5)
    given = torch.cat([agent.critic.projection(features), vector, batch.actions], 1)
    lowest = torch.minimum(agent.critic.q1(given), agent.critic.q2(given))[:, 0]
    found = agent.q_value(batch.observations, batch.actions, batch.vectors)
    torch.testing.assert_close(found, lowest.detach(), rtol=1e-4, atol=1e-5)


def test_one_encoder_for_both_pictures_is_one():
    agent = agent_of(KINDS[1], **{"network.share_encoder": True})
    x = torch.rand(2, 9, SIZE, SIZE)
    first, second = agent.trunk(torch.cat([x, x], 1)).chunk(2, 1)
    assert torch.equal(first, second)
    assert sum(p.numel() for p in agent.trunk.parameters()) * 2 == sum(
        p.numel() for p in agent_of(KINDS[1]).trunk.parameters()
    )


@pytest.mark.parametrize("method", ["svea", "rad"])
@pytest.mark.parametrize("shared", [False, True])
def test_pictures_have_draws_of_their_own_or_share_them(shared, method):
    agent = agent_of(KINDS[1], method, shared_draws=shared)
    side = SIZE + (4 if method == "rad" else 0)
    x = torch.randint(0, 256, (8, 9, side, side), dtype=torch.uint8)
    views = agent.views(torch.cat([x, x], 1))
    for name in ("weak", "strong") if method == "svea" else ("weak",):
        view = views[name, 0]
        assert view.shape == (8, 18, SIZE, SIZE)
        same = [torch.equal(*sample.chunk(2)) for sample in view]
        assert all(same) if shared else sum(same) <= 3  # of 25 shifts or crops, some are alike
    first, second = views["clean", 0].chunk(2, 1)
    assert torch.equal(first, second)


# All else works with them ---------------------------------------------------------------------

LEARNERS = [
    *[("svea", base, {}) for base in BASES],
    ("sada", "sac", {}), ("curl", "sac", {}), ("soda", "sac", {}), ("sgqn", "sac", {}),
    ("madi", "sac", {}), ("pad", "sac", {"network.head_layers": 0}),
]  # fmt: skip


@pytest.mark.parametrize(("method", "base", "changes"), LEARNERS)
@pytest.mark.parametrize("parts", KINDS, ids=["both", "pictures", "vector"])
def test_every_learner_learns_and_is_saved_and_compiled_alike(parts, method, base, changes):
    agents = [agent_of(parts, method, base, **changes) for _ in range(2)]
    accelerate(agents[1], "compiled")
    for seed in range(2):
        losses = [update(agent, seed) for agent in agents]
        assert all(value.isfinite().all() for value in losses[0].values())
    for name, loss in losses[0].items():
        torch.testing.assert_close(losses[1][name], loss, rtol=2e-3, atol=2e-4)
    state = agents[0].state_dict()
    other = agent_of(parts, method, base, **changes, seed=5)
    other.load_state_dict(state)
    assert all(torch.equal(tensor, state[name]) for name, tensor in other.state_dict().items())


def test_what_an_auxiliary_task_learns_does_not_depend_on_vectors():
    """An auxiliary task sees pictures alone."""
    agent = agent_of(BOTH, "curl")
    batch = batch_for(agent)
    losses = []
    for vectors in (batch.vectors, batch.vectors * 0):
        agent.generator.manual_seed(3)
        now = agent.views(batch.observations, vectors=vectors)
        now["weak", 0], now["strong", 0]
        losses.append(agent.auxiliary.loss(batch, now, now)[0])
    assert torch.equal(*losses)


# What is refused ------------------------------------------------------------------------------

PICTURE = np.zeros((9, SIZE, SIZE), np.uint8)
GOOD = {"front": PICTURE, "wrist": PICTURE, "joints": np.zeros(3)}


@pytest.mark.parametrize(
    ("given", "error"),
    [
        (PICTURE, UserError),
        (np.zeros((18, SIZE, SIZE), np.uint8), UserError),
        ({"front": PICTURE, "joints": np.zeros(3)}, UserError),
        (GOOD | {"grip": np.zeros(1)}, UserError),
        (GOOD | {"joints": np.zeros(4)}, UserError),
        (GOOD | {"joints": np.zeros(3, np.int64)}, UserError),
        (GOOD | {"joints": np.full(3, np.nan)}, NumericsError),
        (GOOD | {"wrist": PICTURE[:3]}, UserError),
        (GOOD | {"wrist": PICTURE[:, :, :5]}, UserError),
        (GOOD | dict.fromkeys(("front", "wrist"), PICTURE[:3]), UserError),
    ],
)
def test_an_observation_of_other_parts_is_refused(given, error):
    agent = agent_of(BOTH)
    assert agent.act(GOOD).shape == (2,)
    with pytest.raises(error, match=r"joints|observation"):
        agent.act(given)


def test_an_agent_of_one_picture_takes_no_dictionary():
    with pytest.raises(UserError, match="dictionary of 'front'"):
        agent_of(Parts()).act({"front": PICTURE})


def test_pads_own_convolutions_are_refused_for_two_pictures():
    with pytest.raises(UserError, match=r"network\.head_layers"):
        agent_of(BOTH, "pad")
