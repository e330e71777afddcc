"""What a picture costs a GPU that learns: updates of several runs while other processes draw.

    python benchmarks/drawing.py                                  # every variant, some 2 minutes
    python benchmarks/drawing.py --variants full raster --processes 1 5 10 --at-once 8 16

Processes draw the paper's tasks in turn as workers do in training, each one's pictures at once in
one OpenGL context, at a rate that is that of a study's decisions. Updates are made without
environments, as by `benchmarks/updates.py --at-once`. They are timed before, next to and after each
variant; the difference for each picture is what it costs. Without a GPU the time of a picture is
all there is.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

SIZE = 84
TASKS = ("walker walk", "walker stand", "cartpole swingup", "ball_in_cup catch", "finger spin")
VARIANTS = ("full", "raster", "fast")
"""Drawn by the GPU as in training, by our own program on the CPU, and without the costly parts."""


def main() -> None:
    """Time updates next to every variant, or be one of the processes that draw."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--at-once", type=int, nargs="+", default=[8], help="pictures")
    parser.add_argument("--rate", type=float, default=900, help="pictures/s in all processes")
    parser.add_argument("--learners", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--draw", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.draw:
        variant, task, at_once, rate = options.draw
        return draw(variant, task, int(at_once), float(rate))
    from svea.bench import machine

    print(machine())
    updates = Updates(options.learners, options.seconds) if torch.cuda.is_available() else None
    for variant in options.variants:
        for processes in options.processes:
            for at_once in options.at_once:
                with drawing(variant, processes, at_once, options.rate / processes) as pictures:
                    told = updates.next_to(pictures) if updates else alone(pictures, options)
                print(f"{variant:13} {processes:2} x {at_once:2}: {told}", flush=True)


class Updates:
    """Updates of several runs, which are timed again and again."""

    def __init__(self, count: int, seconds: float) -> None:
        """Make the learners."""
        from updates import WARM, learner, take_turns

        from svea import speed

        device = speed.choose_device("cuda")
        learners = [learner(device, seed=seed) for seed in range(count)]
        lanes = [speed.lane(device, number) for number in range(count)]
        self._turns = functools.partial(take_turns, learners, lanes, device=device)
        self._turns(rounds=WARM)
        self._count, self._seconds = count, seconds

    def next_to(self, pictures: Pictures) -> str:
        """What pictures cost them: alone, next to drawing, and alone again."""
        pictures.pause()
        before = self._milliseconds()
        pictures.go()
        began, drawn = time.perf_counter(), pictures.count()
        with_drawing = self._milliseconds()
        rate = (pictures.count() - drawn) / (time.perf_counter() - began)
        pictures.pause()
        usual = statistics.mean([before, self._milliseconds()])
        each = (with_drawing - usual) / (rate * with_drawing / 1e3)
        return (
            f"{1e3 / usual:6.0f} updates/s alone, {1e3 / with_drawing:6.0f} next to {rate:5.0f} "
            f"pictures/s: {each:.3f} ms a picture"
        )

    def _milliseconds(self) -> float:
        """How long an update takes, over some seconds."""
        rounds, began, made = 40, time.perf_counter(), list[float]()
        while time.perf_counter() - began < self._seconds:
            made.append(1e3 * self._turns(rounds=rounds) / rounds / self._count)
        return statistics.median(made)


def alone(pictures: Pictures, options: argparse.Namespace) -> str:
    """How fast they are drawn with nothing else to do."""
    pictures.go()
    time.sleep(options.seconds)
    drawn = pictures.count()
    time.sleep(options.seconds)
    return f"{(pictures.count() - drawn) / options.seconds:6.0f} pictures/s"


# Processes that draw ------------------------------------------------------------------------------


class Pictures:
    """Processes that draw, as their parent sees them."""

    def __init__(self, children: list[subprocess.Popen[str]]) -> None:
        self._children = children

    def go(self) -> None:
        """Let them draw."""
        self._ask("go")

    def pause(self) -> None:
        """Let them wait."""
        self._ask("pause")

    def count(self) -> int:
        """How many pictures they have drawn."""
        return sum(map(int, self._ask("count")))

    def _ask(self, what: str) -> list[str]:
        """Ask all, then read all answers."""
        for child in self._children:
            assert child.stdin is not None
            child.stdin.write(what + "\n")
            child.stdin.flush()
        return [child.stdout.readline() for child in self._children if child.stdout]


@contextmanager
def drawing(variant: str, processes: int, at_once: int, rate: float) -> Iterator[Pictures]:
    """Processes that have drawn their first pictures and wait."""
    command = [sys.executable, __file__, "--draw", variant]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with ExitStack() as stack:
        children = []
        for number in range(processes):
            what = [TASKS[number % len(TASKS)], str(at_once), str(rate)]
            children.append(stack.enter_context(subprocess.Popen([*command, *what], **pipes)))
            stack.callback(children[-1].kill)
        if any(child.stdout.readline() != "ready\n" for child in children):
            raise SystemExit(f"a process could not draw {variant}: see its message above")
        yield Pictures(children)


def draw(variant: str, task: str, at_once: int, rate: float) -> None:
    """Draw when told so, until the parent closes the line."""
    import queue
    import threading

    from svea.envs.rendering.context import SharedContext
    from svea.envs.rendering.renderer import configure_drawing

    configure_drawing(SharedContext(at_once), lambda: None)
    renderers = [renderer(variant, task) for _ in range(at_once)]
    context = renderers[0]._gl
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=lambda: [lines.put(line) for line in sys.stdin], daemon=True).start()
    print("ready", flush=True)
    drawn, at_work, due = 0, False, 0.0
    while True:
        while not (at_work and lines.empty()):
            asked = lines.get().strip()
            at_work, due = asked != "pause" and (at_work or asked == "go"), time.perf_counter()
            print(drawn, flush=True)
        context.run([each.draw for each in renderers])
        drawn, due = drawn + at_once, due + at_once / rate
        time.sleep(max(0.0, due - time.perf_counter()))


def renderer(variant: str, task: str) -> Any:
    """A renderer of a task."""
    from svea.envs.rendering import Renderer, import_suite

    physics = import_suite().load(*task.split(), task_kwargs={"random": 0}).physics
    made = Renderer(
        physics.model.ptr, physics.data.ptr, size=SIZE,
        rendering="fast" if variant == "fast" else "full",
        drawn_by="raster" if variant == "raster" else "opengl",
    )  # fmt: skip
    made.physics = physics  # it is what the renderer draws
    return made


if __name__ == "__main__":
    main()
