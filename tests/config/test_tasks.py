"""Names of tasks."""

import pytest

from svea.core.errors import UserError
from svea.envs import (
    ACTION_REPEAT,
    PAPER_TASKS,
    ROBOT_TASKS,
    TASKS,
    check_task,
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


@pytest.mark.parametrize(
    "given", ["waler_walk", "svea/walker_walk-v0", "mymodule.make_env", "ALE/Pong-v5", "xyz"]
)
def test_an_unknown_task_gets_a_short_hint(given):
    with pytest.raises(UserError) as refused:
        check_task(given)
    message = str(refused.value)
    assert repr(given) in message and len(message) < 250
    assert ("'walker_walk'" in message) == ("wal" in given)


def test_known_tasks_and_own_environments_pass():
    for task in (*TASKS, "games:make"):  # which is told by its colon
        check_task(task)
        assert is_foreign(task) == (task not in TASKS)
