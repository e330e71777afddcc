"""The simulated Kinova Gen3: its model, where its joints must be, and how they get there."""

from __future__ import annotations

import math
import os
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

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

_VISUAL_GROUP = 2
# Joint angles of the closed 2F-85: driver, coupler, spring link and follower, on both sides.
_CLOSED = {"driver": 0.7808, "coupler": 0.0005, "spring_link": 0.7799, "follower": -0.7555}


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


class Meshes(NamedTuple):
    """Where the models of MuJoCo Menagerie lie, whose meshes can be drawn."""

    arm: Path
    gripper: Path


def build(*, cube: bool, meshes: Meshes | None = None) -> RobotPhysics:
    """Compile the arm at its table.

    Args:
        cube: Whether a cube lies on the table.
        meshes: Draw these in place of our primitive shapes. The physics is the same.
    """
    spec = mujoco.MjSpec.from_string(
        resources.files("svea.envs.robot").joinpath("robot.xml").read_text()
    )
    if not cube:
        spec.delete(spec.body("cube"))
    if meshes is not None:
        _draw_meshes(spec, meshes)
    return RobotPhysics.from_model(MjModel(spec.compile()))


def find_meshes(menagerie: str | os.PathLike[str]) -> Meshes:
    """Find Menagerie's arm and gripper.

    Args:
        menagerie: A folder that holds `kinova_gen3` and `robotiq_2f85`, or `auto`: the folder named
            by the variable `SVEA_MENAGERIE`, else what the package mujoco-menagerie has downloaded.
    """
    named = os.environ.get("SVEA_MENAGERIE")
    if str(menagerie) == "auto" and not named:
        return _downloaded_meshes()
    folder = Path(named if named and str(menagerie) == "auto" else menagerie).expanduser()
    found = Meshes(folder / "kinova_gen3" / "gen3.xml", folder / "robotiq_2f85" / "2f85.xml")
    for path in found:
        if not path.is_file():
            raise UserError(
                f"menagerie is {str(menagerie)!r}, but {path} is not there; give a folder of "
                "MuJoCo Menagerie that holds kinova_gen3 and robotiq_2f85, or leave the option out."
            )
    return found


def _downloaded_meshes() -> Meshes:
    """What the package mujoco-menagerie has downloaded; this never downloads anything itself."""
    try:
        import mujoco_menagerie
    except ImportError:
        raise UserError(
            "menagerie is 'auto', but SVEA_MENAGERIE is not set and the package mujoco-menagerie "
            "is not installed: pip install mujoco-menagerie, or give the folder."
        ) from None
    names = ("kinova_gen3", "robotiq_2f85")
    robots = [mujoco_menagerie.get(name) for name in names]
    if not all(mujoco_menagerie.Cache().is_cached(robot) for robot in robots):
        raise UserError(
            "menagerie is 'auto', but mujoco-menagerie has not downloaded both models: run "
            f"mujoco-menagerie prefetch {' '.join(names)}."
        )
    return Meshes(robots[0].path() / "gen3.xml", robots[1].path() / "2f85.xml")


def _draw_meshes(spec: Any, meshes: Meshes) -> None:
    """Replace the shapes that are drawn; those that collide, and the inertias, stay."""
    arm = mujoco.MjSpec.from_file(str(meshes.arm))
    gripper = mujoco.MjSpec.from_file(str(meshes.gripper))
    for body in [spec.body(name) for name in [each.name for each in arm.bodies[1:]] + ["gripper"]]:
        for geom in [geom for geom in body.geoms if geom.group == _VISUAL_GROUP]:
            spec.delete(geom)
    for body in arm.bodies[1:]:
        for geom in _visible(body):
            mesh = _add_mesh(spec, arm, meshes.arm, geom.meshname)
            _add_geom(spec.body(body.name), mesh, "arm", geom.pos, geom.quat)
    model = gripper.compile()
    data = mujoco.MjData(model)
    for side in ("left", "right"):
        for name, angle in _CLOSED.items():
            data.joint(f"{side}_{name}_joint").qpos = angle
    mujoco.mj_kinematics(model, data)
    for body in gripper.bodies[1:]:
        for geom in _visible(body) if body.name != "base_mount" else ():  # the Gen3 needs no mount
            mesh = _add_mesh(spec, gripper, meshes.gripper, geom.meshname)
            material = "metal" if geom.meshname in ("driver", "pad") else "black"
            _add_geom(spec.body("gripper"), mesh, material, *_pose_in(data, body.name, "base"))


def _visible(body: Any) -> list[Any]:
    """The meshes of a Menagerie body that are drawn."""
    return [geom for geom in body.geoms if geom.group == _VISUAL_GROUP]


def _add_mesh(spec: Any, source: Any, path: Path, name: str) -> str:
    """Add a mesh file of another model once, under a name of its own."""
    own = f"{path.stem}/{name}"
    if spec.mesh(own) is None:
        mesh = source.mesh(name)
        file = path.parent / source.meshdir / mesh.file
        spec.add_mesh(name=own, file=str(file.resolve()), scale=mesh.scale)
    return own


def _add_geom(body: Any, mesh: str, material: str, pos: np.ndarray, quat: np.ndarray) -> None:
    """Add a mesh that is drawn and has no part in the physics."""
    body.add_geom(
        type=mujoco.mjtGeom.mjGEOM_MESH, meshname=mesh, material=material, pos=pos, quat=quat,
        contype=0, conaffinity=0, mass=0.0, group=_VISUAL_GROUP,
    )  # fmt: skip


def _pose_in(data: Any, name: str, frame: str) -> tuple[np.ndarray, np.ndarray]:
    """Position and orientation of one body seen from another."""
    back, pos, quat = np.zeros(4), np.zeros(3), np.zeros(4)
    body, origin = data.body(name), data.body(frame)
    mujoco.mju_negQuat(back, origin.xquat)
    mujoco.mju_rotVecQuat(pos, body.xpos - origin.xpos, back)
    mujoco.mju_mulQuat(quat, back, body.xquat)
    return pos, quat
