"""Renderer: draws one MuJoCo model with one camera, in its own OpenGL context or a shared one."""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import threading
import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from svea.core.terminal import note
from svea.envs.rendering import backend
from svea.envs.rendering.backend import choose_renderer, is_software, rasteriser
from svea.envs.rendering.context import Context

if TYPE_CHECKING:
    from svea.raster import Raster

RENDERINGS = ("full", "fast")
"""`full` is dm_control's look; `fast` has no shadows, reflections or antialiasing."""

SHADOW_MAP = 512
"""Side of the shadow map. dm_control's 2048 costs half of a software-drawn frame and changes an
84 px picture of the paper's tasks by 0.003 to 0.05 of 255 on average."""

FIRST_PICTURE_SECONDS = 20.0
"""A renderer that has not drawn by then is taken to be stuck, where there is another one: some
drivers hang when many processes begin."""

VISIBLE, MOST_DIFFERENT = 8, 0.005
"""Levels by which a pixel of the rasteriser's may differ from MuJoCo's, and the share of a
picture's pixels that may differ by more."""

MOST_DIFFERENT_DRIVER = 0.1
"""The share where OpenGL draws with a GPU: a driver is free in how it lights pixels that a shape
covers in part, on an H200 up to 7 % of a walker's picture. Ours are lit as Mesa does it, on every
machine."""

CHECKED = tuple(10**power for power in range(7))
"""Which of a renderer's pictures are compared with MuJoCo's: the first, and ever fewer later on."""

_shared_context: Context | None = None
_on_first_picture: Callable[[], None] | None = None


def configure_drawing(
    context: Context | None = None, on_first_picture: Callable[[], None] | None = None
) -> None:
    """Set how renderers made from here on in this process draw, and in which context if in one.

    `on_first_picture` is called before a renderer draws for the first time: a worker tells its
    parent, which keeps the time and can end the worker. Without it, a hint is printed when the
    driver seems to be stuck.
    """
    global _shared_context, _on_first_picture
    _shared_context, _on_first_picture = context, on_first_picture


def announce_first_picture() -> bool:
    """Tell the parent that a first picture is being drawn; False if no one listens."""
    if _on_first_picture is not None:
        _on_first_picture()
    return _on_first_picture is not None


