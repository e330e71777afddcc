"""Where pictures are drawn: an OpenGL context of each renderer's own, or one that several share.

A GPU that learns and draws has to switch between the two. Every picture that is drawn and waited
for by itself makes it do so, and costs the learner 0.3 ms on an H200, however many processes draw;
eight that are drawn in one OpenGL context and waited for once cost it 0.05 to 0.18 ms each.

So each environment of a process runs in a thread of its own, up to where it needs its picture. What
the rasteriser (`svea.raster`) can draw, that thread draws itself, without OpenGL: 1.0 to 1.7 ms of
a core, and none of the GPU's. What is left to MuJoCo, the thread that made the context draws: when
all environments that are still running wait for a picture, it draws all of them and hands them out.
This cannot deadlock: an environment that has not asked is either still running or finished, and
finished ones are counted.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from svea.envs.rendering.backend import make_gl_context, undisturbed

if TYPE_CHECKING:
    from svea.envs.rendering.renderer import Renderer

Result = TypeVar("Result")


class Context:
    """An OpenGL context, which works in the thread that asks and is freed by its last renderer."""

    _gl: Any = None
    _renderers = 0

    def enter(self, size: int) -> None:
        """Make room for a renderer of pictures of this side."""
        self._gl = self._gl or make_gl_context(size)
        self._renderers += 1

    def call(self, work: Callable[[], None]) -> None:
        """Do something that needs the context."""
        with undisturbed(self._gl):
            work()

    def draw(self, renderer: Renderer, buffer: np.ndarray) -> None:
        """Fill a renderer's buffer with its picture."""
        with undisturbed(self._gl):
            renderer.render(len(buffer))
            renderer.read(buffer)

    def leave(self) -> None:
        """Count a renderer out that has freed what it had here; the last one frees the context."""
        self._renderers -= 1
        if not self._renderers:
            self._gl.free()
            self._gl = None


@dataclass
class _Request:
    """A picture that an environment waits for, or other work that needs the OpenGL context."""

    picture: tuple[Renderer, np.ndarray] | None = None
    work: Callable[[], None] | None = None
    done: Future[None] = field(default_factory=Future)


class SharedContext(Context):
    """One OpenGL context for the renderers of several environments, and the thread that draws."""

    def __init__(self, environments: int) -> None:
        """Make a thread for each of so many environments; this one makes and draws for them."""
        self._thread = threading.get_ident()
        self._threads = ThreadPoolExecutor(environments, "environment")
        self._requests: SimpleQueue[_Request | None] = SimpleQueue()
        self._sheet: _Sheet | None = None

    def run(self, tasks: Sequence[Callable[[], Result]]) -> list[Result]:
        """Run tasks at the same time and draw what they ask for; no task may raise."""
        running = [self._threads.submit(task) for task in tasks]
        for future in running:
            future.add_done_callback(lambda _: self._requests.put(None))
        at_work, asked = len(running), list[_Request]()
        while at_work:
            request = self._requests.get()
            if request is None:
                at_work -= 1
            elif request.work:
                self._answer([request], request.work)
            else:
                asked.append(request)
            if asked and len(asked) == at_work:
                pictures = [each.picture for each in asked if each.picture]
                self._answer(asked, functools.partial(self._draw_all, pictures))
                asked = []
        return [future.result() for future in running]

    def call(self, work: Callable[[], None]) -> None:
        """Do something that needs the context, in its thread."""
        if threading.get_ident() == self._thread:
            return super().call(work)
        self._ask(_Request(work=work))

    def draw(self, renderer: Renderer, buffer: np.ndarray) -> None:
        """Fill a renderer's buffer with its picture, when the others want theirs."""
        if threading.get_ident() == self._thread:
            return super().draw(renderer, buffer)
        self._ask(_Request((renderer, buffer)))

    def leave(self) -> None:
        """Count a renderer out; with the last one goes what they drew on."""
        super().leave()
        if self._gl is None:
            self._sheet = None

    def close(self) -> None:
        """End the threads, after all renderers have left."""
        self._threads.shutdown()

    def _ask(self, request: _Request) -> None:
        """Have it done by the thread that draws; what goes wrong there is raised here."""
        self._requests.put(request)
        request.done.result()

    def _answer(self, requests: Sequence[_Request], work: Callable[[], None]) -> None:
        """Do what was asked for, and tell those who wait, also of a failure."""
        try:
            with undisturbed(self._gl):
                work()
        except Exception as error:
            for request in requests:
                request.done.set_exception(error)
        else:
            for request in requests:
                request.done.set_result(None)

    def _draw_all(self, pictures: Sequence[tuple[Renderer, np.ndarray]]) -> None:
        """Draw pictures one above the other on a sheet, and wait once."""
        if len(pictures) == 1:
            return super().draw(*pictures[0])
        sides = [len(buffer) for _, buffer in pictures]
        bottoms = [0, *itertools.accumulate(sides)]
        whole = bottoms[-1], max(sides)
        self._sheet = self._sheet.at_least(*whole) if self._sheet else _Sheet(*whole)
        for (renderer, _), side, bottom in zip(pictures, sides, bottoms, strict=False):
            renderer.render(side)
            self._sheet.take(side, bottom)
        pixels = self._sheet.read(bottoms[-1])
        for (_, buffer), side, bottom in zip(pictures, sides, bottoms, strict=False):
            buffer[:] = pixels[bottom : bottom + side, :side]


