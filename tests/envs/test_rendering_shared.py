"""Environments that draw together: the same pictures as alone, fewer waits, and no deadlock."""

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from svea.envs import make_env, rendering
from svea.envs.rendering.context import SharedContext
from svea.envs.rendering.renderer import configure_drawing

MIXED = (  # sizes, looks and tasks that upload textures or terrain, side by side
    {"task": "walker_walk", "mode": "light_position_hard", "image_size": 84},
    {"task": "cartpole_swingup", "mode": "color_hard", "image_size": 40},
    {"task": "walker_walk", "mode": "video_hard", "rendering": "fast"},
    {"task": "finger_spin", "mode": "distracting_cs", "image_size": 100},
    {"task": "quadruped_escape", "mode": "rotate_hard", "rendering": "fast"},
    {"task": "robot_push", "mode": "test:7", "image_size": 64},
)
DRAWN = {"renderer": "opengl", "render_mode": "rgb_array"}


def play(environment: Any, seed: int) -> list[np.ndarray]:
    """What is seen and earned in a few decisions and at the next episode's start."""
    random = np.random.default_rng(seed)
    seen = [environment.reset(seed=seed)[0]]
    for _ in range(2 + seed % 3):
        action = random.uniform(-1, 1, environment.action_space.shape).astype(np.float32)
        observation, reward, *_ = environment.step(action)
        seen += [observation, np.array(reward)]
    return [*seen, environment.reset(seed=seed + 100)[0], environment.render()]


@pytest.fixture
def shared() -> Iterator[SharedContext]:
    place = SharedContext(len(MIXED))
    configure_drawing(place)
    yield place
    configure_drawing()
    place.close()


def test_pictures_are_those_of_a_renderer_of_its_own(shared, monkeypatch):
    """Bit for bit, whatever the neighbours draw and upload, and however long they play.

    A GPU may round a pixel otherwise from one picture to the next.
    """
    most = 1e-3 if rendering.draws_on_gpu() else 0.0
    batches = count_batches(shared, monkeypatch)
    together = [make_env(**settings, **DRAWN) for settings in MIXED]
    got = shared.run([lambda e=e, s=s: play(e, s) for s, e in enumerate(together)])
    for environment in together:
        environment.close()
    configure_drawing()
    for seed, settings in enumerate(MIXED):
        alone = make_env(**settings, **DRAWN)
        for ours, its_own in zip(got[seed], play(alone, seed), strict=True):
            assert np.mean(ours != its_own) <= most, settings
        alone.close()
    configure_drawing()
    assert batches == [6, 6, 6, 6, 6, 4, 2], "all whose episodes are still open"


def count_batches(shared: SharedContext, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pictures are drawn at a time, from here on."""
    batches: list[int] = []
    real = shared._draw_all
    monkeypatch.setattr(shared, "_draw_all", lambda all: (batches.append(len(all)), real(all)))
    return batches


class Blank:
    """Stands for OpenGL and for a renderer: its picture is a number, and none can be too dark."""

    def __init__(self, level: int = 0) -> None:
        self.level, self.threads = level, set[int]()

    def make_current(self) -> None:
        self.threads.add(threading.get_ident())

    def free(self) -> None:
        """Nothing to do."""

    def render(self, size: int) -> None:
        if self.level < 0:
            raise RuntimeError("too dark")

    def read(self, buffer: np.ndarray) -> None:
        buffer[:] = self.level


@pytest.fixture
def blank(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[SharedContext, list[int]]]:
    """A context without OpenGL, and the sizes of its batches."""
    shared, batches = SharedContext(3), list[int]()
    shared._gl = Blank()

    def draw(pictures: Any) -> None:
        batches.append(len(pictures))
        for renderer, buffer in pictures:
            renderer.render(len(buffer))
            renderer.read(buffer)

    monkeypatch.setattr(shared, "_draw_all", draw)
    yield shared, batches
    shared.close()


def look(shared: SharedContext, level: int) -> int:
    """Draw one picture of this level, and say what it shows."""
    buffer = np.zeros((2, 2, 3), np.uint8)
    shared.draw(Blank(level), buffer)  # type: ignore[arg-type]
    return int(buffer.mean())


def test_who_is_finished_is_not_waited_for(blank: tuple[SharedContext, list[int]]) -> None:
    shared, batches = blank
    lengths = [5, 1, 3]
    tasks = [lambda n=n: [look(shared, 10 * n + k) for k in range(n)] for n in lengths]
    assert shared.run(tasks) == [[50, 51, 52, 53, 54], [10], [30, 31, 32]]
    assert batches == [3, 2, 2, 1, 1]
    assert shared.run([lambda: "no picture at all"]) == ["no picture at all"]
    assert batches == [3, 2, 2, 1, 1]
    assert shared._gl.threads == {threading.get_ident()}


def attempt(work: Any) -> Any:
    """What somebody does, or what they raise."""
    try:
        return work()
    except Exception as error:
        return type(error).__name__


def test_who_raises_is_not_waited_for(blank: tuple[SharedContext, list[int]]) -> None:
    shared, batches = blank
    tasks = [lambda: look(shared, 7), lambda: 1 // 0, lambda: look(shared, 9)]
    got = shared.run([lambda task=task: attempt(task) for task in tasks])
    assert got == [7, "ZeroDivisionError", 9]
    assert batches == [2]


def test_a_picture_that_fails_is_told_to_all_who_asked_and_the_next_one_succeeds(blank):
    shared, batches = blank

    def twice(level: int) -> list[Any]:
        return [attempt(lambda: look(shared, level)), look(shared, 3)]

    got = shared.run([lambda level=level: twice(level) for level in (1, -1, 2)])
    assert got == [["RuntimeError", 3]] * 3
    assert batches == [3, 3]


def test_other_work_is_done_at_once_by_the_thread_that_draws(blank):
    """One environment uploads, again and again, while the other waits for it to draw."""
    shared, batches = blank
    where: list[int] = []

    def upload() -> int:
        for _ in range(3):
            shared.call(lambda: where.append(threading.get_ident()))
        return look(shared, 5)

    def fail() -> None:
        shared.call(lambda: 1 // 0)  # type: ignore[arg-type, return-value]

    got = shared.run([upload, lambda: look(shared, 6), lambda: attempt(fail)])
    assert got == [5, 6, "ZeroDivisionError"]
    assert where == [threading.get_ident()] * 3 and batches == [2]
