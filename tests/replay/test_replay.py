"""The replay buffer against a slow oracle: a list of whole, stacked transitions."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_oracle import (
    PARTED,
    SIZE,
    Oracle,
    assert_rows_are_history,
    contents,
    histories,
    history,
    play,
)

from svea.config.parts import PLAIN, Parts
from svea.replay import Replay
from svea.replay.segments import counters, cursor, extend, restore_counters, since


@settings(max_examples=150)
@given(histories(), st.integers(1, 10), st.sampled_from([PLAIN, PARTED, Parts(("one", "two"))]))
def test_contents_equal_the_oracle_at_any_time(history, episode_length, parts):
    def check(replay: Replay, oracle: Oracle) -> None:
        newest = len(oracle.transitions)
        assert 0 < len(replay) <= min(history["capacity"], newest)
        assert_rows_are_history(contents(replay), oracle, list(range(newest - len(replay), newest)))
        batch = replay.sample(7)
        numbers = [int(a) for a in batch.actions[:, 0]]
        assert min(numbers) >= newest - len(replay), "a forgotten transition was drawn"
        assert_rows_are_history(batch, oracle, numbers)

    play(history, episode_length, check, parts=parts)


@settings(max_examples=150)
@given(histories(shortest=4), st.integers(1, 4))
def test_capacity_is_exact_when_episodes_are_long_enough(history, episode_length):
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
def test_several_decisions_equal_the_oracle_at_any_time(history, episode_length, n_step, discount):
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


def test_a_decision_without_an_episode_is_refused() -> None:
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


@settings(max_examples=150)
@given(
    histories(), st.integers(0, 40), st.integers(1, 10), st.integers(1, 4),
    st.sampled_from([PLAIN, PARTED]), st.data(),
)  # fmt: skip
def test_segments_rebuild_the_buffer(history, larger, episode_length, n_step, parts, data):
    """A chain of segments, cut anywhere, fills an equal buffer, also a larger one."""
    segments: list[dict[str, torch.Tensor]] = []
    start = (0, 0)

    def maybe_cut(replay: Replay, oracle: Oracle) -> None:
        nonlocal start
        if data.draw(st.booleans()):
            segments.append(since(replay, start))
            start = cursor(replay)

    replay, oracle = play(history, episode_length, maybe_cut, n_step=n_step, parts=parts)
    segments.append(since(replay, start))
    sizes = history["capacity"] + larger, SIZE, 2, len(history["lengths"]), episode_length
    again = Replay(*sizes, seed=1, n_step=n_step, parts=parts)
    for segment in segments:
        extend(again, {name: tensor.clone() for name, tensor in segment.items()})
    restore_counters(again, json.loads(json.dumps(counters(replay))))
    assert len(again) == len(replay) and cursor(again) == cursor(replay)
    for name, tensor in contents(replay):
        assert torch.equal(tensor, getattr(contents(again), name)), name
    assert torch.equal(again.sample(9).actions, replay.sample(9).actions)
    for environment in range(len(history["lengths"])):
        (frame, vector), (other, of_other) = (r.newest(environment) for r in (again, replay))
        assert torch.equal(frame, other)
        assert vector is None or (of_other is not None and torch.equal(vector, of_other))
    for environment in range(len(history["lengths"])):  # and both continue alike
        step = oracle.append(environment, False)
        replay.append(*step, vector=oracle.vector())
        again.append(*step, vector=oracle.vector())
    number = len(oracle.transitions)
    for each in (again, replay) if n_step == 1 else ():  # the oracle's transitions are single steps
        assert_rows_are_history(contents(each), oracle, list(range(number - len(each), number)))
