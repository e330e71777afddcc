"""A replay of noise: what an update is timed and tested on, without an environment."""

from __future__ import annotations

import numpy as np
import torch

from svea.config import Config
from svea.replay import Replay

ACTIONS = 6  # walker's; for DQN as many choices


def noise_replay(config: Config, device: torch.device, decisions: int = 1_000) -> Replay:
    """A buffer of noise on the device, with episodes of 100 decisions."""
    options, size = config.options, config.rendered_size
    actions = 1 if config.base == "dqn" else ACTIONS
    replay = Replay(
        decisions, size, actions, 1, 100, device,
        discount=options.discount, n_step=options.n_step,
    )  # fmt: skip
    random = np.random.default_rng(0)

    def frame() -> np.ndarray:
        return random.integers(0, 256, (3, size, size), dtype=np.uint8)

    for decision in range(decisions):
        if decision % 100 == 0:
            replay.begin(0, frame())
        action = random.uniform(0, 1, actions).astype(np.float32)
        replay.append(0, action, float(action[0]), False, frame(), decision % 100 == 99)
    return replay
