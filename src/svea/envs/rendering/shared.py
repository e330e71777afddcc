"""Several environments of one process, whose pictures are drawn together.

A GPU that learns and draws has to switch between the two. Every picture that is drawn and waited
for by itself makes it do so, and costs the learner 0.3 ms on an H200, however many processes draw;
eight that are drawn in one OpenGL context and waited for once cost it 0.05 to 0.18 ms each.
`layers.py` draws them with an eighth of the calls.

So each environment runs in a thread of its own, up to where it needs its picture. The thread that
made the context draws: when all environments that are still running wait for a picture, it draws
all of them and hands them out. This cannot deadlock: an environment that has not asked is either
still running or finished, and finished ones are counted.
"""

from __future__ import annotations

import functools
import itertools
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import TypeVar, cast

import numpy as np

from svea.envs.rendering.backend import is_software
from svea.envs.rendering.gl import functions
from svea.envs.rendering.layers import Layers
from svea.envs.rendering.renderer import SHADOW_MAP, Context, Renderer
from svea.envs.rendering.scenes import SceneReader
from svea.envs.rendering.shaders import INTERPOLATIONS

Result = TypeVar("Result")

VISIBLE, MOST_DIFFERENT = 8, 0.005
"""Levels by which a pixel of layers may differ from MuJoCo's, and the share of a first batch's
pixels that may differ by more."""


@dataclass
class _Picture:
    """A picture that an environment waits for."""

    renderer: Renderer
    buffer: np.ndarray
    done: Future[None] = field(default_factory=Future)


@dataclass
class _Call:
    """Anything else that needs the OpenGL context."""

    work: Callable[[], None]
    done: Future[None] = field(default_factory=Future)


