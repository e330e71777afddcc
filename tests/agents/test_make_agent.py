"""Every method, encoder and base as users get them: from a configuration to an agent."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from svea.agents import Agent, make_agent
from svea.agents.auxiliary import PAD
from svea.config import Config, configure
from svea.config.names import uses_pictures
from svea.methods import METHODS
from svea.replay import Batch

SIZE, ROWS = 16, 4
SMALL: dict[str, Any] = {
    "image_size": SIZE,
    "shift": 2,
    "batch_size": 4,
    "overlay_dir": "procedural",
    "network.layers": 3,
    "network.frame_layers": 1,
    "network.filters": 4,
    "network.projection": 8,
    "network.hidden": 12,
    "network.patch": 8,
    "network.width": 16,
    "network.depth": 1,
    "network.heads": 2,
    "soda.batch_size": 4,
}
CNN_HEADS = {"network.head_layers": 1}


def small(method: str, encoder: str = "cnn", base: str = "sac", **changes: Any) -> Config:
    settings = SMALL | {"method": method, "encoder": encoder, "base": base}
    if METHODS[method].crop:
        settings |= {"crop": 4}
    if METHODS[method].own_heads and encoder != "vit":
        settings |= CNN_HEADS
    if uses_pictures(METHODS[method].augment):
        settings |= {"augment": "conv"}  # the same network; pictures have their own tests
    if method == "pad" and base == "ddpg":
        settings |= {"ddpg.n_step": 1}
    return configure("toy:make", **(settings | changes))


def agent_of(config: Config) -> Agent:
    return make_agent(config, actions=3 if config.base == "dqn" else 2)


def batch_for(agent: Agent, config: Config, seed: int) -> Batch:
    random = torch.Generator().manual_seed(seed)
    shape = (ROWS, 9, config.rendered_size, config.rendered_size)

    def images() -> Tensor:
        return torch.randint(0, 256, shape, generator=random, dtype=torch.uint8)

    actions = torch.rand(ROWS, 2, generator=random) * 2 - 1
    choices = torch.randint(3, (ROWS, 1), generator=random).float()
    return Batch(
        images(),
        choices if agent.discrete else actions,
        torch.rand(ROWS, generator=random),
        torch.full((ROWS,), 0.99),
        images(),
    )


def learn(agent: Agent, config: Config, decisions: range) -> None:
    for decision in decisions:
        batch, own = (batch_for(agent, config, 2 * decision + k) for k in (0, 1))
        takes_own = agent.auxiliary is not None and agent.auxiliary.batch_size
        losses = agent.update(batch, agent.schedule(decision), own if takes_own else None)
        assert all(torch.isfinite(value).all() for value in losses.values()), losses


PRODUCTS = [
    (method, encoder, base)
    for method in METHODS
    for encoder in ("cnn", "vit", "drqv2", "frames")
    for base in ("sac", "ddpg", "dqn")
]
QUICK = {  # every method, encoder and base once; all products are slow together
    *((method, "cnn", "sac") for method in METHODS),
    *((method, "vit", "sac") for method in ("svea", "rad", "curl", "soda", "pad")),
    *((method, "cnn", base) for method in ("svea", "soda", "pad") for base in ("ddpg", "dqn")),
    ("svea", "drqv2", "ddpg"),
    ("pad", "drqv2", "ddpg"),
    ("sada", "vit", "dqn"),
    ("svea", "frames", "sac"),
    ("pad", "frames", "ddpg"),
    ("soda", "frames", "dqn"),
}
COMBINATIONS = [
    pytest.param(*product, marks=[] if product in QUICK else pytest.mark.slow)
    for product in PRODUCTS
]


@pytest.mark.parametrize(("method", "encoder", "base"), COMBINATIONS)
def test_save_load_and_resume_with_equal_actions(method: str, encoder: str, base: str) -> None:
    config = small(method, encoder, base)
    one, two = agent_of(config), make_agent(config, actions=agent_of(config).actions)
    images = batch_for(one, config, 99).observations
    learn(one, config, range(2))
    assert type(one).actions_in(one.state_dict()) == one.actions
    two.load_state_dict({name: tensor.clone() for name, tensor in one.state_dict().items()})
    for agent in (one, two):
        agent.decision = 2
    assert np.array_equal(one.act(images), two.act(images))
    for agent in (one, two):
        learn(agent, config, range(2, 4))
    first, second = one.state_dict(), two.state_dict()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert np.array_equal(one.act(images, explore=True), two.act(images, explore=True))


@pytest.mark.parametrize("base", ["sac", "ddpg", "dqn"])
@pytest.mark.parametrize("encoder", ["cnn", "vit", "drqv2", "frames"])
def test_svea_has_no_parameter_more_than_drq(encoder: str, base: str) -> None:
    svea, drq = (agent_of(small(method, encoder, base)) for method in ("svea", "drq"))

    def shapes(agent: Agent) -> dict[str, torch.Size]:
        return {name: tensor.shape for name, tensor in agent.state_dict().items()}

    assert shapes(svea) == shapes(drq)
    for name, tensor in svea.state_dict().items():
        assert torch.equal(tensor, drq.state_dict()[name]), "the same seed, the same network"


def test_pads_branches_share_a_vit_whole_and_a_cnn_in_part() -> None:
    vit, cnn = agent_of(small("pad", "vit")), agent_of(small("pad"))
    assert isinstance(vit.auxiliary, PAD) and vit.auxiliary.shared is vit.trunk
    shared = {id(p) for p in vit.trunk.parameters()}
    assert shared <= {id(p) for p in vit.optimisers["auxiliary"].param_groups[0]["params"]}
    assert "auxiliary.head.layers.1.weight" in cnn.state_dict()
    assert "auxiliary.head.layers.1.weight" not in vit.state_dict()


def test_pad_has_as_many_parameters_as_the_reference() -> None:
    """Those of RAD, a head of three convolutions, a projection and a network for the actions."""

    def count(method: str) -> int:
        config = configure("walker_walk", method=method)
        agent = make_agent(config, actions=6)
        own = [network for name, network in agent.networks.items() if not name.startswith("target")]
        return sum(p.numel() for network in own for p in network.parameters())

    head, projection = 3 * (32 * 32 * 9 + 32), 14_112 * 100 + 100 + 200
    guess = 200 * 1024 + 1024 + 1024 * 1024 + 1024 + 1024 * 6 + 6
    assert head == 27_744 and count("pad") == count("rad") + head + projection + guess


# Views --------------------------------------------------------------------------------------------


def test_crops_act_on_the_centre() -> None:
    config = small("rad")
    agent, rendered = agent_of(config), batch_for(agent_of(config), config, 0).observations
    edge = rendered.clone()
    edge[:, :, 0] = edge[:, :, -1] = 0
    assert np.array_equal(agent.act(rendered), agent.act(edge)), "the border is never looked at"
    centre = rendered.clone()
    centre[:, :, 8:12, 8:12] = 0
    assert not np.array_equal(agent.act(rendered), agent.act(centre))
