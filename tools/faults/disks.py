"""Every system call of a save, a log line, a video: killed there, or failing with each error."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from faults.profiles import NO_FILMS, TOY, can_film, config, digest, left_behind
from faults.tally import Tally, expect

from svea.core import files
from svea.core.errors import SveaError
from svea.replay import Replay
from svea.replay.segments import counters
from svea.runs import checkpoint
from svea.runs.log import Log

CALLS = {
    *("open", "write", "fsync", "close", "replace", "mkdir", "unlink", "rmdir", "listdir"),
    *("lseek", "ftruncate"),
}
ERRORS = ("ENOSPC", "EIO", "EACCES", "EROFS", "EDQUOT", "EMFILE")
SMALL_BLOCK = 4096  # so that a small file takes several writes


class Hooked:
    """Module `os`, with something done at the n-th system call."""

    def __init__(self, at: int = 0, act: Callable[[str, tuple[Any, ...]], None] | None = None):
        self.at, self.act, self.calls = at, act, list[str]()

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in CALLS:
            return real

        def call(*arguments: Any, **settings: Any) -> Any:
            self.calls.append(name)
            if len(self.calls) == self.at and self.act is not None:
                self.act(name, arguments)
            return real(*arguments, **settings)

        return call


@contextmanager
def hooked(hook: Hooked) -> Iterator[Hooked]:
    """Let all storage of a run go through the hook."""
    block, files.os, files.BLOCK = files.BLOCK, hook, SMALL_BLOCK  # type: ignore[assignment]
    try:
        yield hook
    finally:
        files.os, files.BLOCK = os, block


class Saver:
    """A run that only stores and saves; all that it saves follows from its decision."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.decision, self.repeats = folder, 0, 0
        self.replay = Replay(40, 16, 1, episode_length=1000)
        self.replay.begin(0, self.frame())
        self.segments: list[dict[str, Any]] = []

    def frame(self) -> Any:
        """The decision's picture."""
        return np.full((3, 16, 16), self.decision, np.uint8)

    def go(self, decisions: int) -> None:
        """Store some decisions."""
        for _ in range(decisions):
            self.decision += 1
            action = np.array([self.decision], np.float32)
            self.replay.append(0, action, float(self.decision), False, self.frame())

    def save(self) -> None:
        """Write a checkpoint."""
        weights = {"w": torch.full((3000,), float(self.decision)), "r": torch.tensor(self.repeats)}
        state = {"replay": counters(self.replay), "decision": self.decision}
        self.segments = checkpoint.save(
            self.folder, self.decision, weights, state, self.replay, self.segments
        )
        self.repeats += 1


def first_save(folder: Path) -> Saver:
    """About to save for the first time."""
    saver = Saver(folder)
    saver.go(4)
    return saver


def later_save(folder: Path) -> Saver:
    """About to save for the fifth time: an old generation and old segments go."""
    saver = Saver(folder)
    for _ in range(4):
        saver.go(11)
        saver.save()
    saver.go(11)
    return saver


def repeated_save(folder: Path) -> Saver:
    """About to save the same decision once more."""
    saver = first_save(folder)
    saver.save()
    return saver


SCENARIOS = {"first": first_save, "later": later_save, "repeated": repeated_save}


def check_whole(saver: Saver, before: int | None) -> None:
    """The old or the new checkpoint loads, and it is all there."""
    saved = checkpoint.load(saver.folder)
    if saved is None:
        expect(before is None, "no checkpoint is left")
        return
    expect(saved.decision in (before, saver.decision), f"decision {saved.decision} was loaded")
    expect(bool((saved.agent["w"] == saved.decision).all()), "the weights are wrong")
    expect(saved.state["decision"] == saved.decision, "the state is wrong")
    replay = Replay(40, 16, 1, episode_length=1000)
    checkpoint.restore_replay(saver.folder, saved, replay)
    wanted = list(range(replay.first_transition + 1, saved.decision + 1))
    rewards = replay.gather(torch.arange(len(replay))).rewards.tolist()
    expect(rewards == wanted and len(wanted) > 0, "the replay is wrong")


