"""MaDi's masker before the encoder: what it sees, and who trains it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rederivation import (
    make_agent,
    make_batch,
    masked,
    record_inputs,
    view,
    weights_of,
)

from svea.agents import DDPG, DQN, SAC, Agent
from svea.agents import make_agent as configured_agent
from svea.config import configure, to_dict
from svea.config.options import MaDiOptions
from svea.networks import Masker
from svea.runs.load import load_agent, write_export

WITH_MASK: dict[str, Any] = {"masker": MaDiOptions(filters=4)}


def test_the_masker_of_the_paper() -> None:
    masker = Masker()
    assert sum(parameter.numel() for parameter in masker.parameters()) == 10_433
    images = torch.rand(2, 9, 84, 84)
    masks = masker.masks(images)
    assert masks.shape == (2, 3, 84, 84) and masks.min() > 0 and masks.max() < 1
    torch.testing.assert_close(masker(images)[:, 3:6], images[:, 3:6] * masks[:, 1:2])
    swapped = torch.cat([images[:, 6:], images[:, 3:6], images[:, :3]], 1)
    torch.testing.assert_close(masker.masks(swapped), masks.flip(1)), "frames are masked alone"


@pytest.mark.parametrize("base", [SAC, DDPG, DQN])
def test_a_mask_that_keeps_everything_is_svea_bit_for_bit(base: type[Agent]) -> None:
    svea, agent = make_agent("svea", base=base), make_agent("svea", base=base, **WITH_MASK)
    with torch.no_grad():
        agent.masker.layers[-1].bias.fill_(200.0)  # the sigmoid is exactly 1, and so is flat
    for decision in range(4):
        for each in (svea, agent):
            each.update(make_batch(decision, base.discrete), each.schedule(decision))
    plain, behind_mask = svea.state_dict(), agent.state_dict()
    assert {n for n in behind_mask if "masker" not in n} == plain.keys()
    assert all(torch.equal(behind_mask[name], tensor) for name, tensor in plain.items())


def test_acting_and_q_values_see_masked_pictures() -> None:
    agent, batch = make_agent("svea", **WITH_MASK), make_batch()
    seen = record_inputs(agent.trunk)
    agent.act(batch.observations)
    agent.q_value(batch.observations, batch.actions)
    wanted = masked(weights_of(agent), view(batch.observations, "clean", 0)).detach()
    for images in seen:
        torch.testing.assert_close(images, wanted)
    assert len(seen) == 2


def test_a_gradient_that_is_not_finite_moves_neither_encoder_nor_masker() -> None:
    agent, batch = make_agent("svea", **WITH_MASK), make_batch()
    batch.rewards[0] = torch.nan
    before = weights_of(agent)
    agent.update_critic(batch, *(agent.views(o) for o in (batch.observations,) * 2))
    after = weights_of(agent)
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("small", [False, True])
def test_exports_carry_the_masker(small: bool, tmp_path: Path) -> None:
    sizes = {"layers": 4, "filters": 4, "projection": 8, "hidden": 8}
    config = configure(
        "walker_walk", method="madi", image_size=16, network=sizes, overlay_dir="procedural"
    )
    agent = configured_agent(config, actions=6)
    assert agent.masker is not None
    with torch.no_grad():
        for parameter in agent.masker.parameters():
            parameter += 0.1
    write_export(tmp_path / "export", agent, to_dict(config), small=small)
    loaded = load_agent(tmp_path / "export")
    image = np.random.default_rng(0).integers(0, 256, (1, 9, 16, 16), dtype=np.uint8)
    close = 0.1 if small else 1e-6
    np.testing.assert_allclose(loaded.act(image), agent.act(image), atol=close)
    masks = [each.masked(torch.as_tensor(image) / 255) for each in (agent, loaded)]
    torch.testing.assert_close(masks[0], masks[1], atol=close, rtol=0)
