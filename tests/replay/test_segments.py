"""Segments of a replay buffer rebuild it, wherever the chain is cut."""

import json

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_oracle import PARTED, SIZE, Oracle, assert_rows_are_history, contents, histories, play

from svea.config.parts import PLAIN
from svea.replay import Replay
from svea.replay.segments import counters, cursor, extend, restore_counters, since


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
        for one, other in zip(again.newest(environment), replay.newest(environment), strict=True):
            assert other is one is None or torch.equal(one, other)
    for environment in range(len(history["lengths"])):  # and both continue alike
        step = oracle.append(environment, False)
        replay.append(*step, vector=oracle.vector())
        again.append(*step, vector=oracle.vector())
    number = len(oracle.transitions)
    for each in (again, replay) if n_step == 1 else ():  # the oracle's transitions are single steps
        assert_rows_are_history(contents(each), oracle, list(range(number - len(each), number)))