class Template:
    """A saver about to save, which can be put back to that moment."""

    def __init__(self, scenario: str, folder: Path) -> None:
        self.folder, self.saver = folder / scenario, SCENARIOS[scenario](folder / scenario)
        self.segments, self.repeats = self.saver.segments, self.saver.repeats
        self.folder.mkdir(parents=True, exist_ok=True)
        saved = checkpoint.load(self.folder)
        self.decision = saved.decision if saved else None

    def copy(self, folder: Path) -> Saver:
        """The saver, about to save in a copy of its folder."""
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.folder, folder)
        self.saver.folder, self.saver.segments = folder, self.segments
        self.saver.repeats = self.repeats
        return self.saver


def templates(folder: Path) -> dict[str, Template]:
    """One of each scenario."""
    return {scenario: Template(scenario, folder / "templates") for scenario in SCENARIOS}


def points(ready: dict[str, Template], folder: Path) -> list[tuple[str, int, str]]:
    """Every system call of every kind of save: scenario, number, name."""
    found = []
    for scenario, template in ready.items():
        saver = template.copy(folder / "counted")
        with hooked(Hooked()) as hook:
            saver.save()
        found += [(scenario, number, name) for number, name in enumerate(hook.calls, 1)]
    return found


def save_kills(cases: range, seed: int, folder: Path) -> Tally:
    """SIGKILL before every system call of a save, and in the middle of every write."""
    tally, ready = Tally(), templates(folder)
    plan = [(*point, half) for point in points(ready, folder) for half in (False, True)]
    plan = [(*rest, name, half) for *rest, name, half in plan if name == "write" or not half]
    for scenario, number, name, half in chosen(plan, cases):
        saver, before = ready[scenario].copy(folder / "saved"), ready[scenario].decision
        with tally.case(f"{scenario} save, call {number} ({name}{', half done' if half else ''})"):
            child = os.fork()
            if not child:
                save_and_die(saver, number, half)
            _, status = os.waitpid(child, 0)
            expect(os.WTERMSIG(status) == signal.SIGKILL, f"the child ended with {status}")
            check_whole(saver, before)
            saver.save()  # as the resumed run will
            check_whole(saver, saver.decision)
            expect(not left_behind(saver.folder), f"left: {left_behind(saver.folder)}")
    return tally


