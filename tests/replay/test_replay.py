"""The replay buffer against a slow oracle: a list of whole, stacked transitions."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from svea.config.shapes import frame_slots, replay_bytes
from svea.errors import UserError
from svea.replay import Batch, Replay

SIZE = 2  # pixels; every frame is a different number, so that any mix-up shows


@dataclass
class Oracle:
    """Everything that ever happened, stacked and stored whole."""

    transitions: list[dict[str, Any]] = field(default_factory=list)
    episodes: list[int] = field(default_factory=list)  # of every transition: its first frame
    stacks: dict[int, list[int]] = field(default_factory=dict)
    open: dict[int, int] = field(default_factory=dict)  # each environment's episode
    frames: int = 0

    def new_frame(self) -> NDArray[np.uint8]:
        """A picture of its own number, in base 256 over the pixels."""
        self.frames += 1
        digits = [self.frames % 256, self.frames // 256 % 256]
        return np.resize(np.array(digits, np.uint8), (3, SIZE, SIZE))

    def begin(self, environment: int) -> NDArray[np.uint8]:
        frame = self.new_frame()
        self.open[environment] = self.frames
        self.stacks[environment] = [frame] * 3  # type: ignore[list-item]
        return frame

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
                "observations": np.concatenate(before),  # type: ignore[arg-type]
                "actions": action,
                "rewards": number / 2,
                "discounts": 0.0 if terminated else 0.99,
                "next_observations": np.concatenate(after),  # type: ignore[arg-type]
            }
        )
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
    oracle = Oracle()
    plans = [itertools.cycle(lengths) for lengths in history["lengths"]]
    left = [next(plan) for plan in plans]
    for index in range(environments):
        replay.begin(index, oracle.begin(index))
    for _ in range(history["rounds"]):
        for index, plan in enumerate(plans):
            left[index] -= 1
            over = left[index] == 0
            terminated = over and history["ends"][len(oracle.transitions) % 8]
            replay.append(*oracle.append(index, terminated), last=over)
            if over:
                replay.begin(index, oracle.begin(index))
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


@settings(max_examples=150)
@given(histories(), st.integers(1, 10))
def test_contents_equal_the_oracle_at_any_time(
    history: dict[str, Any], episode_length: int
) -> None:
    def check(replay: Replay, oracle: Oracle) -> None:
        newest = len(oracle.transitions)
        assert 0 < len(replay) <= min(history["capacity"], newest)
        assert_rows_are_history(contents(replay), oracle, list(range(newest - len(replay), newest)))
        batch = replay.sample(7)
        numbers = [int(a) for a in batch.actions[:, 0]]
        assert min(numbers) >= newest - len(replay), "a forgotten transition was drawn"
        assert_rows_are_history(batch, oracle, numbers)

    play(history, episode_length, check)


@settings(max_examples=150)
@given(histories(shortest=4), st.integers(1, 4))
def test_capacity_is_exact_when_episodes_are_long_enough(
    history: dict[str, Any], episode_length: int
) -> None:
    def check(replay: Replay, oracle: Oracle) -> None:
        assert len(replay) == min(history["capacity"], len(oracle.transitions))

    play(history, episode_length, check)


# Several decisions at once ------------------------------------------------------------------------


def several(oracle: Oracle, number: int, n_step: int, discount: float) -> dict[str, Any]:
    """A transition over up to n decisions of its episode, as far as it has been played."""
    same = [
        other
        for other in range(number, len(oracle.transitions))
        if oracle.episodes[other] == oracle.episodes[number]
    ][:n_step]
    last = oracle.transitions[same[-1]]
    rewards = [oracle.transitions[other]["rewards"] for other in same]
    return oracle.transitions[number] | {
        "rewards": sum(discount**k * reward for k, reward in enumerate(rewards)),
        "discounts": 0.0 if last["discounts"] == 0 else discount ** len(same),
        "next_observations": last["next_observations"],
    }


@settings(max_examples=40)
@given(histories(), st.integers(1, 10), st.integers(1, 5), st.sampled_from([0.9, 0.99, 1.0]))
def test_several_decisions_equal_the_oracle_at_any_time(
    history: dict[str, Any], episode_length: int, n_step: int, discount: float
) -> None:
    """Over real ends and time limits, the newest edge, several environments and the ring's wrap."""

    def check(replay: Replay, oracle: Oracle) -> None:
        newest = len(oracle.transitions)
        batch = contents(replay)
        for row, number in enumerate(range(newest - len(replay), newest)):
            for name, wanted in several(oracle, number, n_step, discount).items():
                found = getattr(batch, name)[row].numpy()
                assert np.allclose(found, wanted, rtol=1e-5, atol=0), (name, number)
        drawn = replay.sample(5)
        for row, number in enumerate(drawn.actions[:, 0].long().tolist()):
            wanted = several(oracle, number, n_step, discount)
            assert np.isclose(float(drawn.rewards[row]), wanted["rewards"], rtol=1e-5)
            assert np.array_equal(drawn.next_observations[row], wanted["next_observations"])

    play(history, episode_length, check, n_step=n_step, discount=discount)


