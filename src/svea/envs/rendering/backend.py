"""Who draws: the rasteriser or OpenGL, and with which backend; OSMesa is the way out.

MuJoCo chooses its backend when it is imported, from the variable `MUJOCO_GL`. Every file of
`svea.envs` that needs the simulator therefore calls `prepare_simulator()` first.
"""

from __future__ import annotations

import contextlib
import ctypes
import ctypes.util
import functools
import gc
import importlib.metadata
import importlib.util
import os
import platform
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from svea.core.compiled import BuildError
from svea.core.errors import RendererError, UserError, unknown_name
from svea.core.terminal import warn

if TYPE_CHECKING:
    from svea.raster import Raster

APT_LINE = "apt-get install -y libegl1 libgl1 libgl1-mesa-dri libosmesa6"

DRAWING = "SVEA_DRAWING"  # the variable that says who draws; it beats a run's own renderer
AUTO, RASTER, OPENGL = RENDERERS = ("auto", "raster", "opengl")  # as a configuration names them
PROGRAM = "svea raster"  # what records call the rasteriser, followed by its version

_chosen: str | None = None  # the backend that this process chose, as opposed to the user
fallen_back = False  # so workers that start from here on draw with OSMesa: something else failed

_BACKENDS = {"Linux": ("egl", "osmesa", "glfw"), "Darwin": ("cgl", "glfw"), "Windows": ("glfw",)}
_EGL_PLATFORM_DEVICE, _EGL_VENDOR = 0x313F, 0x3053
_SOFTWARE = ("llvmpipe", "softpipe", "swrast", "software rasterizer")


def prepare_simulator() -> None:
    """Check the MuJoCo version and choose the OpenGL backend, before MuJoCo is imported.

    A `MUJOCO_GL` that the user set is respected. Otherwise Linux takes EGL when it works (a GPU's,
    or Mesa's in software) and OSMesa when it does not; macOS and Windows keep MuJoCo's own choice.

    >>> prepare_simulator()
    >>> import mujoco
    """
    _check_mujoco_version()
    _configure_mesa()
    allowed = _BACKENDS.get(platform.system(), _BACKENDS["Linux"])
    given = _mujoco_gl()
    if given:
        if given not in allowed:
            raise UserError(
                f"MUJOCO_GL is {given!r}; on this system it may be {', '.join(allowed)}, "
                "or unset to let svea choose."
            )
    elif platform.system() == "Linux":
        global _chosen
        if _egl_vendor() is not None:
            _chosen = "egl"
        elif _can_load("OSMesa", "libOSMesa.so.8"):
            _chosen = "osmesa"
        else:
            raise RendererError(f"no OpenGL library (EGL or OSMesa) works here: run {APT_LINE}")
        os.environ["MUJOCO_GL"] = _chosen


def _mujoco_gl() -> str:
    return os.environ.get("MUJOCO_GL", "").strip().lower()


def can_fall_back() -> bool:
    """Whether OSMesa is a way out: the user chose no backend, it is there, and not yet in use."""
    given = _mujoco_gl()
    ours = given == "" or given == _chosen
    tried = fallen_back or given == "osmesa" or platform.system() != "Linux"
    return ours and not tried and _can_load("OSMesa", "libOSMesa.so.8")


def draws_on_gpu() -> bool:
    """Whether workers that start from here on draw on an NVIDIA GPU; no OpenGL context is made."""
    if platform.system() != "Linux" or fallen_back or _mujoco_gl() not in ("", "egl"):
        return False
    return "nvidia" in (_egl_vendor() or "").lower()


def asked_renderer(asked: str) -> str:
    """Who is to draw, one of `RENDERERS`: as asked for, unless the variable `DRAWING` is set."""
    given = os.environ.get(DRAWING, "").strip().lower() or AUTO
    named = {AUTO: asked, "cpu": RASTER, OPENGL: OPENGL}
    if given not in named:
        raise unknown_name(DRAWING, given, named)
    return named[given]


