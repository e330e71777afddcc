"""Which pictures a program of our own draws (`raster.py`): those that are MuJoCo's all the same."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np

from svea.envs.rendering.backend import is_software
from svea.envs.rendering.raster import WAYS

if TYPE_CHECKING:
    from svea.envs.rendering.renderer import Renderer

VISIBLE, MOST_DIFFERENT = 8, 0.005
"""Levels by which a pixel may differ from MuJoCo's, and the share of a picture's pixels that may
differ by more."""

CHECKED = tuple(10**power for power in range(7))
"""Which of a renderer's pictures are held against MuJoCo's: the first, and ever fewer later on."""

_said: set[str] = set()


class Painter:
    """Draws for the renderers of one context, as long as the pictures are MuJoCo's."""

    def __init__(self, wanted: bool | None = None) -> None:
        """Begin.

        Args:
            wanted: Whether to draw at all; by default where OpenGL draws with the CPU, too.
        """
        self._wanted, self._way, self._agreed = wanted, WAYS[0], False

    @property
    def is_at_work(self) -> bool:
        """Whether it draws, as far as is known by now."""
        return bool(self._wanted) and self._agreed

    def draw(self, renderer: Renderer, buffer: np.ndarray) -> bool:
        """Fill a buffer with a renderer's picture; False if MuJoCo has to draw it."""
        if not self.is_at_work or renderer.drawn + 1 in CHECKED:
            return False
        try:
            raster = renderer.raster
            if raster is None or not raster.draw(buffer, self._way):
                return False
        except Exception as error:  # whatever it is, MuJoCo can draw
            self._give_up(str(error) or type(error).__name__)
            return False
        renderer.drawn += 1
        return True

    def compare(self, renderer: Renderer, buffer: np.ndarray) -> None:
        """Hold a picture of MuJoCo's against ours if that is due, and leave ours in its place.

        The first one decides where light is taken from in a pixel, in which drivers differ.
        """
        if self._wanted is None:
            self._wanted = is_software(_opengl_name())
        if not self._wanted or renderer.drawn + 1 not in CHECKED:
            return
        try:
            self._compare(renderer, buffer)
        except Exception as error:
            self._give_up(str(error) or type(error).__name__)

    def _compare(self, renderer: Renderer, buffer: np.ndarray) -> None:
        raster, ours, shares = renderer.raster, np.empty_like(buffer), list[float]()
        if raster is None:
            return
        for way in [self._way] if self._agreed else WAYS:
            if not raster.draw(ours, way):
                return
            away = abs(ours.astype(int) - buffer).max(-1)
            shares.append(float((away > VISIBLE).mean()))
            if shares[-1] <= MOST_DIFFERENT:
                self._way, self._agreed = way, True
                renderer.drawn += 1
                buffer[:] = ours
                return
        self._give_up(f"{min(shares):.1%} of a picture's pixels were not MuJoCo's")

    def _give_up(self, why: str) -> None:
        """Leave everything to MuJoCo from here on, and say so, once for each reason."""
        self._wanted = False
        if why not in _said:
            _said.add(why)
            reason = why.strip().splitlines()[0]
            print(f"warning: OpenGL draws all pictures, which is slower: {reason}", file=sys.stderr)


def _opengl_name() -> str:
    """What draws for MuJoCo, as OpenGL calls it."""
    from OpenGL import GL

    return GL.glGetString(GL.GL_RENDERER).decode()
