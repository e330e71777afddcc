"""How large a run is, before it exists: its replay, and the files in its folder."""

from __future__ import annotations

from svea.config import Config, milestones, shapes
from svea.config.names import is_own_encoder
from svea.runs import layout

ACTIONS = 8  # dimensions of an action where no environment has been asked; hardly counts
LOG_LINE_BYTES = 500
OWN_FEATURES = 32 * 1024  # of a user's own encoder, which is not made here: twice the paper's CNN


def replay_bytes(config: Config, actions: int = ACTIONS) -> int:
    """Bytes of a run's replay, in memory and on disk."""
    return shapes.replay_bytes(
        config.replay_capacity, config.rendered_size, actions, config.envs, config.episode_length
    )


def agent_bytes(config: Config) -> int:
    """Bytes of an agent in a checkpoint, at most: what is known without making the agent."""
    size = config.network
    if config.encoder == "vit":
        features = size.width
    elif is_own_encoder(config.encoder):
        features = OWN_FEATURES
    else:
        side = shapes.output_size(config.image_size, size.layers, size.strided_layers)
        features = size.filters * side * side
    projection = features * size.projection
    heads = 3 * (size.projection + size.hidden + 2) * size.hidden
    # Two projections and their target, weights and Adam's two moments: four times is enough.
    return 4 * 4 * (2 * projection + heads) + 16_000_000


def folder_bytes(config: Config, replay: int, agent: int) -> int:
    """Bytes of the large files in a run's folder: replay, checkpoints, log.

    Args:
        config: of the run.
        replay: its bytes.
        agent: bytes of one checkpoint.
    """
    lines = config.decisions / config.episode_length
    lines += 2 * config.decisions / min(config.log_every, config.eval_every or config.log_every)
    copies = layout.GENERATIONS + 1  # those that are kept, and the one being written
    copies += len(milestones(config.export_at))
    kept = replay if config.save_replay else 0
    return kept + copies * agent + round(LOG_LINE_BYTES * lines)
