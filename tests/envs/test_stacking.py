"""Stacking and counting, without an environment."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

from svea.envs.stacking import StackedEpisode


def test_pictures_move_through_the_stack_oldest_first():
    episode = StackedEpisode(2, 0, 10)
    first = episode.fill(np.full((3, 2, 2), 1, np.uint8))
    second = episode.push(np.full((3, 2, 2), 2, np.uint8))
    third = episode.push(episode.newest)
    assert [seen[::3, 0, 0].tolist() for seen in (first, second, third)] == [
        [1, 1, 1], [1, 1, 2], [1, 2, 2],
    ]  # fmt: skip
    assert third.shape == episode.space.shape and third.dtype == np.uint8


def test_frames_are_counted_up_to_the_limit():
    episode = StackedEpisode(2, 0, 2)
    with pytest.raises(gym.error.ResetNeeded):
        episode.check_running()
    episode.begin()
    episode.check_running()
    assert [episode.count_frame(), episode.count_frame()] == [False, True]
    episode.begin()
    assert episode.frames == 0


def test_the_first_seed_is_used_once():
    episode = StackedEpisode(2, 7, 2)
    assert [episode.choose_seed(None), episode.choose_seed(None)] == [7, None]
    assert StackedEpisode(2, 7, 2).choose_seed(3) == 3
