"""Names of tasks."""

from __future__ import annotations

from svea.envs import (
    ACTION_REPEAT,
    PAPER_TASKS,
    ROBOT_TASKS,
    TASKS,
    is_foreign,
    prepare_simulator,
)


def test_tasks_are_those_of_the_suite():
    prepare_simulator()
    from dm_control import suite

    of_suite = {f"{domain}_{task}" for domain, task in suite.ALL_TASKS}
    assert set(TASKS) == of_suite | set(ROBOT_TASKS) and not of_suite & set(ROBOT_TASKS)
    assert len(TASKS) == len(set(TASKS)) and TASKS[:6] == PAPER_TASKS
    assert set(ACTION_REPEAT) == set(TASKS)


def test_a_users_own_environment_is_told_by_its_colon():
    assert is_foreign("games:make") and not any(map(is_foreign, TASKS))
