"""Textures that were changed, on their way to OpenGL."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from svea.envs.rendering.backend import is_software

_FEW_SIDES = 3  # more of the sky's sides are faster sent all at once


class Changes:
    """Textures of a model that were changed, and which sides of a cube."""

    def __init__(self) -> None:
        self._sides = dict[int, set[int] | None]()

    def add(self, texture: int, sides: Iterable[int] | None = None) -> None:
        """Note that a texture was changed, as a whole or some sides of it."""
        before = self._sides.get(texture, set())
        self._sides[texture] = None if sides is None or before is None else before | set(sides)

    def take(self) -> Iterator[tuple[int, list[int] | None]]:
        """Each texture that was changed and its sides, `None` for all; they are forgotten."""
        while self._sides:
            texture, sides = self._sides.popitem()
            yield texture, None if sides is None else sorted(sides)


def send(model: Any, context: Any, texture: int, sides: Sequence[int] | None) -> None:
    """Send `model.tex_data` of one texture to OpenGL, in the context that is current.

    MuJoCo always sends all six sides of a cube and recomputes all their mipmaps, which takes 31 ms
    for dm_control's 800 pixel sky in software; this takes 5 ms a side, for the same pixels. A GPU
    is fast enough to do it MuJoCo's way.
    """
    import mujoco
    from OpenGL import GL

    software = is_software(GL.glGetString(GL.GL_RENDERER).decode())
    few = sides is not None and len(sides) <= _FEW_SIDES
    if not (software and few and GL.glCopyImageSubData):  # OpenGL 4.3
        mujoco.mjr_uploadTexture(model, context, texture)
    else:
        _send_sides(model, int(context.texture[texture]), texture, sides or [])


def _send_sides(model: Any, cube: int, texture: int, sides: Sequence[int]) -> None:
    """Send some sides of a cube."""
    from OpenGL import GL

    width, start = int(model.tex_width[texture]), int(model.tex_adr[texture])
    pixels = model.tex_data[start : start + 18 * width * width].reshape(6, -1)
    flat, rgb = GL.GL_TEXTURE_2D, GL.GL_RGB
    single = GL.glGenTextures(1)  # its mipmaps are made by themselves
    GL.glBindTexture(flat, single)
    GL.glPixelStorei(GL.GL_UNPACK_ALIGNMENT, 1)
    for side in sides:
        GL.glTexImage2D(flat, 0, rgb, width, width, 0, rgb, GL.GL_UNSIGNED_BYTE, pixels[side])
        GL.glGenerateMipmap(flat)
        for level in range(width.bit_length()):
            size, whole = width >> level, GL.GL_TEXTURE_CUBE_MAP
            GL.glCopyImageSubData(
                single, flat, level, 0, 0, 0, cube, whole, level, 0, 0, side, size, size, 1
            )
    GL.glBindTexture(flat, 0)
    GL.glDeleteTextures([single])
