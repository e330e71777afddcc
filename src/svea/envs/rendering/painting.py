"""Which pictures a program of our own draws (`raster.py`): those that are MuJoCo's all the same."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np

from svea.envs.rendering.backend import asked_drawing, is_software
from svea.envs.rendering.raster import WAYS

if TYPE_CHECKING:
    from svea.envs.rendering.renderer import Renderer

VISIBLE, MOST_DIFFERENT = 8, 0.005
"""Levels by which a pixel may differ from MuJoCo's, and the share of a picture's pixels that may
differ by more."""

MOST_DIFFERENT_DRIVER = 0.05
"""The share where OpenGL draws with a GPU and the user asks for the CPU's pictures: a driver is
free in how it lights pixels that a shape covers in part, up to 3 % of a walker's picture."""

CHECKED = tuple(10**power for power in range(7))
"""Which of a renderer's pictures are held against MuJoCo's: the first, and ever fewer later on."""

_said: set[str] = set()


class Painter:
    """Draws for the renderers of one context, as long as the pictures are MuJoCo's."""

    def __init__(self, wanted: bool | None = None, *, relieves_gpu: bool = False) -> None:
        """Begin.

        Args:
            wanted: Whether to draw at all; by default what the user asks for (`asked_drawing`).
            relieves_gpu: Whether to draw in place of a GPU, too, unless the user asks for
                something else: where it has a learner to serve, and other cores are free to draw.
        """
        self._wanted, self._way, self._agreed = wanted, WAYS[0], False
        self._relieves_gpu, self._may_differ = relieves_gpu, MOST_DIFFERENT

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
            self._decide()
        if not self._wanted or renderer.drawn + 1 not in CHECKED:
            return
        try:
            self._compare(renderer, buffer)
        except Exception as error:
            self._give_up(str(error) or type(error).__name__)

    def _decide(self) -> None:
        """Whether to draw, when it is known what OpenGL draws with."""
        asked, software = asked_drawing(), is_software(_opengl_name())
        self._wanted = asked == "cpu" or (asked == "auto" and (software or self._relieves_gpu))
        if asked == "cpu" and not software:
            self._may_differ = MOST_DIFFERENT_DRIVER

    def _compare(self, renderer: Renderer, buffer: np.ndarray) -> None:
        raster, drawn = renderer.raster, dict[str, np.ndarray]()
        if raster is None:
            return
        for way in [self._way] if self._agreed else WAYS:
            drawn[way] = np.empty_like(buffer)
            if not raster.draw(drawn[way], way):
                return
        shares = {way: _share_that_differs(ours, buffer) for way, ours in drawn.items()}
        nearest = min(shares, key=shares.__getitem__)
        if shares[nearest] > self._may_differ:
            self._give_up(f"{shares[nearest]:.1%} of a picture's pixels were not MuJoCo's")
            return
        self._way, self._agreed = nearest, True
        renderer.drawn += 1
        buffer[:] = drawn[nearest]

    def _give_up(self, why: str) -> None:
        """Leave everything to MuJoCo from here on, and say so, once for each reason."""
        self._wanted = False
        if why not in _said:
            _said.add(why)
            reason = why.strip().splitlines()[0]
            print(f"warning: OpenGL draws all pictures, which is slower: {reason}", file=sys.stderr)


def _share_that_differs(ours: np.ndarray, mujocos: np.ndarray) -> float:
    """The share of a picture's pixels that a person could tell apart."""
    away = abs(ours.astype(int) - mujocos).max(-1)
    return float((away > VISIBLE).mean())


def _opengl_name() -> str:
    """What draws for MuJoCo, as OpenGL calls it."""
    from OpenGL import GL

    return GL.glGetString(GL.GL_RENDERER).decode()
