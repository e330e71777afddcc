"""The tasks: their names, their domains, and how long a decision and an episode are."""

from __future__ import annotations

import difflib
import re
import shlex

from svea.core.errors import UserError

PAPER_TASKS = (
    "walker_walk",
    "walker_stand",
    "cartpole_swingup",
    "cartpole_balance",
    "ball_in_cup_catch",
    "finger_spin",
)

# Written out, because asking dm_control takes two seconds; a test compares the two.
_SUITE = {
    "acrobot": "swingup swingup_sparse",
    "ball_in_cup": "catch",
    "cartpole": "balance balance_sparse swingup swingup_sparse three_poles two_poles",
    "cheetah": "run",
    "dog": "fetch run stand trot walk",
    "finger": "spin turn_easy turn_hard",
    "fish": "swim upright",
    "hopper": "hop stand",
    "humanoid": "run run_pure_state stand walk",
    "humanoid_CMU": "run stand walk",
    "lqr": "lqr_2_1 lqr_6_2",
    "manipulator": "bring_ball bring_peg insert_ball insert_peg",
    "pendulum": "swingup",
    "point_mass": "easy hard",
    "quadruped": "escape fetch run walk",
    "reacher": "easy hard",
    "stacker": "stack_2 stack_4",
    "swimmer": "swimmer15 swimmer6",
    "walker": "run stand walk",
}
DOMAIN_AND_TASK = {f"{d}_{t}": (d, t) for d, tasks in _SUITE.items() for t in tasks.split()}

ROBOT_TASKS = ("robot_reach", "robot_reach_moving", "robot_push")
"""Our own tasks of the paper's robot, a Kinova Gen3."""

DOMAIN_AND_TASK |= {name: ("robot", name.removeprefix("robot_")) for name in ROBOT_TASKS}

_FIRST = PAPER_TASKS + ROBOT_TASKS
TASKS = _FIRST + tuple(name for name in DOMAIN_AND_TASK if name not in _FIRST)
"""Every task as `domain_task`: the paper's six, the robot's three, then all else of the suite."""

ACTION_REPEAT = {
    name: {"cartpole": 8, "finger": 2, "robot": 1}.get(domain, 4)
    for name, (domain, _) in DOMAIN_AND_TASK.items()
}
"""Simulator steps per decision, as in the paper: 8 for cartpole, 2 for finger, 1 for the robot, 4
otherwise."""

EPISODE_FRAMES = {name: 50 if name in ROBOT_TASKS else 1000 for name in TASKS}
"""Simulator steps per episode, as in the paper."""


def is_foreign(task: str) -> bool:
    """Whether a task is a user's own environment, named as `module:function` or `module:id`.

    >>> is_foreign("walker_walk"), is_foreign("mygames:make"), is_foreign("ale_py:ALE/Pong-v5")
    (False, True, True)
    """
    return ":" in task


def check_task(task: str) -> None:
    """Refuse a name that is neither a task nor `module:function`.

    >>> check_task("waler_walk")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    svea.core.errors.UserError: unknown task 'waler_walk'. Did you mean 'walker_walk'? ...
    """
    if task.startswith("zoo:"):
        raise UserError(
            f"task is {task!r}, which is an agent of the zoo and not a task. "
            f"`svea eval {shlex.quote(task)}` evaluates it, `svea tasks` lists tasks; a module "
            "of yours needs another name than zoo"
        )
    if is_foreign(task) or task in TASKS:
        return
    ours = re.sub(r"^svea/(.*)-v0$", r"\1", task)
    near = difflib.get_close_matches(ours, TASKS, n=3, cutoff=0.6)
    module, dot, function = task.rpartition(".")
    if ours == task and re.search(r"-v\d+$", task):
        hint = (
            "Name a Gymnasium id with the module that registers it, as in gymnasium:CarRacing-v3 "
            "or ale_py:ALE/Pong-v5."
        )
    elif near:
        hint = f"Did you mean {' or '.join(map(repr, near))}?"
    elif dot and task.replace(".", "").isidentifier():
        hint = f"An environment of your own has a colon before its function: {module}:{function}."
    else:
        hint = "An environment of your own is named as module:function."
    raise UserError(f"unknown task {task!r}. {hint} `svea tasks` lists all {len(TASKS)} tasks")
