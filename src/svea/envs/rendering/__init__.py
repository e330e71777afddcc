"""Pictures of a MuJoCo scene: the OpenGL backend, the renderer, and a context shared by several."""

from svea.envs.rendering.backend import RENDERERS, draws_on_gpu, import_suite, prepare_simulator
from svea.envs.rendering.renderer import RENDERINGS, Renderer, gl_info

__all__ = [
    "RENDERERS",
    "RENDERINGS",
    "Renderer",
    "draws_on_gpu",
    "gl_info",
    "import_suite",
    "prepare_simulator",
]
