"""Pictures of a MuJoCo scene: the OpenGL backend, the renderer, and a context shared by several."""

# ruff: noqa: F401
from svea.envs.rendering.backend import RENDERERS, draws_on_gpu, import_suite, prepare_simulator
from svea.envs.rendering.renderer import RENDERINGS, Renderer, gl_info
