"""A scripted controller of the robot tasks, which sees the simulator's state.

It shows that the tasks can be solved, and how well: docs/robot.md has its success rates.
"""

import numpy as np

from svea.envs.robot.task import JOINTS, REACH, RobotPhysics, RobotTask

_LEAD = 1.5  # steps by which the gripper trails its command: aim where the mark will be
_CLEARANCE = 0.09  # from the cube's centre to the gripper that goes round it, in metres
_TURN = 0.5  # radians per step on that way
_ALIGNED = 0.012  # how far off the line through cube and mark a push may begin, in metres
_PUSH = 0.02  # metres per step: faster ones let the cube slide on by itself
_DONE = 0.01  # near enough to the mark's centre


def expert_action(task: RobotTask, physics: RobotPhysics) -> np.ndarray:
    """The action for the current state of a task."""
    mark = physics.data.mocap_pos[0, :2]
    if physics.model.nq == JOINTS:
        aim = mark + _LEAD * task.mark_velocity
    else:
        aim = task.command + push(task.command, physics.data.qpos[JOINTS : JOINTS + 2], mark)
    return np.clip((aim - task.command) / REACH, -1.0, 1.0).astype(np.float32)


def push(tool: np.ndarray, cube: np.ndarray, mark: np.ndarray) -> np.ndarray:
    """How to move the gripper: get behind the cube as seen from the mark, then push it there."""
    way, off = mark - cube, tool - cube
    remaining = float(np.linalg.norm(way))
    if remaining < _DONE:
        return np.zeros(2)
    ahead = way / remaining
    left = np.array([-ahead[1], ahead[0]])
    if off @ ahead < 0 and abs(off @ left) < _ALIGNED:
        return ahead * min(_PUSH, remaining) - left * (off @ left)
    now, behind = np.arctan2(off[1], off[0]), np.arctan2(-ahead[1], -ahead[0])
    turn = (behind - now + np.pi) % (2 * np.pi) - np.pi
    angle = now + np.clip(turn, -_TURN, _TURN)
    return cube + _CLEARANCE * np.array([np.cos(angle), np.sin(angle)]) - tool
