"""Which pictures a program of our own draws (`raster.py`): those that are MuJoCo's all the same."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import numpy as np

from svea.core.compiled import BuildError
from svea.envs.rendering.backend import AUTO, OPENGL, RASTER, asked_drawing, is_software
from svea.raster.raster import VERSION, WAYS, library

if TYPE_CHECKING:
    from svea.envs.rendering.renderer import Renderer

VISIBLE, MOST_DIFFERENT = 8, 0.005
"""Levels by which a pixel may differ from MuJoCo's, and the share of a picture's pixels that may
differ by more."""

MOST_DIFFERENT_DRIVER = 0.05
"""The share where OpenGL draws with a GPU: a driver is free in how it lights pixels that a shape
covers in part, up to 3 % of a walker's picture. Ours are lit as Mesa does it, on every machine."""

CHECKED = tuple(10**power for power in range(7))
"""Which of a renderer's pictures are held against MuJoCo's: the first, and ever fewer later on."""

PROGRAM = "svea raster"
NAME = f"{PROGRAM} {VERSION}"
"""What records call it."""

_said: set[str] = set()


def choose_renderer(asked: str = AUTO) -> str:
    """Who draws here: `raster` or `opengl`, the same on every machine that has a C compiler.

    Args:
        asked: One of `RENDERERS`; the variable SVEA_DRAWING beats it.
    """
    by_user = asked_drawing()
    asked = asked if by_user == AUTO else by_user
    if asked == OPENGL:
        return OPENGL
    try:
        library()
    except BuildError as error:
        _say(str(error))
        return OPENGL
    return RASTER


class Painter:
    """Draws for the renderers of one context, as long as the pictures are MuJoCo's."""

    def __init__(self, wanted: bool | None = None) -> None:
        """Begin.

        Args:
            wanted: Whether to draw at all; by default what each renderer was made for.
        """
        self._wanted, self._gave_up, self._agreed = wanted, False, False

    @property
    def is_at_work(self) -> bool:
        """Whether it draws, as far as is known by now."""
        return self._agreed and not self._gave_up

    def _is_wanted(self, renderer: Renderer) -> bool:
        """Whether it is to draw for a renderer."""
        wanted = renderer.wants_raster if self._wanted is None else self._wanted
        return wanted and not self._gave_up

    def draw(self, renderer: Renderer, buffer: np.ndarray) -> bool:
        """Fill a buffer with a renderer's picture; False if MuJoCo has to draw it."""
        if not (self._agreed and self._is_wanted(renderer)) or renderer.drawn + 1 in CHECKED:
            return False
        try:
            raster = renderer.raster
            if raster is None or not raster.draw(buffer, WAYS[0]):
                return False
        except Exception as error:  # whatever it is, MuJoCo can draw
            self._give_up(str(error) or type(error).__name__)
            return False
        renderer.drawn += 1
        return True

    def compare(self, renderer: Renderer, buffer: np.ndarray) -> None:
        """Hold a picture of MuJoCo's against ours if that is due, and leave ours in its place."""
        if not self._is_wanted(renderer) or renderer.drawn + 1 not in CHECKED:
            return
        try:
            self._compare(renderer, buffer)
        except Exception as error:
            self._give_up(str(error) or type(error).__name__)

    def _compare(self, renderer: Renderer, buffer: np.ndarray) -> None:
        raster, ours = renderer.raster, np.empty_like(buffer)
        if raster is None or not raster.draw(ours, WAYS[0]):
            return
        software = is_software(renderer.opengl)
        share = _share_that_differs(ours, buffer)
        if share > (MOST_DIFFERENT if software else MOST_DIFFERENT_DRIVER):
            self._give_up(f"{share:.1%} of a picture's pixels were not MuJoCo's")
            return
        self._agreed = True
        renderer.drawn += 1
        buffer[:] = ours

    def _give_up(self, why: str) -> None:
        """Leave everything to MuJoCo from here on, and say so."""
        self._gave_up = True
        _say(why)


def _say(why: str) -> None:
    """Say why OpenGL draws, once for each reason."""
    if why not in _said:
        _said.add(why)
        reason = why.strip().splitlines()[0]
        print(f"warning: OpenGL draws all pictures, which is slower: {reason}", file=sys.stderr)


def _share_that_differs(ours: np.ndarray, mujocos: np.ndarray) -> float:
    """The share of a picture's pixels that a person could tell apart."""
    away = abs(ours.astype(int) - mujocos).max(-1)
    return float((away > VISIBLE).mean())
