"""An open episode, as the parent of a worker keeps it, and one step of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class OpenEpisode:
    """An environment's open episode: its seed and actions are all it takes to play it again."""

    seed: int
    number: int = 0  # of episodes that this environment played before
    actions: list[list[float]] = field(default_factory=list)  # that were answered
    total: float = 0.0  # of the rewards

    @property
    def command(self) -> dict[str, Any]:
        """What to tell a worker, so that it plays the episode as far as it went."""
        return {"do": "begin", "seed": self.seed, "actions": self.actions}


@dataclass(frozen=True)
class Step:
    """What one environment answered."""

    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any]
    episode: OpenEpisode  # that the step belongs to, this step included

    @property
    def done(self) -> bool:
        """Whether the episode ended with this step."""
        return self.terminated or self.truncated
