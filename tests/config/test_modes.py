"""Names of tasks and modes: what users type."""

import pytest

import svea.envs
from svea.core.errors import UserError
from svea.envs import (
    ACTION_REPEAT,
    MODES,
    PAPER_TASKS,
    ROBOT_TASKS,
    TASKS,
    check_task,
    expand_modes,
    is_foreign,
    make_env,
    parse_mode,
    prepare_simulator,
)


def test_all_is_train_and_the_five_modes():
    six = ["train", "color_easy", "color_hard", "video_easy", "video_hard", "distracting_cs"]
    assert list(MODES) == six == expand_modes(["all"])
    assert expand_modes(["color_hard", "all"])[:2] == ["color_hard", "train"]


def test_distracting_all_is_the_eight_intensities():
    modes = expand_modes(["distracting_cs:0.1", "distracting_cs:all"])
    assert len(modes) == 8 and modes[0] == "distracting_cs:0.1"
    assert {parse_mode(mode)[1]["intensity"] for mode in modes} == {
        *(0.025, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5)
    }


def test_groups_are_the_modes_of_their_kind():
    assert expand_modes(["colors", "videos"]) == [
        *("color_easy", "color_hard", "video_easy", "video_hard")
    ]
    assert expand_modes(["geometry"]) == list(svea.envs.GEOMETRY_MODES)
    assert expand_modes(["lights"], "finger_spin") == list(svea.envs.LIGHT_MODES)
    everything = expand_modes(["everything"], "walker_walk")
    assert everything == list(svea.envs.modes_of("walker_walk")) and len(everything) == 24
    own = ["train", "picture_colors", "picture_video"]  # what needs no scene
    assert expand_modes(["everything"], "toy:make") == expand_modes(["all"], "toy:make") == own
    assert expand_modes(["picture_colors"], "robot_push") == ["picture_colors"]
    assert "test" in expand_modes(["everything"], "robot_push")
    assert "test" not in expand_modes(["everything"])


def test_a_group_is_what_the_task_has_of_it():
    """DMC-GB2 says how far to shift for five domains; reacher's camera sees no sky."""
    assert expand_modes(["geometry"], "hopper_hop") == [
        *("rotate_easy", "rotate_hard", "camera_easy", "camera_hard")
    ]
    assert expand_modes(["videos"], "reacher_easy") == ["video_hard"]
    assert "video_easy" not in expand_modes(["all"], "reacher_easy")


@pytest.mark.parametrize(
    ("modes", "task", "named"),
    [
        (["all", "video_esay"], None, "'video_easy'"),
        (["lights"], "robot_push", "'lights'"),
        (["geometry", "shift_hard"], "hopper_hop", "'shift_hard' does not fit hopper_hop"),
        (["geometri"], "walker_walk", "'geometry'"),
    ],
)
def test_modes_are_checked_when_they_are_expanded(modes, task, named):
    with pytest.raises(UserError, match=named):
        expand_modes(modes, task)


@pytest.mark.parametrize("group", svea.envs.GROUPS)
def test_a_group_is_not_a_mode(group):
    with pytest.raises(UserError, match=f"'{group}'"):
        make_env("walker_walk", group)


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
