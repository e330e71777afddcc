"""`svea tasks`: every task, and the modes in which it can be evaluated."""

from __future__ import annotations

import json as jsonlib

from svea.cli.arguments import Positional, parse
from svea.core.errors import unknown_name


def run(arguments: list[str]) -> int:
    """Read the arguments and run the verb."""
    return parse(command, "tasks", arguments)


def command(names: Positional[tuple[str, ...]] = (), json: bool = False) -> int:
    """List every task with the length of a decision and of an episode, and all modes.

    With --json each task has the modes that it has; shift is defined for five domains only.

    Args:
        names: only tasks with one of these words in their names, such as walker.
        json: print JSON instead of a table.
    """
    from svea.cli.printing import print_table, say
    from svea.config.tasks import ACTION_REPEAT, EPISODE_FRAMES, ROBOT_TASKS, TASKS
    from svea.envs import GROUPS, MODES, PAPER_TASKS, PICTURE_MODES, ROBOT_MODES, modes_of

    def source(task: str) -> str:
        suite = "dm_control, in the paper" if task in PAPER_TASKS else "dm_control"
        return "the paper's robot" if task in ROBOT_TASKS else suite

    rows = [
        {
            "task": task,
            "from": source(task),
            "frames per decision": ACTION_REPEAT[task],
            "frames per episode": EPISODE_FRAMES[task],
        }
        for task in TASKS
        if not names or any(name in task for name in names)
    ]
    if not rows:
        raise unknown_name("task", " ".join(names), TASKS)
    if json:
        rows = [row | {"modes": list(modes_of(str(row["task"])))} for row in rows]
        print(jsonlib.dumps(rows, indent=1))
        return 0
    print_table(rows)
    say(f"modes (all): {', '.join(MODES)}; robot tasks: {', '.join(ROBOT_MODES)}")
    for group in ("geometry", "lights"):
        say(f"{group}: {', '.join(GROUPS[group])}")
    say(f"any task: {', '.join(PICTURE_MODES)}, and module:class of your own")
    say(
        "your own environment: module:function, or a Gymnasium id such as CarRacing-v3 "
        "(docs/your-environment.md)"
    )
    return 0
