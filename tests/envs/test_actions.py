"""Numbered actions for tasks with continuous ones."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium.spaces import Discrete
from toy import Toy

from svea.core.errors import UserError
from svea.envs import make_env
from svea.envs.dmc import MOST_ACTIONS, DiscreteActions


@pytest.mark.parametrize(("bins", "dimensions"), [(2, 1), (3, 2), (4, 3), (2, 12), (4096, 1)])
def test_every_number_is_one_corner_of_a_grid(bins, dimensions):
    env = DiscreteActions(Toy(actions=dimensions), bins)
    assert env.action_space == Discrete(bins**dimensions)
    for number in {0, 1, bins**dimensions // 2, bins**dimensions - 1}:
        digits = [number // bins**place % bins for place in reversed(range(dimensions))]
        expected = [-1 + 2 * digit / (bins - 1) for digit in digits]
        np.testing.assert_allclose(env.action(number), expected, atol=1e-6)
        assert env.action(number).dtype == np.float32
    assert len({tuple(vector) for vector in env.vectors.tolist()}) == bins**dimensions


@pytest.mark.parametrize(("bins", "dimensions"), [(1, 1), (5, 6), (2, 13)])
def test_too_few_and_too_many_are_refused_with_the_number(bins, dimensions):
    with pytest.raises(UserError, match=f"{bins}.*{MOST_ACTIONS}"):
        DiscreteActions(Toy(actions=dimensions), bins)


def test_no_bins_for_what_is_already_discrete(examples_on_path):
    with pytest.raises(UserError, match="action_bins"):
        make_env("own_environment:make_discrete_catch", action_bins=3)


@pytest.mark.parametrize("action", [-1, 3, 0.5, float("nan"), [0, 1], []])
def test_numbers_out_of_range_are_refused(action):
    env = DiscreteActions(Toy(), 3)
    env.reset()
    with pytest.raises(UserError, match="0 to 2"):
        env.step(action)


def test_a_suite_task_with_numbered_actions_is_the_same_task():
    small = {"task": "cartpole_balance", "image_size": 16, "rendering": "fast"}
    plain, numbered = make_env(**small), make_env(**small, action_bins=5)
    assert numbered.action_space == Discrete(5)
    np.testing.assert_array_equal(plain.reset(seed=2)[0], numbered.reset(seed=2)[0])
    one, two = plain.step(np.array([0.5], np.float32)), numbered.step(3)
    np.testing.assert_array_equal(one[0], two[0])
    assert one[1:] == two[1:]
    plain.close()
    numbered.close()
