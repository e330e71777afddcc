"""`distracting_cs`: camera, colours and background that all move.

The Distracting Control Suite (Stone et al., 2021) as DMControl-GB uses it, at any intensity β:

- background: a video as the sky, one of the first few DAVIS-2017 training clips (2 to 8, all 60
  from β = 0.3), from a random frame, forwards and backwards; in most domains the floor is partly
  transparent;
- colours: every material starts within ±β of its own colour and walks at random inside that box;
- camera: moves at random on a sphere around the scene, ±90 β degrees to the sides, up and in roll,
  at (1 − 0.5 β) to (1 + 1.5 β) times its distance, always looking where it looked before.

All three move at every second simulator step. Here every draw comes from the seed of `reset` (the
original's do not), and the camera stays where it is at odd steps too (the original's falls back).
"""

import math
from pathlib import Path
from typing import Any

import numpy as np

from svea.config.modes import check_number
from svea.data import clips
from svea.data.clips import DAVIS
from svea.data.decode import SIDE as GENERATED_SIDE
from svea.envs.looks import Scene
from svea.envs.looks.colors import texture
from svea.envs.looks.videos import ClipMode

DEFAULT_INTENSITY = 0.1
_FLOOR_ALPHA = {"walker": 1.0, "cheetah": 1.0, "reacher": 0.0}
_OTHER_FLOOR_ALPHA = 0.3
_STEPS_PER_MOVE = 2

SKY_SIDE = 256
"""Of the sky's six sides in pixels. A picture spans 0.41 of one (the camera's 45 degrees), so 84
pixels show 106 of them; the original's 800 would be smoothed away and cost more to upload.
Generated clips have no more than their own 128."""


class DistractingMode(ClipMode):
    """Moves camera, colours and background."""

    def __init__(
        self,
        data_dir: Path | None = None,
        *,
        intensity: float = DEFAULT_INTENSITY,
        videos: str | Path | None = None,
    ) -> None:
        """Find the clips of this intensity, above 0 and up to 1 (`svea.data.clips.find`)."""
        self._intensity = check_number("distracting_cs", intensity)
        found = clips.find("distracting_cs", data_dir, videos, clip_count(self._intensity))
        self._side = SKY_SIDE if found.files else GENERATED_SIDE
        super().__init__("distracting_cs", found, intensity=self._intensity)
        self._camera: Camera

    def prepare(self, model: Any, domain: str) -> None:
        """Make room for a small picture as the sky, the same one on all six sides."""
        self._sky = model.tex("skybox").id
        model.tex_width[self._sky] = model.tex_height[self._sky] = self._side
        self._floor = model.mat("grid").id
        self._floor_alpha = _FLOOR_ALPHA.get(domain, _OTHER_FLOOR_ALPHA)
        own = model.mat_rgba[:, :3].copy()
        self._darkest = (own - self._intensity).clip(0, 1)
        self._lightest = (own + self._intensity).clip(0, 1)

    def begin(self, scene: Any, rng: np.random.Generator) -> None:
        """Draw where everything starts."""
        self._rng, self._steps = rng, 0
        self._clip = self._clips.open(self.next_world(rng), self._side)
        self._frame = int(rng.integers(len(self._clip)))
        self._direction = int(rng.choice([-1, 1]))
        self._colors = rng.uniform(self._darkest, self._lightest)
        self._camera = Camera(scene, self._intensity, rng)
        self.update(scene)

    def advance(self, scene: Scene) -> None:
        """Move everything at every second simulator step."""
        self._steps += 1
        if self._steps % _STEPS_PER_MOVE:
            return
        self._frame, self._direction = next_frame(self._frame, self._direction, len(self._clip))
        self._colors += self._rng.normal(0.0, 0.03 * self._intensity, self._colors.shape)
        self._colors = self._colors.clip(self._darkest, self._lightest)
        self._camera.move(self._rng)

    def update(self, scene: Any) -> None:
        """Write sky, colours and camera into the scene: for pictures, not for simulator steps."""
        texture(scene.model, self._sky)[:] = self._clip.frame(self._frame)
        scene.renderer.upload_texture(self._sky)
        scene.model.mat_rgba[:, :3] = self._colors
        scene.model.mat_rgba[self._floor, 3] = self._floor_alpha
        self._camera.place(scene)


