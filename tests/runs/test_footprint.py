"""How large a run is, known before it exists."""

from typing import Any

import pytest

from svea.agents import make_agent
from svea.config import configure
from svea.replay import Replay
from svea.runs.layout import agent_bytes, folder_bytes, replay_bytes


def test_the_replay_takes_as_many_bytes_as_announced() -> None:
    config = configure("walker_walk", preset="quick", decisions=101, envs=2)
    replay = Replay(102, config.rendered_size, 6, config.envs, config.episode_length)
    rings = (replay.frames, replay.windows, replay.actions, replay.rewards, replay.terminated)
    tensors = sum(ring.nbytes for ring in (*rings, replay.last))
    assert replay_bytes(config, actions=6) == tensors + replay.first_frames.nbytes


@pytest.mark.parametrize(
    "options",
    [
        {"base": "ddpg", "encoder": "drqv2"},
        {"base": "dqn", "action_bins": 3},
        {"encoder": "frames"},
        {"encoder": "vit"},
        {"method": "soda"},
        {"preset": "quick", "method": "curl"},
    ],
)
def test_an_agent_is_not_larger_than_estimated_without_making_it(options: dict[str, Any]) -> None:
    config = configure("walker_walk", **options)
    agent = make_agent(config, 8)
    moments = sum(
        2 * p.nbytes for o in agent.optimisers.values() for p in o.param_groups[0]["params"]
    )
    exact = sum(tensor.nbytes for tensor in agent.learned().values()) + moments
    assert exact <= agent_bytes(config) <= 4 * exact + 16_000_000


def test_a_folder_holds_the_replay_three_checkpoints_and_the_log() -> None:
    config = configure("walker_walk", decisions=1000)
    assert 0 < folder_bytes(config, 10**9, 10**6) - 10**9 - 3 * 10**6 < 10**5
