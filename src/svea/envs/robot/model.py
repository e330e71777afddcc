"""The simulated Kinova Gen3: its model, where its joints must be, and how they get there."""

from __future__ import annotations

import math
from importlib import resources

import numpy as np

from svea.core.errors import UserError
from svea.envs.rendering import prepare_simulator

prepare_simulator()  # before MuJoCo is imported

import mujoco  # noqa: E402
from dm_control.mujoco import Physics  # noqa: E402
from dm_control.mujoco.wrapper import MjModel  # noqa: E402

JOINTS = 7
TOOL_HEIGHT = 0.02
"""Of the fingertips above the table, in metres: they meet the cube, the broader knuckles do not."""

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
    unique, exact, and a smooth function of the point.

    Args:
        x: Metres away from the base.
        y: Metres to the left of the base.
        height: Of the fingertips above the table, in metres.
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