class Camera:
    """A camera that wanders on a sphere and in roll, with a random walk of its velocity."""

    def __init__(self, scene: Scene, intensity: float, rng: np.random.Generator) -> None:
        self._tracks = scene.model.cam_mode[scene.camera] != 0
        position = scene.data.cam_xpos[scene.camera] - self._centre(scene)
        radius, side, height = to_sphere(position)
        angle = 0.5 * math.pi * intensity
        # A camera that looks down (reacher's) may tilt to all sides; the others stay above ground.
        self._looks_down = height < math.pi / 6
        self._low = np.array([radius * (1 - 0.5 * intensity), side - angle, height - angle])
        self._high = np.array([radius * (1 + 1.5 * intensity), side + angle, height + angle])
        if not self._looks_down:
            self._low[2], self._high[2] = max(self._low[2], 0.0), min(self._high[2], math.pi / 2)
        self._most_roll = angle
        self._fixed_target = self._target(scene)

        scale = radius / 4  # most of the suite's cameras are 4 m away
        self._speed_deviation, self._top_speed = 0.1 * intensity * scale, 0.4 * intensity * scale
        self._roll_deviation = math.pi / 300 * intensity
        self._top_roll_speed = math.pi / 50 * intensity

        self._sphere = rng.uniform(self._low, self._high)
        self._roll = rng.uniform(-angle, angle)
        heading = rng.normal(size=3)
        self._velocity = heading * rng.uniform(0, 0.4 * intensity) / np.linalg.norm(heading)
        self._roll_speed = rng.uniform(-self._top_roll_speed, self._top_roll_speed)
        self.move(rng)

    def move(self, rng: np.random.Generator) -> None:
        """Change the velocity at random, and go; what is stopped by a limit loses its speed."""
        self._velocity += rng.normal(0.0, self._speed_deviation, 3)
        speed = np.linalg.norm(self._velocity)
        if speed > self._top_speed:
            self._velocity *= self._top_speed / speed
        position = to_cartesian(self._sphere)
        moved = to_sphere(position + self._velocity)
        middle = 0.5 * (self._low[1] + self._high[1])
        moved[1] = middle + (moved[1] - middle + math.pi) % (2 * math.pi) - math.pi
        self._sphere = moved.clip(self._low, self._high)
        self._velocity = to_cartesian(self._sphere) - position

        self._roll_speed += rng.normal(0.0, self._roll_deviation)
        self._roll_speed = np.clip(self._roll_speed, -self._top_roll_speed, self._top_roll_speed)
        roll = np.clip(self._roll + self._roll_speed, -self._most_roll, self._most_roll)
        self._roll, self._roll_speed = roll, roll - self._roll

    def place(self, scene: Scene) -> None:
        """Put the scene's camera there; the simulator puts it back with its next step."""
        target = self._target(scene) if self._tracks else self._fixed_target
        position = to_cartesian(self._sphere) + self._centre(scene)
        turn = (look_at if not self._looks_down else look_down_at)(target - position)
        sine, cosine = math.sin(self._roll), math.cos(self._roll)
        roll = np.array([[cosine, -sine, 0.0], [sine, cosine, 0.0], [0.0, 0.0, 1.0]])
        scene.data.cam_xpos[scene.camera] = position
        scene.data.cam_xmat[scene.camera] = (turn @ roll).ravel()

    def _centre(self, scene: Scene) -> np.ndarray:
        """The sphere's centre: the agent for a camera that follows it, else the origin."""
        return scene.data.subtree_com[1].copy() if self._tracks else np.zeros(3)

    @staticmethod
    def _target(scene: Scene) -> np.ndarray:
        """What the model's own camera looks at: straight ahead, as far away as the agent."""
        position = scene.data.cam_xpos[scene.camera]
        backwards = scene.data.cam_xmat[scene.camera].reshape(3, 3)[:, 2]
        return position - backwards * np.linalg.norm(position - scene.data.subtree_com[1])


def clip_count(intensity: float) -> int:
    """How many clips an intensity draws from: 2, 2, 4, 6, 8 and from 0.3 on all."""
    return len(DAVIS) if intensity >= 0.3 else max(2, round(40 * intensity))


def next_frame(frame: int, direction: int, count: int) -> tuple[int, int]:
    """The next frame and direction; it turns around at both ends."""
    frame += direction
    if frame <= 0:
        return 0, 1
    if frame >= count:
        return count - 1, -1
    return frame, direction


def to_sphere(point: np.ndarray) -> np.ndarray:
    """Radius, angle to the side and angle from the zenith of a point."""
    x, y, z = point
    return np.array([np.linalg.norm(point), math.atan2(y, x), math.atan2(math.hypot(x, y), z)])


def to_cartesian(sphere: np.ndarray) -> np.ndarray:
    """The point with this radius, angle to the side and angle from the zenith."""
    radius, side, height = sphere
    flat = radius * math.sin(height)
    return np.array([flat * math.cos(side), flat * math.sin(side), radius * math.cos(height)])


def look_at(forward: np.ndarray) -> np.ndarray:
    """The axes (right, up, backwards) of a level camera that looks along a direction."""
    ahead = forward / np.linalg.norm(forward)
    right = np.array([ahead[1], -ahead[0], 0.0])  # ahead x zenith
    right /= np.linalg.norm(right)
    up = np.array(
        [right[1] * ahead[2], -right[0] * ahead[2], right[0] * ahead[1] - right[1] * ahead[0]]
    )  # right x ahead
    return np.stack([right, up, -ahead], axis=1)


def look_down_at(forward: np.ndarray) -> np.ndarray:
    """The axes of a camera that looked straight down and was tilted the shortest way."""
    x, y, z = forward / np.linalg.norm(forward)
    cross = np.array([[0.0, 0.0, -x], [0.0, 0.0, -y], [x, y, 0.0]])  # of the axis down x forward
    return np.eye(3) + cross + cross @ cross / (1 - z)
