"""A slow replay buffer to compare with: a list of whole, stacked transitions."""

import itertools
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from numpy.typing import NDArray

from svea.config.parts import PLAIN, Parts
from svea.replay import Batch, Replay

PARTED = Parts(("front", "wrist"), "joints", 2)
SIZE = 2  # pixels; every frame is a different number, so that any mix-up shows


@dataclass
class Oracle:
    """Everything that ever happened, stacked and stored whole."""

    transitions: list[dict[str, Any]] = field(default_factory=list)
    episodes: list[int] = field(default_factory=list)  # of every transition: its first frame
    stacks: dict[int, list[int]] = field(default_factory=dict)
    vectors: dict[int, Any] = field(default_factory=dict)  # each environment's newest
    open: dict[int, int] = field(default_factory=dict)  # each environment's episode
    frames: int = 0
    parts: Parts = PLAIN

    def new_frame(self) -> NDArray[np.uint8]:
        """A picture of its own number, in base 256 over the pixels; a second one has other bits."""
        self.frames += 1
        digits = [self.frames % 256, self.frames // 256 % 256]
        picture = np.resize(np.array(digits, np.uint8), (3, SIZE, SIZE))
        return np.concatenate([picture, ~picture][: self.parts.count])

    def vector(self) -> NDArray[np.float32] | None:
        """Of the newest frame."""
        return np.array([self.frames, 0.5], np.float32) if self.parts.numbers else None

    def stacked(self, frames: Any) -> NDArray[np.uint8]:
        """Frames as an agent sees them: those of one picture, then those of the other."""
        pictures = [np.split(frame, self.parts.count) for frame in frames]
        return np.concatenate([each for picture in zip(*pictures, strict=True) for each in picture])

    def begin(self, environment: int) -> tuple[Any, ...]:
        frame = self.new_frame()
        self.open[environment] = self.frames
        self.stacks[environment] = [frame] * 3  # type: ignore[list-item]
        self.vectors[environment] = self.vector()
        return frame, self.vector()

    def append(self, environment: int, terminated: bool) -> tuple[Any, ...]:
        frame = self.new_frame()
        before = self.stacks[environment]
        after = [*before[1:], frame]
        self.stacks[environment] = after  # type: ignore[assignment]
        number = len(self.transitions)
        action = np.array([number, -number], np.float32)
        self.episodes.append(self.open[environment])
        self.transitions.append(
            {
                "observations": self.stacked(before),
                "actions": action,
                "rewards": number / 2,
                "discounts": 0.0 if terminated else 0.99,
                "next_observations": self.stacked(after),
            }
        )
        if self.parts.numbers:
            both = {"vectors": self.vectors[environment], "next_vectors": self.vector()}
            self.transitions[-1] |= both
        self.vectors[environment] = self.vector()
        return environment, action, number / 2, terminated, frame


@st.composite
def histories(draw: st.DrawFn, shortest: int = 1, longest: int = 8) -> dict[str, Any]:
    """Environments that step together, each through episodes of its own lengths, over and over."""
    environments = draw(st.integers(1, 3))
    length = st.integers(shortest, longest)
    return {
        "lengths": [draw(st.lists(length, min_size=1, max_size=4)) for _ in range(environments)],
        "ends": draw(st.lists(st.booleans(), min_size=8, max_size=8)),
        "rounds": draw(st.integers(1, 20)),
        "capacity": draw(st.integers(1, 25)),
    }


def history(lengths: list[list[int]], rounds: int, capacity: int) -> dict[str, Any]:
    """A history without real ends."""
    return {"lengths": lengths, "ends": [False] * 8, "rounds": rounds, "capacity": capacity}


def play(
    history: dict[str, Any], episode_length: int, after_each: Any = None, **settings: Any
) -> tuple[Replay, Oracle]:
    """Fill a buffer and the oracle with the same history; every environment has an open episode."""
    environments = len(history["lengths"])
    replay = Replay(history["capacity"], SIZE, 2, environments, episode_length, seed=1, **settings)
    oracle = Oracle(parts=replay.parts)
    plans = [itertools.cycle(lengths) for lengths in history["lengths"]]
    left = [next(plan) for plan in plans]
    for index in range(environments):
        replay.begin(index, *oracle.begin(index))
    for _ in range(history["rounds"]):
        for index, plan in enumerate(plans):
            left[index] -= 1
            over = left[index] == 0
            terminated = over and history["ends"][len(oracle.transitions) % 8]
            replay.append(*oracle.append(index, terminated), last=over, vector=oracle.vector())
            if over:
                replay.begin(index, *oracle.begin(index))
                left[index] = next(plan)
            if after_each:
                after_each(replay, oracle)
    return replay, oracle


def assert_rows_are_history(batch: Batch, oracle: Oracle, numbers: list[int]) -> None:
    """Each row is exactly the transition that its action names, with nothing of another."""
    for row, number in enumerate(numbers):
        for name, wanted in oracle.transitions[number].items():
            found = getattr(batch, name)[row].numpy()
            assert np.array_equal(found, np.asarray(wanted, found.dtype)), (name, number)


def contents(replay: Replay) -> Batch:
    """Every valid transition, oldest first."""
    return replay.gather(torch.arange(len(replay)))