def rasteriser() -> type[Raster]:
    """What draws without OpenGL: a part of svea that may be missing, and is only imported here."""
    if not _has_rasteriser():
        raise UserError(
            f"the rasteriser is to draw (renderer='raster', or {DRAWING}=cpu), but svea.raster is "
            "not installed: install svea with it, or ask for 'opengl' or 'auto'."
        )
    from svea.raster import Raster

    return Raster


def _has_rasteriser() -> bool:
    spec = importlib.util.find_spec("svea.raster")
    return spec is not None and spec.origin is not None  # else what is left of a removed folder


def choose_renderer(asked: str = AUTO) -> str:
    """Who draws here: `raster` or `opengl`, the same on every machine that has a C compiler."""
    asked = asked_renderer(asked)
    if asked == OPENGL or (asked == AUTO and not _has_rasteriser()):
        return OPENGL
    try:
        rasteriser().compile()
    except BuildError as error:
        warn_of_opengl(str(error))
        return OPENGL
    return RASTER


@functools.cache
def warn_of_opengl(why: str) -> None:
    """Say why OpenGL draws, once for each reason."""
    reason = why.strip().splitlines()[0]
    warn(f"OpenGL draws all pictures, which is slower: {reason}")


def environment_of_workers() -> dict[str, str]:
    """Environment variables that workers get in addition."""
    # MuJoCo sets PyOpenGL's variable where it has drawn, and workers inherit it.
    return {"MUJOCO_GL": "osmesa", "PYOPENGL_PLATFORM": "osmesa"} if fallen_back else {}


def make_gl_context(size: int) -> Any:
    """Create an OpenGL context of the chosen backend, or say what is missing."""
    backend = os.environ.get("MUJOCO_GL", "")
    try:
        # By name, because `mujoco.GLContext` is fixed by the first import of mujoco.
        if backend == "egl":
            from mujoco.egl import GLContext
        elif backend == "osmesa":
            from mujoco.osmesa import GLContext
        else:
            from mujoco import GLContext
        with undisturbed():
            return GLContext(size, size)
    except Exception as error:  # PyOpenGL and GLFW raise a dozen unrelated types here
        raise _broken(backend, error) from error


@contextlib.contextmanager
def undisturbed(gl: Any = None) -> Iterator[None]:
    """A region where an OpenGL context is current, and after which another one is so again.

    dm_control takes for granted that its own stays current. Nor is garbage collected in between:
    whoever frees a context leaves none current. Without `gl`, the region itself changes which one
    is current.
    """
    restore, collects = _restoring(), gc.isenabled()
    gc.disable()
    try:
        if gl is not None:
            gl.make_current()
        yield
    finally:
        with contextlib.suppress(Exception):  # the one before was freed in here
            restore()
        if collects:
            gc.enable()


def _restoring() -> Callable[[], object]:
    """What makes current again what is current in this thread, be it none; EGL's alone."""
    if os.environ.get("MUJOCO_GL") != "egl":
        return lambda: None
    from mujoco import egl
    from mujoco.egl import egl_ext as EGL

    context = EGL.eglGetCurrentContext()
    if not context:
        none = EGL.EGL_NO_SURFACE, EGL.EGL_NO_SURFACE, EGL.EGL_NO_CONTEXT
        return lambda: egl.EGL_DISPLAY is None or EGL.eglMakeCurrent(egl.EGL_DISPLAY, *none)
    display = EGL.eglGetCurrentDisplay()
    surfaces = [EGL.eglGetCurrentSurface(kind) for kind in (EGL.EGL_DRAW, EGL.EGL_READ)]
    return lambda: EGL.eglMakeCurrent(display, *surfaces, context)