class _Sheet:
    """A framebuffer where pictures are gathered, and memory to read it into."""

    def __init__(self, height: int, width: int) -> None:
        from OpenGL import GL

        self._pixels = np.empty((height, width, 3), np.uint8)
        self._framebuffer, self._colors = int(GL.glGenFramebuffers(1)), GL.glGenRenderbuffers(1)
        GL.glBindRenderbuffer(GL.GL_RENDERBUFFER, self._colors)
        GL.glRenderbufferStorage(GL.GL_RENDERBUFFER, GL.GL_RGBA8, width, height)
        GL.glBindFramebuffer(GL.GL_FRAMEBUFFER, self._framebuffer)
        GL.glFramebufferRenderbuffer(
            GL.GL_FRAMEBUFFER, GL.GL_COLOR_ATTACHMENT0, GL.GL_RENDERBUFFER, self._colors
        )

    def at_least(self, height: int, width: int) -> _Sheet:
        """This sheet, or a larger one in its place."""
        from OpenGL import GL

        own_height, own_width, _ = self._pixels.shape
        if height <= own_height and width <= own_width:
            return self
        GL.glDeleteFramebuffers(1, [self._framebuffer])
        GL.glDeleteRenderbuffers(1, [self._colors])
        return _Sheet(max(height, own_height), max(width, own_width))

    def take(self, side: int, bottom: int) -> None:
        """Copy the picture from the framebuffer that is bound; this averages a pixel's samples."""
        from OpenGL import GL

        place = (0, bottom, side, bottom + side)
        GL.glBindFramebuffer(GL.GL_DRAW_FRAMEBUFFER, self._framebuffer)
        GL.glBlitFramebuffer(0, 0, side, side, *place, GL.GL_COLOR_BUFFER_BIT, GL.GL_NEAREST)

    def read(self, height: int) -> np.ndarray:
        """Wait for the pixels of what was taken, bottom row first."""
        from OpenGL import GL

        pixels = self._pixels[:height]
        GL.glBindFramebuffer(GL.GL_READ_FRAMEBUFFER, self._framebuffer)
        GL.glPixelStorei(GL.GL_PACK_ALIGNMENT, 1)
        GL.glReadPixels(0, 0, pixels.shape[1], height, GL.GL_RGB, GL.GL_UNSIGNED_BYTE, pixels)
        return pixels
