"""Several pictures drawn at once, as layers of one framebuffer.

MuJoCo draws a picture with some thousand calls of OpenGL, one shape after the other. On an H200
that takes 0.09 ms and costs a learner on the same GPU 0.15 to 0.18, hardly less with a fiftieth of
the triangles: it is the calls that take the time. Here the shapes of all pictures are instances of
a few meshes, so that a batch takes little more calls than a picture. The pictures are MuJoCo's but
for rounding: the same vertices, light, shadows and reflections, computed by a program of our own.

What it does not draw (meshes, terrains, things that one can see through, textures on anything but
planes, planes without end; see `batches.py`) is left to MuJoCo, for the whole batch.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence

import numpy as np

from svea.envs.rendering import shaders
from svea.envs.rendering.batches import Batch, Run, gather
from svea.envs.rendering.gl import functions
from svea.envs.rendering.scenes import SceneReader
from svea.envs.rendering.shapes import Mesh


class Layers:
    """Framebuffers for a number of pictures, and the program that draws into them."""

    def __init__(self, count: int, side: int, shadow_side: int, samples: int) -> None:
        """Make them in the context that is current.

        Args:
            count: How many pictures.
            side: Of a picture, in pixels.
            shadow_side: Of a map of shadows.
            samples: Of a pixel.
        """
        from OpenGL import GL

        self.count, self.side, self._shadow_side = count, side, shadow_side
        self._gl, self._constants = functions(), GL
        self._programs = dict[str, int]()
        self.interpolate(shaders.INTERPOLATIONS[0])
        self._meshes: dict[int, tuple[Mesh, int]] = {}
        self._mesh_buffers: list[int] = []
        self._colors, self._depths = (
            self._samples(kind, samples) for kind in ("GL_RGBA8", "GL_DEPTH32F_STENCIL8")
        )
        self._shadows = self._shadow_maps()
        self._whole = self._framebuffer(self._colors, self._depths)
        self._dark = self._framebuffer(None, self._shadows)
        self._single = [self._layer(number) for number in range(count)]
        self._shapes, self._lights = GL.glGenBuffers(2)

    def draw(self, readers: Sequence[SceneReader]) -> bool:
        """Draw pictures into the first layers; False if MuJoCo has to do it."""
        batch = gather(readers)
        if batch is None:
            return False
        try:
            self._begin(batch)
            self._draw_shadow_maps(batch)
            self._draw_pictures(batch)
        finally:
            self._end()  # also after a failure: MuJoCo draws next
        return True

    def fits(self, count: int, side: int) -> bool:
        """Whether there is room for pictures of this side."""
        return count <= self.count and side == self.side

    def free(self) -> None:
        """Free the framebuffers and the program, in the context that they were made in."""
        GL = self._constants
        framebuffers = [self._whole, self._dark, *self._single]
        GL.glDeleteFramebuffers(len(framebuffers), framebuffers)
        GL.glDeleteTextures([self._colors, self._depths, self._shadows])
        buffers = [self._shapes, self._lights, *self._mesh_buffers]
        GL.glDeleteBuffers(len(buffers), buffers)
        GL.glDeleteVertexArrays(len(self._meshes), [array for _, array in self._meshes.values()])
        for program in self._programs.values():
            GL.glDeleteProgram(program)

    def interpolate(self, way: str) -> None:
        """Choose where light is taken from in a pixel: one of `shaders.INTERPOLATIONS`."""
        if way not in self._programs:
            self._programs[way] = _program(way)
        self._program = self._programs[way]

    def select(self, number: int) -> None:
        """Make a layer the one that is read."""
        self._gl.BindFramebuffer(self._constants.GL_READ_FRAMEBUFFER, self._single[number])

    # Passes, in MuJoCo's order; shadow maps come first because they are in a framebuffer apart ----

    def _begin(self, batch: Batch) -> None:
        """Send a batch, and set what is the same for all passes."""
        gl, GL = self._gl, self._constants
        for binding, buffer, data in (
            (0, self._shapes, batch.shapes),
            (1, self._lights, batch.lights),
        ):
            gl.BindBufferBase(GL.GL_SHADER_STORAGE_BUFFER, binding, int(buffer))
            data = np.ascontiguousarray(data, np.float32)
            pointer = data.ctypes.data_as(ctypes.c_void_p)
            gl.BufferData(GL.GL_SHADER_STORAGE_BUFFER, data.nbytes, pointer, GL.GL_STREAM_DRAW)
        gl.UseProgram(self._program)
        gl.ClipControl(GL.GL_LOWER_LEFT, GL.GL_ZERO_TO_ONE)
        gl.Enable(GL.GL_MULTISAMPLE)
        gl.Enable(GL.GL_DEPTH_TEST)
        gl.Disable(GL.GL_BLEND)
        gl.DepthFunc(GL.GL_GEQUAL)
        gl.DepthMask(1)
        gl.ColorMask(1, 1, 1, 1)
        gl.ClearColor(0, 0, 0, 0)
        gl.ClearDepth(0)
        gl.ClearStencil(0)
        gl.FrontFace(GL.GL_CCW)
        gl.CullFace(GL.GL_BACK)
        gl.BlendFunc(GL.GL_ONE, GL.GL_ONE)
        gl.ActiveTexture(GL.GL_TEXTURE1)
        gl.BindTexture(GL.GL_TEXTURE_2D_ARRAY, self._shadows)
        gl.ActiveTexture(GL.GL_TEXTURE0)

    def _draw_shadow_maps(self, batch: Batch) -> None:
        """Draw what each picture's light sees."""
        gl, GL = self._gl, self._constants
        gl.BindFramebuffer(GL.GL_FRAMEBUFFER, self._dark)
        gl.Viewport(1, 1, self._shadow_side - 2, self._shadow_side - 2)  # no shadows from the edge
        gl.Clear(GL.GL_DEPTH_BUFFER_BIT)
        gl.Disable(GL.GL_CULL_FACE)
        gl.Enable(GL.GL_POLYGON_OFFSET_FILL)
        gl.PolygonOffset(-1.5, -4.0)
        self._pass(shaders.SHADOWS, batch.plain_runs())
        gl.Disable(GL.GL_POLYGON_OFFSET_FILL)

    def _draw_pictures(self, batch: Batch) -> None:
        """Draw what the cameras see."""
        gl, GL = self._gl, self._constants
        gl.BindFramebuffer(GL.GL_FRAMEBUFFER, self._whole)
        gl.Viewport(0, 0, self.side, self.side)
        gl.Clear(GL.GL_COLOR_BUFFER_BIT | GL.GL_DEPTH_BUFFER_BIT | GL.GL_STENCIL_BUFFER_BIT)
        gl.Enable(GL.GL_CULL_FACE)
        if batch.mirrors:
            self._draw_reflections(batch)
        self._draw_light(batch)
        self._draw_skies(batch)

    def _draw_reflections(self, batch: Batch) -> None:
        """Draw the mirrored world where the mirror is."""
        gl, GL = self._gl, self._constants
        gl.Disable(GL.GL_DEPTH_TEST)
        gl.ColorMask(0, 0, 0, 0)
        gl.Enable(GL.GL_STENCIL_TEST)
        gl.StencilFunc(GL.GL_ALWAYS, 1, 0xFF)
        gl.StencilOp(GL.GL_REPLACE, GL.GL_REPLACE, GL.GL_REPLACE)
        self._pass(shaders.OUTLINE, (run for run in batch.plain_runs() if run.mirrors))
        gl.Enable(GL.GL_DEPTH_TEST)
        gl.ColorMask(1, 1, 1, 1)
        gl.StencilFunc(GL.GL_EQUAL, 1, 0xFF)
        gl.StencilOp(GL.GL_KEEP, GL.GL_KEEP, GL.GL_KEEP)
        gl.Enable(GL.GL_CLIP_DISTANCE0)
        gl.FrontFace(GL.GL_CW)
        self._pass(shaders.MIRRORED, (run for run in batch.runs if not run.mirrors))
        gl.FrontFace(GL.GL_CCW)
        gl.Disable(GL.GL_CLIP_DISTANCE0)
        gl.Disable(GL.GL_STENCIL_TEST)

    def _draw_light(self, batch: Batch) -> None:
        """Draw the world, mirrors over what they reflect."""
        GL = self._constants
        self._gl.Enable(GL.GL_BLEND)
        self._pass(shaders.LIT, (run for run in batch.runs if run.mirrors))
        self._gl.Disable(GL.GL_BLEND)
        self._pass(shaders.LIT, (run for run in batch.runs if not run.mirrors))

    def _draw_skies(self, batch: Batch) -> None:
        """Draw the skies behind everything."""
        gl, GL = self._gl, self._constants
        gl.CullFace(GL.GL_FRONT)
        gl.ActiveTexture(GL.GL_TEXTURE2)
        gl.Uniform1i(0, shaders.SKY)
        for run in batch.skies:
            gl.BindTexture(GL.GL_TEXTURE_CUBE_MAP, run.texture)
            self._draw(run)
        gl.CullFace(GL.GL_BACK)

    def _pass(self, number: int, runs: Iterable[Run]) -> None:
        """Draw runs in a pass."""
        gl, GL, textured = self._gl, self._constants, -1
        gl.Uniform1i(0, number)
        for run in runs:
            if (run.texture > 0) != textured:
                textured = run.texture > 0
                gl.Uniform1i(2, textured)
            if textured:
                gl.BindTexture(GL.GL_TEXTURE_2D, run.texture)
            self._draw(run)

    def _draw(self, run: Run) -> None:
        """Draw one run with the settings that are."""
        GL = self._constants
        self._gl.Uniform1i(1, run.first)
        self._gl.BindVertexArray(self._uploaded(run.mesh))
        corners = len(run.mesh.quads)
        self._gl.DrawElementsInstanced(GL.GL_QUADS, corners, GL.GL_UNSIGNED_INT, None, run.count)

    def _end(self) -> None:
        """Leave things as MuJoCo expects them."""
        gl, GL = self._gl, self._constants
        for what in (GL.GL_POLYGON_OFFSET_FILL, GL.GL_STENCIL_TEST, GL.GL_CLIP_DISTANCE0):
            gl.Disable(what)
        gl.ColorMask(1, 1, 1, 1)
        gl.BindVertexArray(0)
        gl.UseProgram(0)
        gl.BindBuffer(GL.GL_SHADER_STORAGE_BUFFER, 0)
        gl.ActiveTexture(GL.GL_TEXTURE0)

    # Objects of OpenGL ----------------------------------------------------------------------------

    def _uploaded(self, mesh: Mesh) -> int:
        """The vertex array of a mesh, which is sent when it is first drawn."""
        if id(mesh) in self._meshes:
            return self._meshes[id(mesh)][1]
        GL = self._constants
        array, (vertices, quads) = int(GL.glGenVertexArrays(1)), GL.glGenBuffers(2)
        GL.glBindVertexArray(array)
        GL.glBindBuffer(GL.GL_ARRAY_BUFFER, vertices)
        GL.glBufferData(GL.GL_ARRAY_BUFFER, mesh.vertices.nbytes, mesh.vertices, GL.GL_STATIC_DRAW)
        for place, (length, start) in enumerate([(3, 0), (3, 12), (1, 24)]):
            GL.glEnableVertexAttribArray(place)
            offset = ctypes.c_void_p(start)
            GL.glVertexAttribPointer(place, length, GL.GL_FLOAT, False, 28, offset)
        GL.glBindBuffer(GL.GL_ELEMENT_ARRAY_BUFFER, quads)
        GL.glBufferData(
            GL.GL_ELEMENT_ARRAY_BUFFER, mesh.quads.nbytes, mesh.quads, GL.GL_STATIC_DRAW
        )
        GL.glBindBuffer(GL.GL_ARRAY_BUFFER, 0)
        self._meshes[id(mesh)] = mesh, array
        self._mesh_buffers += [vertices, quads]
        return array

    def _samples(self, kind: str, samples: int) -> int:
        """A texture of several samples, with a layer for each picture."""
        GL = self._constants
        target, made = GL.GL_TEXTURE_2D_MULTISAMPLE_ARRAY, int(GL.glGenTextures(1))
        GL.glBindTexture(target, made)
        form = getattr(GL, kind)
        GL.glTexImage3DMultisample(target, samples, form, self.side, self.side, self.count, True)
        GL.glBindTexture(target, 0)
        return made

    def _shadow_maps(self) -> int:
        """A texture of depths to compare with, with a layer for each picture."""
        GL = self._constants
        target, made = GL.GL_TEXTURE_2D_ARRAY, int(GL.glGenTextures(1))
        GL.glBindTexture(target, made)
        size = self._shadow_side, self._shadow_side, self.count
        GL.glTexStorage3D(target, 1, GL.GL_DEPTH24_STENCIL8, *size)
        for setting, value in (
            (GL.GL_TEXTURE_MIN_FILTER, GL.GL_NEAREST),
            (GL.GL_TEXTURE_MAG_FILTER, GL.GL_NEAREST),
            (GL.GL_TEXTURE_WRAP_S, GL.GL_CLAMP_TO_EDGE),
            (GL.GL_TEXTURE_WRAP_T, GL.GL_CLAMP_TO_EDGE),
            (GL.GL_TEXTURE_COMPARE_MODE, GL.GL_COMPARE_REF_TO_TEXTURE),
            (GL.GL_TEXTURE_COMPARE_FUNC, GL.GL_GEQUAL),
        ):
            GL.glTexParameteri(target, setting, value)
        GL.glBindTexture(target, 0)
        return made

    def _framebuffer(self, colors: int | None, depth: int) -> int:
        """A framebuffer of all layers."""
        GL = self._constants
        made = int(GL.glGenFramebuffers(1))
        GL.glBindFramebuffer(GL.GL_FRAMEBUFFER, made)
        if colors is None:
            GL.glFramebufferTexture(GL.GL_FRAMEBUFFER, GL.GL_DEPTH_ATTACHMENT, depth, 0)
            GL.glDrawBuffer(GL.GL_NONE)
            GL.glReadBuffer(GL.GL_NONE)
        else:
            GL.glFramebufferTexture(GL.GL_FRAMEBUFFER, GL.GL_COLOR_ATTACHMENT0, colors, 0)
            GL.glFramebufferTexture(GL.GL_FRAMEBUFFER, GL.GL_DEPTH_STENCIL_ATTACHMENT, depth, 0)
        self._check()
        return made

    def _layer(self, number: int) -> int:
        """A framebuffer of one layer's colours, to read from."""
        GL = self._constants
        made = int(GL.glGenFramebuffers(1))
        GL.glBindFramebuffer(GL.GL_FRAMEBUFFER, made)
        place = GL.GL_FRAMEBUFFER, GL.GL_COLOR_ATTACHMENT0
        GL.glFramebufferTextureLayer(*place, self._colors, 0, number)
        self._check()
        return made

    def _check(self) -> None:
        """Raise if the framebuffer that is bound cannot be drawn into."""
        GL = self._constants
        status = GL.glCheckFramebufferStatus(GL.GL_FRAMEBUFFER)
        if status != GL.GL_FRAMEBUFFER_COMPLETE:
            raise RuntimeError(f"framebuffer of layers is incomplete: {status}")


def _program(interpolation: str) -> int:
    """The program, compiled in the context that is current."""
    from OpenGL import GL

    made = GL.glCreateProgram()
    for kind, source in (
        (GL.GL_VERTEX_SHADER, shaders.VERTEX),
        (GL.GL_FRAGMENT_SHADER, shaders.fragment(interpolation)),
    ):
        shader = GL.glCreateShader(kind)
        GL.glShaderSource(shader, source.strip())
        GL.glCompileShader(shader)
        if not GL.glGetShaderiv(shader, GL.GL_COMPILE_STATUS):
            raise RuntimeError(GL.glGetShaderInfoLog(shader).decode())
        GL.glAttachShader(made, shader)
        GL.glDeleteShader(shader)  # when the program is
    GL.glLinkProgram(made)
    if not GL.glGetProgramiv(made, GL.GL_LINK_STATUS):
        raise RuntimeError(GL.glGetProgramInfoLog(made).decode())
    return int(made)