def save_and_die(saver: Saver, number: int, half: bool) -> None:
    """In a child process: save, and be killed at a system call."""

    def die(name: str, arguments: tuple[Any, ...]) -> None:
        if half:
            os.write(arguments[0], arguments[1][: len(arguments[1]) // 2])
        os.kill(os.getpid(), signal.SIGKILL)

    with hooked(Hooked(number, die)):
        saver.save()
    os._exit(0)


def storage_errors(cases: range, seed: int, folder: Path) -> Tally:
    """Each of six errors at every system call of a save, of a log line and of a video."""
    tally, ready = Tally(), templates(folder)
    plan: list[tuple[Callable[..., None], str, int, str]] = [
        (partial(fail_save, ready[scenario]), f"{scenario} save", number, error)
        for scenario, number, _ in points(ready, folder)
        for error in ERRORS
    ]
    films = can_film()
    tally.skipped = "" if films else NO_FILMS
    for what, fail, calls in (
        ("log line", fail_log_line, count_log_line(folder)),
        ("video", fail_video, count_video(folder) if films else 0),
    ):
        plan += [(fail, what, number + 1, error) for number in range(calls) for error in ERRORS]
    for fail, what, number, error in chosen(plan, cases):
        with tally.case(f"{what}, call {number}: {error}"):
            fail(folder / "failed", number, error)
    return tally


def chosen(plan: list[Any], cases: range) -> list[Any]:
    """The cases of this process: a part has as many as it finds, here cut into 1,000 shares."""
    return [item for place, item in enumerate(plan) if place * 1000 // len(plan) in cases]


def failing(number: int, error: str) -> Hooked:
    """The n-th call fails."""

    def fail(name: str, arguments: tuple[Any, ...]) -> None:
        code = getattr(errno, error)
        raise OSError(code, os.strerror(code))

    return Hooked(number, fail)


def expect_refusal(hook: Hooked, action: Callable[[], Any], path: Path) -> None:
    """A failed call may go unnoticed where nothing is lost by it; else exit code 4 and the path."""
    try:
        with hooked(hook):
            action()
    except SveaError as error:
        expect(error.exit_code == 4, f"exit code {error.exit_code}")
        expect(str(path) in str(error), f"{path} is not named: {error}")


def fail_save(template: Template, folder: Path, number: int, error: str) -> None:
    """A save meets an error; the old checkpoint is whole, and later saves work."""
    saver = template.copy(folder)
    expect_refusal(failing(number, error), saver.save, folder)
    check_whole(saver, template.decision)
    expect(not left_behind(folder), f"left: {left_behind(folder)}")
    saver.save()
    check_whole(saver, saver.decision)


def count_log_line(folder: Path) -> int:
    """System calls of a log's life."""
    with hooked(Hooked()) as hook:
        write_log(folder / "counted.jsonl")
    return len(hook.calls)


def write_log(path: Path) -> None:
    """Open a log, write two lines, close it."""
    log = Log(path)
    try:
        for decision in (1, 2):
            log.write("train", decision=decision, text="x" * 2 * SMALL_BLOCK)
    finally:
        log.close()


def fail_log_line(folder: Path, number: int, error: str) -> None:
    """A log meets an error: whole lines are left, and no half one."""
    folder.mkdir(exist_ok=True)
    path = folder / "metrics.jsonl"
    path.unlink(missing_ok=True)
    expect_refusal(failing(number, error), lambda: write_log(path), path)
    content = path.read_bytes() if path.exists() else b""
    expect(content == b"" or content.endswith(b"}\n"), "half a line was left")


def count_video(folder: Path) -> int:
    """System calls of a video; 0 where this version writes videos elsewhere."""
    with hooked(Hooked()) as hook:
        write_movie(folder / "counted.mp4")
    return len(hook.calls)


def write_movie(path: Path) -> None:
    """A short video."""
    from svea.evaluation.film import write_video

    pictures = [np.full((32, 32, 3), 10 * k, np.uint8) for k in range(6)]
    write_video(path, pictures, 10)


def fail_video(folder: Path, number: int, error: str) -> None:
    """A video meets an error: the old one is left."""
    folder.mkdir(exist_ok=True)
    path = folder / "train.mp4"
    path.write_bytes(b"the old video")
    expect_refusal(failing(number, error), lambda: write_movie(path), path)
    expect(path.read_bytes() == b"the old video" or path.stat().st_size > 500, "it was damaged")
    expect(not left_behind(folder), f"left: {left_behind(folder)}")


def full_disks(cases: range, seed: int, folder: Path) -> Tally:
    """A whole run meets an error at a random system call; the next one continues it exactly."""
    from svea.training import train

    tally = Tally()
    with hooked(Hooked()) as hook:
        train(config(TOY, folder / "whole"))
    wanted, calls = digest(folder / "whole"), len(hook.calls)
    for case in cases:
        random = np.random.default_rng([seed, 4, case])
        number, error = int(random.integers(1, calls + 1)), ERRORS[case % len(ERRORS)]
        run = folder / f"failed-{case}"
        with tally.case(f"run, call {number} of {calls}: {error}"):
            expect_refusal(failing(number, error), lambda run=run: train(config(TOY, run)), run)
            train(config(TOY, run))
            expect(digest(run) == wanted, "the resumed run differs from the uninterrupted one")
        shutil.rmtree(run, ignore_errors=True)
    return tally