class Renderer:
    """Draws one model with one camera into reused buffers.

    dm_control's `physics.render` builds a camera and a scene for every picture and draws a
    2048-wide shadow map; this class keeps them. Each renderer owns its OpenGL context, unless
    `configure_drawing` set one to share, and makes it current for every call, so several can live
    in one process, next to other users of OpenGL.
    """

    def __init__(
        self,
        model: Any,
        data: Any,
        size: int,
        rendering: str = "full",
        camera: int = 0,
        drawn_by: str = backend.AUTO,
    ) -> None:
        """Create the OpenGL context and upload the model's textures and meshes.

        Of a `mujoco.MjModel`, whose visual quality settings are changed in place, and its `MjData`.
        `draw` can be asked for other sizes; `drawn_by` is one of `RENDERERS`.
        """
        import mujoco

        self._rasters = choose_renderer(drawn_by) == backend.RASTER
        self._mujoco, self._model, self._data, self._size = mujoco, model, data, size
        full = rendering == "full"
        model.vis.quality.shadowsize = SHADOW_MAP
        model.vis.quality.offsamples = 4 if full else 0
        # A framebuffer no larger than the picture: clearing it is part of every frame.
        model.vis.global_.offwidth = model.vis.global_.offheight = size

        self._scene = mujoco.MjvScene(model, maxgeom=max(1000, 10 * model.ngeom))
        self._scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = full
        self._scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = full
        self._option = mujoco.MjvOption()
        self._option.flags[mujoco.mjtVisFlag.mjVIS_RANGEFINDER] = False  # as dm_control does
        self._perturb = mujoco.MjvPerturb()
        self._camera = mujoco.MjvCamera()
        self._camera.type, self._camera.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, camera
        self._own_camera = camera
        self._buffers = dict[tuple[int, int], np.ndarray]()
        self._raster: Raster | None = None
        self._to_send = set[int]()  # textures that were changed: to OpenGL, whole,
        self._to_copy = defaultdict[int, set[int]](set)  # and to the rasteriser, some sides of each
        self.drawn = 0  # pictures that were not MuJoCo's

        with _watch():
            gl = _shared_context or Context()
            gl.enter(size)
            gl.call(self._upload_model)
            self._gl: Context | None = gl
            _close_at_exit(self)
            self.draw()  # not used: a driver that hangs does so here

    def draw(self, size: int | None = None, camera: int | None = None) -> np.ndarray:
        """Draw the current state, `(size, size, 3)` uint8; by default of own size and camera.

        Top row first: a view of a buffer that the next call with the same arguments reuses.
        """
        size = size or self._size
        camera = self._camera.fixedcamid = self._own_camera if camera is None else camera
        self._update_scene()
        buffer = self._buffers.setdefault((size, camera), np.empty((size, size, 3), np.uint8))
        is_checked = self.drawn + 1 in CHECKED
        is_ours = not is_checked and self._rasterise(buffer)
        if not is_ours:
            assert self._gl is not None, "the renderer is closed"
            self._gl.draw(self, buffer)
            is_ours = is_checked and self._put_ours(buffer)
        self.drawn += is_ours
        # Who drew this picture:
        self.name = self._raster.name if self._raster and is_ours else self.opengl
        return buffer[::-1]  # OpenGL's first row is the bottom one

    def _rasterise(self, buffer: np.ndarray) -> bool:
        """Fill a buffer without OpenGL; False if MuJoCo has to draw."""
        try:
            raster = self._find_raster() if self._rasters else None
            return raster is not None and raster.draw(buffer)
        except Exception as error:  # whatever it is, MuJoCo can draw
            self._give_up(str(error) or type(error).__name__)
            return False

    def _put_ours(self, buffer: np.ndarray) -> bool:
        """Put our picture in the place of MuJoCo's, if there is one and the two look the same."""
        ours = np.empty_like(buffer)
        if not self._rasterise(ours):
            return False
        share = float((abs(ours.astype(int) - buffer).max(-1) > VISIBLE).mean())
        if share > (MOST_DIFFERENT if is_software(self.opengl) else MOST_DIFFERENT_DRIVER):
            self._give_up(f"{share:.1%} of a picture's pixels were not MuJoCo's")
            return False
        buffer[:] = ours
        return True

    def _give_up(self, why: str) -> None:
        """Leave everything to MuJoCo from here on, and say so."""
        self._rasters = False
        backend.warn_of_opengl(why)

    def foreground(self, size: int = 0, sky_alone: bool = False) -> np.ndarray:
        """Which pixels, `(size, size)` bool, show what the task is about, by MuJoCo's segmentation.

        All but the sky, planes (floors and walls), terrains, and boxes that stand in the world
        itself (a table); with `sky_alone`, all but the sky. At the own size when none is given.
        """
        size = size or self._size
        self._camera.fixedcamid = self._own_camera
        self._update_scene()
        for geom in self._scene.geoms[: self._scene.ngeom]:
            # Drawn as the number that follows: white, or next to black. So the average of several
            # samples of a pixel still says which of the two is most of it.
            geom.segid = 0 if not sky_alone and self._is_background(geom) else 0xFFFFFE
        buffer = np.empty((size, size, 3), np.uint8)
        assert self._gl is not None, "the renderer is closed"
        flags, kinds = self._scene.flags, self._mujoco.mjtRndFlag
        usual = flags.copy()
        flags[kinds.mjRND_SEGMENT] = flags[kinds.mjRND_IDCOLOR] = True
        flags[kinds.mjRND_SHADOW] = flags[kinds.mjRND_REFLECTION] = False
        try:
            self._gl.draw(self, buffer)
        finally:
            flags[:] = usual
        return buffer[::-1, :, 1] > 127

    def _is_background(self, geom: Any) -> bool:
        kinds, model = self._mujoco.mjtGeom, self._model
        if geom.objtype != self._mujoco.mjtObj.mjOBJ_GEOM:  # a site, a tendon, a skin
            return False
        kind, body = int(model.geom_type[geom.objid]), int(model.geom_bodyid[geom.objid])
        flat = (kinds.mjGEOM_PLANE.value, kinds.mjGEOM_HFIELD.value)
        return kind in flat or (kind == kinds.mjGEOM_BOX.value and body == 0)

    def _update_scene(self) -> None:
        shown = self._option, self._perturb, self._camera, self._mujoco.mjtCatBit.mjCAT_ALL
        self._mujoco.mjv_updateScene(self._model, self._data, *shown, self._scene)

    def render(self, size: int) -> None:
        """Draw the scene into the framebuffer of this renderer, which stays bound; do not wait."""
        mujoco = self._mujoco
        while self._to_send:
            mujoco.mjr_uploadTexture(self._model, self._context, self._to_send.pop())
        if size > self._context.offWidth:
            mujoco.mjr_resizeOffscreen(size, size, self._context)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._context)
        mujoco.mjr_render(mujoco.MjrRect(0, 0, size, size), self._scene, self._context)

    def read(self, buffer: np.ndarray) -> None:
        """Wait for what `render` drew, for its context."""
        rectangle = self._mujoco.MjrRect(0, 0, len(buffer), len(buffer))
        self._mujoco.mjr_readPixels(buffer, None, rectangle, self._context)

    def _find_raster(self) -> Raster | None:
        """What draws the picture without OpenGL; nothing where it has to be MuJoCo's."""
        flags, kinds = self._scene.flags, self._mujoco.mjtRndFlag
        usual = flags[kinds.mjRND_SHADOW] and flags[kinds.mjRND_REFLECTION]
        if flags[kinds.mjRND_SEGMENT] or not usual or not self._model.vis.quality.offsamples:
            return None
        if self._raster is None:
            self._to_copy.clear()  # it begins with all textures as they are
            self._raster = rasteriser()(self._model, self._scene, self._context, SHADOW_MAP)
        for texture, sides in self._to_copy.items():
            self._raster.refresh(texture, sorted(sides))
        self._to_copy.clear()
        return self._raster

    def upload_texture(self, texture: int, faces: Sequence[int] = range(6)) -> None:
        """Draw with `model.tex_data` of one texture as it is now, after it was changed.

        Of the sky's cube, `faces` are the sides that were changed.
        """
        self._to_send.add(texture)
        self._to_copy[texture].update(faces)

    def visible_sky_faces(self) -> list[int]:
        """List the sides of the sky's cube that the camera can see while it does not turn.

        All six for a camera that turns: one that is not fixed in the world and does not track.
        """
        mujoco, camera = self._mujoco, self._own_camera
        kind, kinds = int(self._model.cam_mode[camera]), mujoco.mjtCamLight
        tracks = kind in (kinds.mjCAMLIGHT_TRACK.value, kinds.mjCAMLIGHT_TRACKCOM.value)
        body = self._model.body_weldid[self._model.cam_bodyid[camera]]
        fixed = kind == kinds.mjCAMLIGHT_FIXED.value and body == 0
        if not (fixed or tracks):
            return list(range(6))
        reach = 1.1 * np.tan(np.radians(self._model.cam_fovy[camera]) / 2)  # and a little more
        across, up = np.meshgrid(*[np.linspace(-reach, reach, 65)] * 2)
        rays = np.stack([across, up, -np.ones_like(up)], axis=-1).reshape(-1, 3)
        x, y, z = self._data.cam_xmat[camera].reshape(3, 3) @ rays.T
        cube = np.stack([x, z, -y])  # OpenGL's cube has its second axis up
        axis = np.abs(cube).argmax(axis=0)
        negative = cube[axis, np.arange(cube.shape[1])] < 0
        return sorted({int(face) for face in 2 * axis + negative})

    def upload_height_fields(self) -> None:
        """Send every height field to the GPU after a task changed its terrain."""
        for field in range(self._model.nhfield):
            self._call(self._mujoco.mjr_uploadHField, self._model, self._context, field)

    def close(self) -> None:
        """Free the OpenGL context; calling it twice does no harm."""
        if self._gl is not None:
            self._call(self._context.free)
            self._call(self._gl.leave)
            self._gl = None

    def _upload_model(self) -> None:
        font = self._mujoco.mjtFontScale.mjFONTSCALE_50
        self._context = self._mujoco.MjrContext(self._model, font)
        self.opengl = backend.opengl_name()

    def _call(self, work: Callable[..., None], *arguments: Any) -> None:
        assert self._gl is not None, "the renderer is closed"
        self._gl.call(functools.partial(work, *arguments))

    def __del__(self) -> None:
        """Free what was not closed: MuJoCo would free it in whichever context is current."""
        if getattr(self, "_gl", None) is not None:
            self.close()


