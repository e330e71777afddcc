"""Draws some pictures in a process of their own: a bad driver can hang or crash the process."""

from __future__ import annotations

from typing import Any

from svea.core import process
from svea.core.errors import RendererError, WorkerError

DRAW = "svea.envs.rendering:gl_info"
GL_TIMEOUT_SECONDS = 60
"""A driver that has not drawn 20 small pictures by then hangs; software takes half a second."""


def measure_gl() -> dict[str, Any]:
    """Draw in another process, and measure.

    Returns:
        What `svea.envs.rendering.gl_info` returns.

    Raises:
        SveaError: Nothing could be drawn; the message has the cure.
    """
    try:
        return dict(process.ask(DRAW, seconds=GL_TIMEOUT_SECONDS))
    except WorkerError as error:
        raise RendererError(
            f"the process that draws {error}; try another backend: export MUJOCO_GL=osmesa"
        ) from None