class SharedContext(Context):
    """One OpenGL context for the renderers of several environments, and the thread that draws."""

    def __init__(self, environments: int, *, layers: bool | None = None) -> None:
        """Make a thread for each of the environments; this one makes them and draws for them.

        Args:
            environments: How many.
            layers: Draw pictures as layers of one framebuffer where that is possible; by default if
                a GPU draws, as MuJoCo is faster in software.
        """
        self._thread = threading.get_ident()
        self._with_layers, self._layers = layers, cast("Layers | None", None)
        self._checked = False
        self._threads = ThreadPoolExecutor(environments, "environment")
        self._requests: SimpleQueue[_Picture | _Call | None] = SimpleQueue()
        self._sheet: _Sheet | None = None

    def run(self, tasks: Sequence[Callable[[], Result]]) -> list[Result]:
        """Run tasks at the same time and draw what they ask for; no task may raise."""
        running = [self._threads.submit(task) for task in tasks]
        for future in running:
            future.add_done_callback(lambda _: self._requests.put(None))
        at_work, asked = len(running), list[_Picture]()
        while at_work:
            request = self._requests.get()
            if isinstance(request, _Picture):
                asked.append(request)
            elif isinstance(request, _Call):
                self._answer([request], request.work)
            else:
                at_work -= 1
            if asked and len(asked) == at_work:
                self._answer(asked, functools.partial(self._draw_all, asked))
                asked = []
        return [future.result() for future in running]

    def call(self, work: Callable[[], None]) -> None:
        """Do something that needs the context, in its thread."""
        if threading.get_ident() == self._thread:
            return super().call(work)
        self._ask(_Call(work))

    def draw(self, renderer: Renderer, buffer: np.ndarray) -> None:
        """Fill a renderer's buffer with its picture, when the others want theirs."""
        if threading.get_ident() == self._thread:
            return super().draw(renderer, buffer)
        self._ask(_Picture(renderer, buffer))

    def leave(self) -> None:
        """Count a renderer out; with the last one goes what they drew on."""
        super().leave()
        if self._gl is None:
            self._sheet = self._layers = None

    def close(self) -> None:
        """End the threads, after all renderers have left."""
        self._threads.shutdown()

    def _ask(self, request: _Picture | _Call) -> None:
        """Have it done by the thread that draws; what goes wrong there is raised here."""
        self._requests.put(request)
        request.done.result()

    def _answer(self, requests: Sequence[_Picture | _Call], work: Callable[[], None]) -> None:
        """Do what was asked for, and tell those who wait, also of a failure."""
        try:
            self._gl.make_current()
            work()
        except Exception as error:
            for request in requests:
                request.done.set_exception(error)
        else:
            for request in requests:
                request.done.set_result(None)

    def _draw_all(self, pictures: Sequence[_Picture]) -> None:
        """Draw pictures one above the other on a sheet, and wait once."""
        if len(pictures) == 1:
            return super().draw(pictures[0].renderer, pictures[0].buffer)
        sides = [len(picture.buffer) for picture in pictures]
        bottoms = [0, *itertools.accumulate(sides)]
        whole = bottoms[-1], max(sides)
        self._sheet = self._sheet.at_least(*whole) if self._sheet else _Sheet(*whole)
        layers = self._draw_layers(pictures) if len(set(sides)) == 1 else None
        pixels = self._take_all(pictures, layers)
        for picture, side, bottom in zip(pictures, sides, bottoms, strict=False):
            picture.buffer[:] = pixels[bottom : bottom + side, :side]

    def _take_all(self, pictures: Sequence[_Picture], layers: Layers | None) -> np.ndarray:
        """The pixels of layers that have been drawn, or of pictures that MuJoCo draws now."""
        assert self._sheet is not None
        bottom = 0
        for number, picture in enumerate(pictures):
            side = len(picture.buffer)
            if layers:
                layers.select(number)
            else:
                picture.renderer.render(side)
            self._sheet.take(side, bottom)
            bottom += side
        return self._sheet.read(bottom)

    def _draw_layers(self, pictures: Sequence[_Picture]) -> Layers | None:
        """Draw pictures as layers; nothing where MuJoCo has to draw them."""
        if self._with_layers is None:
            self._with_layers = not is_software(_renderer_name())
        if not self._with_layers:
            return None
        side = len(pictures[0].buffer)
        try:
            readers = [reader for picture in pictures if (reader := picture.renderer.reader)]
            if len(readers) < len(pictures):
                return None
            if not (self._layers and self._layers.fits(len(pictures), side)):
                if self._layers:
                    self._layers.free()
                samples = _samples_of(pictures[0].renderer, side)
                self._layers = Layers(len(pictures), side, SHADOW_MAP, samples)
                self._checked = False
            if not self._layers.draw(readers):
                return None
            if not self._checked:
                self._check(pictures, self._layers, readers)
        except Exception as error:  # PyOpenGL has many, and drivers know more
            self._with_layers, self._layers = False, None
            why = (str(error) or type(error).__name__).splitlines()[0]
            print(
                f"warning: pictures are drawn one by one, which is slower: {why}", file=sys.stderr
            )
        return self._layers

    def _check(
        self, pictures: Sequence[_Picture], layers: Layers, readers: Sequence[SceneReader]
    ) -> None:
        """Hold a first batch against MuJoCo's pictures, in each way of interpolating.

        Drivers differ in that, and have bugs. Layers are left drawn in the first way that agrees.
        """
        side = layers.side  # the sheet may be wider
        mujocos = self._take_all(pictures, None)[:, :side].astype(int)
        shares = []
        for way in INTERPOLATIONS:
            layers.interpolate(way)
            layers.draw(readers)
            ours = self._take_all(pictures, layers)[:, :side]
            shares.append((abs(ours - mujocos).max(-1) > VISIBLE).mean())
            if shares[-1] <= MOST_DIFFERENT:
                self._checked = True
                return
        raise RuntimeError(f"{min(shares):.1%} of their pixels are not MuJoCo's")


def _renderer_name() -> str:
    """What draws, as OpenGL calls it."""
    from OpenGL import GL

    return GL.glGetString(GL.GL_RENDERER).decode()


def _samples_of(renderer: Renderer, side: int) -> int:
    """Samples of a pixel of MuJoCo's: drivers may take more than it asks for, as an H200's does."""
    from OpenGL import GL

    renderer.render(side)  # binds what it draws into
    return int(GL.glGetIntegerv(GL.GL_SAMPLES))


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

        gl, place = functions(), (0, bottom, side, bottom + side)
        gl.BindFramebuffer(GL.GL_DRAW_FRAMEBUFFER, self._framebuffer)
        gl.BlitFramebuffer(0, 0, side, side, *place, GL.GL_COLOR_BUFFER_BIT, GL.GL_NEAREST)

    def read(self, height: int) -> np.ndarray:
        """Wait for the pixels of what was taken, bottom row first."""
        from OpenGL import GL

        pixels = self._pixels[:height]
        GL.glBindFramebuffer(GL.GL_READ_FRAMEBUFFER, self._framebuffer)
        GL.glPixelStorei(GL.GL_PACK_ALIGNMENT, 1)
        GL.glReadPixels(0, 0, pixels.shape[1], height, GL.GL_RGB, GL.GL_UNSIGNED_BYTE, pixels)
        return pixels