def test_a_time_limit_bootstraps_after_fewer_decisions_and_a_real_end_never() -> None:
    """Three decisions, by hand: an episode that is cut off, then one that ends."""
    replay = Replay(10, SIZE, 1, discount=0.5, n_step=3)
    frame = np.zeros((3, SIZE, SIZE), np.uint8)
    for terminated in (False, True):
        replay.begin(0, frame)
        for k in range(4):
            over = k == 3
            replay.append(0, np.zeros(1, np.float32), 8.0, terminated and over, frame, last=over)
    batch = contents(replay)
    assert batch.rewards.tolist() == 2 * [8 + 4 + 2, 8 + 4 + 2, 8 + 4, 8]
    assert batch.discounts.tolist() == [0.125, 0.125, 0.25, 0.5, 0.125, 0, 0, 0]


def test_a_real_end_is_the_last_of_its_episode_without_being_told() -> None:
    replay = Replay(10, SIZE, 1, n_step=2)
    frame = np.zeros((3, SIZE, SIZE), np.uint8)
    replay.begin(0, frame)
    replay.append(0, np.zeros(1, np.float32), 1.0, True, frame)
    replay.begin(0, frame)
    replay.append(0, np.zeros(1, np.float32), 1.0, False, frame)
    assert contents(replay).rewards.tolist() == [1.0, 1.0]


@settings(max_examples=50)
@given(histories(), st.integers(0, 40), st.integers(2, 4))
def test_ends_of_episodes_survive_saving(history: dict[str, Any], larger: int, n_step: int) -> None:
    replay, _ = play(history, 5, n_step=n_step)
    again = Replay(history["capacity"] + larger, SIZE, 2, len(history["lengths"]), 5, n_step=n_step)
    again.extend(replay.since((0, 0)))
    again.load_state(replay.state())
    for name, tensor in vars(contents(replay)).items():
        assert torch.equal(tensor, getattr(contents(again), name)), name


def test_the_stack_at_an_episodes_start_repeats_its_first_frame() -> None:
    replay = Replay(10, SIZE, 1)
    frames = [np.full((3, SIZE, SIZE), level, np.uint8) for level in range(1, 8)]
    replay.begin(0, frames[0])
    replay.append(0, np.zeros(1, np.float32), 0.0, False, frames[1])
    replay.begin(0, frames[2])  # the next episode shows nothing of the last
    for frame in frames[3:]:
        replay.append(0, np.zeros(1, np.float32), 0.0, False, frame)
    levels = contents(replay).observations[:, ::3, 0, 0].tolist()
    following = contents(replay).next_observations[:, ::3, 0, 0].tolist()
    assert levels == [[1, 1, 1], [3, 3, 3], [3, 3, 4], [3, 4, 5], [4, 5, 6]]
    assert following == [[1, 1, 2], [3, 3, 4], [3, 4, 5], [4, 5, 6], [5, 6, 7]]


