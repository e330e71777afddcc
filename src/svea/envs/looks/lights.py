"""`light_position`, `light_color` and `moving_light`: the lamps of the scene, moved or coloured.

The light modes of RL-ViGen (Yuan et al., NeurIPS 2023, https://github.com/gemcollector/RL-ViGen):

- `light_position`: each coordinate of a lamp's place grows by 3 or 4 m (easy), 9 or 10 m (hard):
  eight worlds, which are all there are;
- `light_color`: each channel of its diffuse colour changes by up to 0.2 (easy) or 10 (hard), not
  cut off, so that hard ones mostly light a channel fully or take light away: 100 worlds;
- `moving_light`: all three coordinates grow by 0.01 (easy) or 0.05 m (hard) per decision and turn
  round 5 or 10 m from where they began: one world.

What the public code does otherwise, or does not do at all:

- it writes the place into the model, which MuJoCo does not read for a lamp that follows the agent
  (walker, cheetah, hopper, humanoid, quadruped, dog, fish): nothing changes. Here the place itself
  moves, as of every other lamp;
- a directional lamp (finger, ball_in_cup, manipulator, stacker) has no place: nothing changes, but
  for its shadow. Here it shines as from its new place at the point of the floor it shone at;
- the turn-round of `moving_light` compares truth values and never comes; here it does;
- with several lamps (swimmer, quadruped_fetch) each draws its own place; here they move alike.
"""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from svea.envs.looks import Mode, Scene, WorldsMode

NEARER = {"easy": 3.0, "hard": 9.0}
"""The smaller of the two steps of `light_position` in metres; the other is one more."""

MOST_CHANGE = {"easy": 0.2, "hard": 10.0}  # of a channel of `light_color`
COLORS = 100  # worlds of `light_color`
SPEED = {"easy": 0.01, "hard": 0.05}  # of `moving_light`, in metres per decision and axis
TURNS_AT = {"easy": 5.0, "hard": 10.0}  # metres from where it began, along each axis


class LightPosition(WorldsMode):
    """Moves the lamps, to one of eight places per episode."""

    def __init__(self, name: str) -> None:
        nearer = NEARER[name.rpartition("_")[2]]
        self.offsets = nearer + np.array(list(itertools.product((0.0, 1.0), repeat=3)))
        super().__init__(name, range(len(self.offsets)), source="stored")

    def update(self, scene: Scene) -> None:
        """Move the lamps from where the simulator puts them with every step."""
        move_lights(scene, self.offsets[self._world])


class LightColor(WorldsMode):
    """Colours the lamps, one of 100 ways per episode."""

    def __init__(self, name: str) -> None:
        super().__init__(name, range(COLORS), source="stored")
        self._most = MOST_CHANGE[name.rpartition("_")[2]]

    def begin(self, scene: Scene, rng: np.random.Generator) -> None:
        """Apply the episode's colours to the model, which every reset restores."""
        lights = scene.model.light_diffuse
        # RandomState, because its stream is frozen for good.
        change = np.random.RandomState(self.next_world(rng)).uniform(-1, 1, lights.shape)
        lights += self._most * change


class MovingLight(Mode):
    """Moves the lamps along the diagonal, there and back, always the same way."""

    made_with: Mapping[str, Any] = {"source": "stored"}

    def __init__(self, name: str) -> None:
        super().__init__(name)
        level = name.rpartition("_")[2]
        self._speed, self._turns_at = SPEED[level], TURNS_AT[level]

    def begin(self, scene: Scene, rng: np.random.Generator) -> None:
        """Begin where the task's own lamps are."""
        self._decisions = 0

    def update(self, scene: Scene) -> None:
        """Move on by a decision: from 0 up, and round at either end."""
        self._decisions += 1
        way, end = self._decisions * self._speed, self._turns_at
        move_lights(scene, np.full(3, end - abs((way + end) % (4 * end) - 2 * end)))


LIGHTS = {
    "light_position": LightPosition,
    "light_color": LightColor,
    "moving_light": MovingLight,
}


def move_lights(scene: Scene, offset: np.ndarray) -> None:
    """Move every lamp from where the simulator has it now; a directional one turns instead."""
    import mujoco

    model, data = scene.model, scene.data
    for light in range(model.nlight):
        place, direction = data.light_xpos[light], data.light_xdir[light]
        if model.light_type[light] == mujoco.mjtLightType.mjLIGHT_DIRECTIONAL:
            to_floor = direction * (-place[2] / direction[2])
            data.light_xdir[light] = (to_floor - offset) / np.linalg.norm(to_floor - offset)
        data.light_xpos[light] = place + offset
