"""`rotate`, `shift`, `rotate_shift` and `camera`: the task's own camera, turned or moved.

One pose per episode, 100 poses per mode; the physics stays. The first three are the geometric modes
of DMC-GB2 (Almuzairee et al., RLC 2024, https://github.com/aalmuzairee/dmcgb2). With R_x, R_y and
R_z as rotations about the camera's own axes (right, up, backwards), its axes C become

- `rotate`: C R_z(θ), θ from -A up in 100 equal steps that end before A, with A = 90 (easy) or 180
  degrees (hard): the picture turns about its centre;
- `shift`: C R_y(a) R_x(b), where (a, b) goes around the border of a rectangle, 25 equal steps a
  side: the agent stands near the edge of the picture, never in the middle;
- `rotate_shift`: C R_y(a) R_x(b) R_z(θ). DMC-GB2 shuffles both lists of 100 with the same seed, so
  the k-th angle always meets the k-th pose of the border, whatever the seed;
- `rotate_shift_unpaired`: the same angles and poses in another, fixed order, so that the two have
  nothing to do with each other.

`camera` is that of RL-ViGen (Yuan et al., NeurIPS 2023, https://github.com/gemcollector/RL-ViGen):
the camera's place moves by up to 0.08 (easy) or 0.15 m (hard) along each axis of the world, and it
keeps its direction. There the place is drawn once per environment and stays fixed in the world, so
a camera that follows the agent no longer does; here it is one of 100 and is added to where the
camera is.
"""

from typing import Any

import numpy as np

from svea.envs.looks import Scene, WorldsMode

POSES = 100  # of each mode; DMC-GB2 has as many
MOST_ROLL = {"easy": 90.0, "hard": 180.0}  # degrees to either side

SHIFT_LIMITS = {
    "walker": (-10.0, 10.0, -10.0, 10.0),
    "cheetah": (-10.0, 10.0, -10.0, 10.0),
    "cartpole": (-8.0, 8.0, -10.0, 10.0),
    "finger": (-6.0, 6.0, -6.0, 12.0),
    "ball_in_cup": (-6.0, 6.0, -6.0, 12.0),
}
"""The rectangle of `shift_hard` by domain, in degrees: least and most about y, then about x."""

EASIER = 1.5  # divides the limits for `shift_easy`
MOST_OFFSET = {"easy": 0.08, "hard": 0.15}  # metres along each axis


class CameraMode(WorldsMode):
    """Shows the scene from one of 100 poses per episode."""

    def __init__(self, name: str) -> None:
        own = name.startswith(("camera", "rotate_shift_unpaired"))
        super().__init__(name, range(POSES), source="stored" if own else "dmcgb2")

    def prepare(self, model: Any, domain: str) -> None:
        """Compute the poses of this domain."""
        kind, _, level = self.name.rpartition("_")
        self.offsets = camera_offsets(level) if kind == "camera" else np.zeros((POSES, 3))
        most = MOST_ROLL[level] if "rotate" in kind else 0.0
        angles = np.arange(POSES) * (2 * most / POSES) - most
        border = shift_border(domain, level) if "shift" in kind else np.zeros((POSES, 2))
        if kind.endswith("unpaired"):
            border = border[np.random.RandomState(POSES).permutation(POSES)]  # frozen for good
        self.turns = turn_about("y", border[:, 0]) @ turn_about("x", border[:, 1])
        self.turns = self.turns @ turn_about("z", angles)

    def update(self, scene: Scene) -> None:
        """Turn and move the camera from where the simulator puts it with every step."""
        axes = scene.data.cam_xmat[scene.camera].reshape(3, 3)
        scene.data.cam_xmat[scene.camera] = (axes @ self.turns[self._world]).ravel()
        scene.data.cam_xpos[scene.camera] += self.offsets[self._world]


def shift_border(domain: str, level: str) -> np.ndarray:
    """The poses of `shift`, `(100, 2)`: degrees about y and x, once around the rectangle."""
    limits = np.array(SHIFT_LIMITS[domain]) / (EASIER if level == "easy" else 1.0)
    left, right, low, high = limits
    corners = np.array([[left, low], [right, low], [right, high], [left, high]])
    steps = np.arange(POSES // 4)[:, None] / (POSES // 4)
    following = np.roll(corners, -1, axis=0)
    sides = [a + steps * (b - a) for a, b in zip(corners, following, strict=True)]
    return np.concatenate(sides)


def camera_offsets(level: str) -> np.ndarray:
    """The offsets of `camera`, `(100, 3)` metres, uniform in a cube; the easy ones are smaller."""
    # RandomState, because its stream is frozen for good.
    return np.random.RandomState(POSES).uniform(-1, 1, (POSES, 3)) * MOST_OFFSET[level]


def turn_about(axis: str, degrees: np.ndarray) -> np.ndarray:
    """Rotation matrices about one axis, counter-clockwise when seen from its tip: `(n, 3, 3)`."""
    first, second = {"x": (1, 2), "y": (2, 0), "z": (0, 1)}[axis]
    angles = np.radians(degrees)
    turns = np.tile(np.eye(3), (len(angles), 1, 1))
    turns[:, first, first] = turns[:, second, second] = np.cos(angles)
    turns[:, second, first] = np.sin(angles)
    turns[:, first, second] = -np.sin(angles)
    return turns