def test_sampling_is_uniform_over_the_valid_transitions() -> None:
    replay, _ = play(history([[7]], rounds=56, capacity=20), 7)
    draws, valid = 40_000, len(replay)
    counts = torch.bincount(replay.sample(draws).actions[:, 0].long())
    seen = counts[counts > 0].double()
    assert len(seen) == valid == 20
    chi_square = float(((seen - draws / valid) ** 2 / (draws / valid)).sum())
    assert chi_square < 43.8, "more than the 0.999 quantile with 19 degrees of freedom"


@settings(max_examples=150)
@given(histories(), st.integers(0, 40), st.integers(1, 10), st.data())
def test_segments_rebuild_the_buffer(
    history: dict[str, Any], larger: int, episode_length: int, data: st.DataObject
) -> None:
    """A chain of segments, cut anywhere, fills an equal buffer, also a larger one."""
    segments: list[dict[str, torch.Tensor]] = []
    mark = (0, 0)

    def maybe_cut(replay: Replay, oracle: Oracle) -> None:
        nonlocal mark
        if data.draw(st.booleans()):
            segments.append(replay.since(mark))
            mark = replay.mark()

    replay, oracle = play(history, episode_length, maybe_cut)
    segments.append(replay.since(mark))
    again = Replay(
        history["capacity"] + larger, SIZE, 2, len(history["lengths"]), episode_length, seed=1
    )
    for segment in segments:
        again.extend({name: tensor.clone() for name, tensor in segment.items()})
    again.load_state(replay.state())
    assert len(again) == len(replay) and again.mark() == replay.mark()
    for name, tensor in vars(contents(replay)).items():
        assert torch.equal(tensor, getattr(contents(again), name)), name
    assert torch.equal(again.sample(9).actions, replay.sample(9).actions)
    for environment in range(len(history["lengths"])):
        assert torch.equal(again.newest_frame(environment), replay.newest_frame(environment))
    for environment in range(len(history["lengths"])):  # and both go on alike
        step = oracle.append(environment, False)
        replay.append(*step)
        again.append(*step)
    number = len(oracle.transitions)
    assert_rows_are_history(contents(again), oracle, list(range(number - len(again), number)))
    assert_rows_are_history(contents(replay), oracle, list(range(number - len(replay), number)))


def test_state_survives_json() -> None:
    replay, _ = play(history([[3, 2], [4]], rounds=5, capacity=6), 3)
    assert json.loads(json.dumps(replay.state())) == replay.state()


@pytest.mark.parametrize(
    ("capacity", "environments", "length"), [(1, 1, 1), (50, 3, 7), (10, 2, 99)]
)
def test_announced_bytes_are_the_allocated_ones(
    capacity: int, environments: int, length: int
) -> None:
    replay = Replay(capacity, 8, 3, environments, length)
    tensors = [replay.frames, replay.windows, replay.actions]
    tensors += [replay.rewards, replay.terminated, replay.last]
    allocated = sum(t.numel() * t.element_size() for t in tensors) + replay._first_frames.nbytes
    assert replay_bytes(capacity, 8, 3, environments, length) == allocated
    assert len(replay.frames) == frame_slots(capacity, environments, length)


def test_mistakes_are_refused() -> None:
    with pytest.raises(UserError, match="capacity is 0; allowed: 1 or more"):
        Replay(0, SIZE, 1)
    with pytest.raises(ValueError, match="environment 0 has no episode"):
        Replay(1, SIZE, 1).append(
            0, np.zeros(1, np.float32), 0.0, False, np.zeros((3, SIZE, SIZE), np.uint8)
        )


def test_sampling_follows_its_seed_alone() -> None:
    one, _ = play(history([[9]], rounds=27, capacity=30), 9)
    torch.manual_seed(1)
    first = one.sample(8).actions
    two, _ = play(history([[9]], rounds=27, capacity=30), 9)
    torch.manual_seed(2)
    assert torch.equal(first, two.sample(8).actions)
