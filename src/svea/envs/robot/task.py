"""The robot tasks: a Kinova Gen3 reaches for a red mark, follows it, or pushes a cube onto it.

The tasks have the form of dm_control's, so that everything else (stacked pictures, seeds, modes) is
shared with the suite. docs/robot.md says where every number comes from.
"""

# ruff: noqa: E402
import math
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from svea.core.errors import UserError
from svea.envs.rendering import prepare_simulator

prepare_simulator()  # before MuJoCo is imported

import mujoco
from dm_control.mujoco import Physics
from dm_control.mujoco.wrapper import MjModel
from dm_control.rl import control
from dm_control.suite import base
from dm_env import specs

JOINTS = 7
TOOL_HEIGHT = 0.02  # metres over the table: fingertips meet the cube, the broader knuckles do not
STEP_SECONDS = 0.04  # of a decision: 20 simulator steps of 2 ms
REACH = 0.05  # metres by which an action of 1 moves the commanded point
WORKSPACE = np.array([[0.28, -0.22], [0.64, 0.22]])  # of that point: corners, x away from the base
RADIUS = 0.0475  # metres around the mark's centre that are the success state
SPEEDS = (0.001, 0.004)  # of a moving mark along x and y, metres per step; drawn once per episode
CUBE = 0.04  # metres: half the cube's side

_START, _AREA = ((0.35, -0.10), (0.40, 0.10)), ((0.45, -0.20), (0.62, 0.20))
MARK_AREA = np.array(_AREA)  # where the mark can be; a moving one turns round at the borders

# Lengths of the arm in metres, summed from the positions of its bodies in robot.xml.
_SHOULDER_HEIGHT = 0.05 + 0.15643 + 0.12838  # above the table; the base stands 0.05 higher
_UPPER_ARM = 2 * 0.21038
_FOREARM = 0.20843 + 0.10593
_HAND = 0.10593 + 0.06149039 + 0.1627  # wrist to fingertips
_OFFSET = 0.006375 - 0.005375 + 2 * 0.00017505  # of the hand, to the left of the arm's plane

STIFFNESS = 60.0
"""Bandwidth of the position control in rad/s. From 80 on, fast commands ask for more torque than
the joints have, and the gripper leaves its height."""


def joint_angles(x: float, y: float, height: float = TOOL_HEIGHT) -> np.ndarray:
    """The joint angles that bring the fingertips over a point of the table, pointing down.

    Joints 3 and 5 stay where they fold the arm into a vertical plane. Joint 1 turns that plane;
    2, 4 and 6 are a planar arm whose hand hangs down; 7 turns the hand back, so that the gripper's
    broad side faces away from the base everywhere. Without a redundant joint the solution is
    unique, exact, and a smooth function of the point. In metres: x away from the base, y to its
    left, and the height of the fingertips above the table.
    """
    turn = math.atan2(y, x) - math.asin(_OFFSET / math.hypot(x, y))
    reach = math.sqrt(x * x + y * y - _OFFSET**2)
    rise = height + _HAND - _SHOULDER_HEIGHT
    distance = math.hypot(reach, rise)
    straightness = (distance**2 - _UPPER_ARM**2 - _FOREARM**2) / (2 * _UPPER_ARM * _FOREARM)
    if not abs(straightness) < 1:
        raise UserError(f"the arm cannot reach ({x:.3f}, {y:.3f}) at height {height:.3f}.")
    elbow = math.acos(straightness)
    bend = math.atan2(_FOREARM * math.sin(elbow), _UPPER_ARM + _FOREARM * math.cos(elbow))
    shoulder = math.atan2(reach, rise) - bend
    wrist = shoulder + elbow - math.pi
    return np.array([-turn, shoulder, math.pi, -elbow, 0.0, wrist, math.pi / 2 - turn])


class RobotPhysics(Physics):
    """The simulator, with the arm's own position control running at every simulator step.

    As in a real arm, a fast loop turns the commanded position into torques, here by inverse
    dynamics: torque = M(q) (k² (q_target - q) - 2 k q') + bias(q, q'), clipped to the limits of the
    joints. All joints then answer alike, critically damped with bandwidth k, so the gripper keeps
    its height and orientation while it moves.
    """

    path: tuple[np.ndarray, np.ndarray] = (np.zeros(2), np.zeros(2))
    """Where the commanded point of the table is at the beginning and the end of the next step."""

    def step(self, nstep: int = 1) -> None:
        """Simulate, moving the commanded point evenly along its path."""
        model, data = self.model.ptr, self.data.ptr
        start, end = self.path
        acceleration, torque = np.zeros((2, model.nv))
        with self.check_invalid_state():
            for number in range(1, nstep + 1):
                target = joint_angles(*(start + (end - start) * (number / nstep)))
                error = target - data.qpos[:JOINTS]
                velocity = data.qvel[:JOINTS]
                acceleration[:JOINTS] = STIFFNESS * (STIFFNESS * error - 2 * velocity)
                mujoco.mj_mulM(model, data, torque, acceleration)
                data.ctrl[:] = torque[:JOINTS] + data.qfrc_bias[:JOINTS]
                mujoco.mj_step2(model, data)
                mujoco.mj_step1(model, data)  # positions and bias for the next torque or picture


def build(*, cube: bool) -> RobotPhysics:
    """Compile the arm at its table, with a cube on it or without."""
    spec = mujoco.MjSpec.from_string(
        resources.files("svea.envs.robot").joinpath("robot.xml").read_text()
    )
    if not cube:
        spec.delete(spec.body("cube"))
    return RobotPhysics.from_model(MjModel(spec.compile()))


Corners = tuple[tuple[float, float], tuple[float, float]]


@dataclass(frozen=True)
class Rules:
    """What distinguishes the three tasks."""

    start: Corners  # of where the gripper begins
    mark: Corners
    share: float = 0.5  # of the steps that must be in the success state, for a success
    moves: bool = False  # the mark
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


def load(task: str) -> control.Environment:
    """Build a task of `RULES` and its simulator, as `dm_control.suite.load` does for its own."""
    rules = RULES[task]
    physics = build(cube=rules.cube is not None)
    return control.Environment(physics, RobotTask(rules), control_timestep=STEP_SECONDS)


class RobotTask(base.Task):
    """Bring the gripper, or the cube, to the mark and keep it there.

    An action moves the commanded point of the table; the arm follows it (see `RobotPhysics`). The
    reward of a step is minus the distance in metres, plus 1 within the mark's radius.
    """

    def __init__(self, rules: Rules) -> None:
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
