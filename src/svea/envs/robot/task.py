"""The robot tasks: a Kinova Gen3 reaches for a red mark, follows it, or pushes a cube onto it.

The tasks have the form of dm_control's, so that everything else (stacked pictures, seeds, modes) is
shared with the suite. docs/robot.md says where every number comes from.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from dm_env import specs

# This prepares the simulator, so dm_control comes after it.
from svea.envs.robot.model import JOINTS, RobotPhysics, build, joint_angles

from dm_control.rl import control  # isort: skip
from dm_control.suite import base  # isort: skip

Corners = tuple[tuple[float, float], tuple[float, float]]

STEP_SECONDS = 0.04
"""One decision: 20 simulator steps of 2 ms."""

REACH = 0.05
"""How far an action of 1 moves the commanded point, in metres."""

WORKSPACE = np.array([[0.28, -0.22], [0.64, 0.22]])
"""Corners of where the commanded point may be: x metres away from the base, y to its left."""

RADIUS = 0.0475
"""Of the red mark, in metres: within it is the success state."""

_START, _AREA = ((0.35, -0.10), (0.40, 0.10)), ((0.45, -0.20), (0.62, 0.20))
MARK_AREA = np.array(_AREA)
"""Where the mark can be; a moving one turns round at the borders."""

SPEEDS = (0.001, 0.004)
"""Speed of a moving mark along x and along y, in metres per step; drawn once per episode."""

CUBE = 0.04
"""Half the cube's side, in metres."""


@dataclass(frozen=True)
class Rules:
    """What distinguishes the three tasks.

    Attributes:
        start: Corners of where the gripper begins.
        mark: Corners of where the mark begins.
        share: Of the steps that must be in the success state for the episode to be a success.
        moves: Whether the mark moves.
        cube: Corners of where the cube begins; None where there is none.
    """

    start: Corners
    mark: Corners
    share: float = 0.5
    moves: bool = False
    cube: Corners | None = None


RULES = {
    "reach": Rules(_START, _AREA),
    "reach_moving": Rules(_START, _AREA, moves=True),
    "push": Rules(
        start=((0.28, -0.05), (0.29, 0.05)),
        mark=((0.56, -0.15), (0.62, 0.15)),
        share=0.25,
        cube=((0.37, -0.08), (0.40, 0.08)),
    ),
}


def load(domain: str, task: str) -> control.Environment:
    """Build a task and its simulator, as `dm_control.suite.load` does for the suite's.

    Args:
        domain: Always `robot`.
        task: A name in `RULES`.
    """
    rules = RULES[task]
    physics = build(cube=rules.cube is not None)
    return control.Environment(physics, RobotTask(rules), control_timestep=STEP_SECONDS)


class RobotTask(base.Task):
    """Bring the gripper, or the cube, to the mark and keep it there.

    An action moves the commanded point of the table; the arm follows it (see `RobotPhysics`). The
    reward of a step is minus the distance in metres, plus 1 within the mark's radius.
    """

    def __init__(self, rules: Rules) -> None:
        """Keep the rules; every draw is made by `initialize_episode`."""
        super().__init__(random=0)
        self._rules = rules
        self.command = np.zeros(2)  # where the gripper is to be
        self.mark_velocity = np.zeros(2)  # metres per step
        self._steps = self._steps_in_success = 0

    def action_spec(self, physics: RobotPhysics) -> specs.BoundedArray:
        """Two numbers in [-1, 1]: away from the base, and to its left."""
        return specs.BoundedArray((2,), np.float64, -1.0, 1.0)

    def initialize_episode(self, physics: RobotPhysics) -> None:
        """Draw where gripper, mark and cube are, and how the mark moves."""
        rules = self._rules
        self._steps = self._steps_in_success = 0
        self.command = self.random.uniform(*rules.start)
        physics.data.qpos[:JOINTS] = joint_angles(*self.command)
        physics.data.mocap_pos[0, :2] = self.random.uniform(*rules.mark)
        if rules.moves:
            self.mark_velocity = self.random.uniform(*SPEEDS) * self.random.choice([-1.0, 1.0], 2)
        if rules.cube is not None:
            yaw = self.random.uniform(-np.pi, np.pi)
            turn = [np.cos(yaw / 2), 0.0, 0.0, np.sin(yaw / 2)]
            place = self.random.uniform(*rules.cube)
            physics.data.qpos[JOINTS:] = [*place, CUBE, *turn]

    def before_step(self, action: np.ndarray, physics: RobotPhysics) -> None:
        """Move the commanded point and the mark."""
        start = self.command
        self.command = np.clip(start + REACH * np.asarray(action), *WORKSPACE)
        physics.path = (start, self.command)
        if self._rules.moves:
            mark = physics.data.mocap_pos[0, :2] + self.mark_velocity
            outside = (mark < MARK_AREA[0]) | (mark > MARK_AREA[1])
            self.mark_velocity = np.where(outside, -self.mark_velocity, self.mark_velocity)
            low, high = MARK_AREA
            mirrored = np.where(mark < low, 2 * low - mark, 2 * high - mark)
            physics.data.mocap_pos[0, :2] = np.where(outside, mirrored, mark)

    def after_step(self, physics: RobotPhysics) -> None:
        """Count the steps in the success state."""
        self._steps += 1
        self._steps_in_success += self.distance(physics) <= RADIUS

    def get_reward(self, physics: RobotPhysics) -> float:
        """Minus the distance, plus 1 on the mark: 50 at most in an episode of 50 steps."""
        distance = self.distance(physics)
        return float(distance <= RADIUS) - distance

    def get_observation(self, physics: RobotPhysics) -> dict[str, np.ndarray]:
        """Nothing: agents see pictures."""
        return {}

    def distance(self, physics: RobotPhysics) -> float:
        """From gripper or cube to the mark's centre, along the table, in metres."""
        data = physics.data
        moved = data.qpos[JOINTS:] if self._rules.cube else data.ptr.site("tool").xpos
        return float(np.hypot(*(moved[:2] - data.mocap_pos[0, :2])))

    def episode_info(self, physics: RobotPhysics) -> dict[str, Any]:
        """What `info` holds in addition to the frames."""
        distance = self.distance(physics)
        info: dict[str, Any] = {
            "distance": distance,
            "in_success_state": distance <= RADIUS,
            "success": self._steps > 0
            and self._steps_in_success >= self._rules.share * self._steps,
        }
        if self._rules.cube:
            info["off_table"] = bool(physics.data.qpos[JOINTS + 2] < CUBE / 2)
        return info
