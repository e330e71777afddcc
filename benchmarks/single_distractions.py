"""`distracting_cs:0.1` with one of its three distractions, to see which one costs an agent most.

    PYTHONPATH=benchmarks svea eval zoo:walker_walk-svea --episodes 12 \
        --modes single_distractions:Camera single_distractions:Colors single_distractions:Background

Each draws what the whole mode draws from the same seeds, and shows one part of it. The background
has the sky's clip and the floor's transparency, which lets the sky through.
"""

from __future__ import annotations

from typing import Any

from svea.envs.looks import Scene
from svea.envs.looks.colors import texture
from svea.envs.looks.distracting import DistractingMode


class Camera(DistractingMode):
    """The camera moves; sky and colours are the training look's."""

    def prepare(self, model: Any, domain: str) -> None:
        """Leave the sky as it is."""
        sky = model.tex("skybox").id
        size = model.tex_width[sky], model.tex_height[sky]
        super().prepare(model, domain)
        model.tex_width[sky], model.tex_height[sky] = size

    def update(self, scene: Scene) -> None:
        """Place the camera."""
        self._camera.place(scene)


class Colors(Camera):
    """All colours change; sky, floor and camera are the training look's."""

    def update(self, scene: Scene) -> None:
        """Write the colours."""
        scene.model.mat_rgba[:, :3] = self._colors


class Background(DistractingMode):
    """The sky is a clip; colours and camera are the training look's."""

    def update(self, scene: Scene) -> None:
        """Write the sky, and how much of it the floor lets through."""
        texture(scene.model, self._sky)[:] = self._clip.frame(self._frame)
        scene.renderer.upload_texture(self._sky)
        scene.model.mat_rgba[self._floor, 3] = self._floor_alpha