def import_suite() -> Any:
    """dm_control's suite, which tries the OpenGL backend as it is imported."""
    prepare_simulator()
    try:
        from dm_control import suite
    except ModuleNotFoundError:
        raise
    except (ImportError, AttributeError, RuntimeError) as error:  # what PyOpenGL raises
        raise _broken(os.environ.get("MUJOCO_GL", ""), error) from error
    return suite


def _broken(backend: str, error: Exception) -> RendererError:
    others = _BACKENDS.get(platform.system(), _BACKENDS["Linux"])
    return RendererError(
        f"the OpenGL backend {backend or 'default'!r} does not work here "
        f"({str(error).rstrip('.')}): run {APT_LINE}, or set MUJOCO_GL to another of "
        f"{', '.join(others)}."
    )


def opengl_name() -> str:
    """What draws for MuJoCo, with its version; the context has to be current."""
    from OpenGL import GL

    renderer, version = (GL.glGetString(one).decode() for one in (GL.GL_RENDERER, GL.GL_VERSION))
    return f"OpenGL: {renderer}, {version}"


def is_software(renderer: str) -> bool:
    """Whether an OpenGL renderer of this name draws with the CPU."""
    return any(word in renderer.lower() for word in _SOFTWARE)


def _check_mujoco_version() -> None:
    installed = importlib.metadata.version("mujoco")
    major, minor = map(int, installed.split(".")[:2])
    if not (3, 17) <= (major, minor) < (4, 0):
        raise UserError(
            f"mujoco {installed} is installed, but svea needs 3.17 or a later 3: run "
            "pip install 'mujoco>=3.17,<4'."
        )


def _configure_mesa() -> None:
    """Draw without threads and without a cache on disk; to be called before anything asks EGL.

    llvmpipe has a thread per core by default. An 84 px picture is too small to gain from them, they
    take the core that the learner needs, and a process that is forked later would wait for them
    forever. The cache of shaders saves a process a second, and ends it with SIGBUS when its disk is
    full.
    """
    os.environ.setdefault("LP_NUM_THREADS", "0")
    os.environ.setdefault("MESA_SHADER_CACHE_DISABLE", "true")


def _can_load(*names: str) -> bool:
    for name in names:
        with contextlib.suppress(OSError):
            ctypes.CDLL(ctypes.util.find_library(name) or name)
            return True
    return False


def _egl_vendor() -> str | None:
    """Vendor of the EGL device MuJoCo will use (the first that provides a display), or None.

    The variable `MUJOCO_EGL_DEVICE_ID` restricts the choice to one device.
    """
    _configure_mesa()
    if not _can_load("OpenGL", "GL", "libOpenGL.so.0", "libGL.so.1"):
        return None
    try:
        egl = ctypes.CDLL("libEGL.so.1")
    except OSError:
        return None
    egl.eglGetProcAddress.restype = ctypes.c_void_p
    addresses = [
        egl.eglGetProcAddress(name) for name in (b"eglQueryDevicesEXT", b"eglGetPlatformDisplayEXT")
    ]
    if not all(addresses):
        return None
    query_devices = ctypes.CFUNCTYPE(
        ctypes.c_uint, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_int)
    )(addresses[0])
    get_display = ctypes.CFUNCTYPE(
        ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p
    )(addresses[1])
    egl.eglInitialize.argtypes = [ctypes.c_void_p] * 3
    egl.eglQueryString.argtypes = [ctypes.c_void_p, ctypes.c_int]
    egl.eglQueryString.restype = ctypes.c_char_p
    devices, count = (ctypes.c_void_p * 16)(), ctypes.c_int(0)
    query_devices(16, devices, ctypes.byref(count))
    number = os.environ.get("MUJOCO_EGL_DEVICE_ID", "")
    wanted = slice(int(number), int(number) + 1) if number.isdigit() else slice(None)
    for device in devices[: count.value][wanted]:
        display = get_display(_EGL_PLATFORM_DEVICE, device, None)
        if display and egl.eglInitialize(display, None, None):
            return (egl.eglQueryString(display, _EGL_VENDOR) or b"").decode()
    return None