def gl_info() -> dict[str, Any]:
    """What draws here, and the mean time of one 84 px picture of the walker with full rendering.

    >>> gl_info().keys()
    dict_keys(['backend', 'vendor', 'renderer', 'is_software', 'ms_per_frame'])
    """
    physics = backend.import_suite().load("walker", "walk", task_kwargs={"random": 0}).physics
    renderer = Renderer(physics.model.ptr, physics.data.ptr, size=84)
    try:
        from OpenGL import GL

        keys, names = (GL.GL_VENDOR, GL.GL_RENDERER), list[bytes]()
        renderer._call(lambda: names.extend(map(GL.glGetString, keys)))
        vendor, name = (each.decode() for each in names)
        renderer.draw()  # the first picture compiles the driver's shaders
        pictures = 20
        start = time.perf_counter()
        for _ in range(pictures):
            renderer.draw()
        milliseconds = 1e3 * (time.perf_counter() - start) / pictures
    finally:
        renderer.close()
        physics.free()
    return {
        "backend": os.environ.get("MUJOCO_GL", "default"),
        "vendor": vendor,
        "renderer": name,
        "is_software": is_software(name),
        "ms_per_frame": round(milliseconds, 2),
    }


@contextlib.contextmanager
def _watch() -> Iterator[None]:
    """Report a driver that is stuck while the first picture is drawn."""
    if announce_first_picture():
        yield
        return
    hint = (
        f"warning: no first picture in {FIRST_PICTURE_SECONDS:.0f} s; the OpenGL driver is stuck. "
        "Stop this process and set MUJOCO_GL=osmesa to draw in software."
    )
    timer = threading.Timer(FIRST_PICTURE_SECONDS, note, [hint])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


_open_renderers: weakref.WeakSet[Renderer] = weakref.WeakSet()


def _close_at_exit(renderer: Renderer) -> None:
    """Close the renderer when Python ends, before MuJoCo's own exit hook ends EGL."""
    _open_renderers.add(renderer)
    atexit.unregister(_close_all)
    atexit.register(_close_all)  # again, so that it is registered after MuJoCo's hook


def _close_all() -> None:
    for renderer in list(_open_renderers):
        renderer.close()
