"""Every system call of a save, a log line, a video: killed there, or failing with each error."""

import copy
import errno
import functools
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from faults.profiles import TOY, config, left_behind, no_films
from faults.tally import Tally, each, expect
from whole_runs import digest

from svea.core import files
from svea.core.errors import SveaError
from svea.replay import Replay
from svea.replay.segments import counters
from svea.runs import checkpoint
from svea.runs.log import Log
from svea.training import train

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

    def __init__(self, folder: Path, capacity: int = 40) -> None:
        self.folder, self.decision, self.repeats = folder, 0, 0
        self.replay = Replay(capacity, 16, 1, episode_length=1000)
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


SCENARIOS = {"first": [4], "later": [11] * 5, "repeated": [4, 0]}
"""Decisions between saves: of a save that is the first, one for which an old generation and old
segments go, and one of the same decision once more."""


def about_to_save(scenario: str, folder: Path) -> Saver:
    """A saver before the last save of a scenario."""
    saver = Saver(folder)
    *earlier, last = SCENARIOS[scenario]
    for decisions in earlier:
        saver.go(decisions)
        saver.save()
    saver.go(last)
    return saver


def check_whole(saver: Saver, before: int | None) -> None:
    """The old or the new checkpoint loads, and it is all there."""
    saved = checkpoint.load(saver.folder)
    if saved is None:
        expect(before is None, "no checkpoint is left")
        return
    expect(saved.decision in (before, saver.decision), f"decision {saved.decision} was loaded")
    expect(bool((saved.agent["w"] == saved.decision).all()), "the weights are wrong")
    expect(saved.state["decision"] == saved.decision, "the state is wrong")
    replay = Replay(saver.replay.capacity, 16, 1, episode_length=1000)
    checkpoint.restore_replay(saver.folder, saved, replay)
    wanted = list(range(replay.first_transition + 1, saved.decision + 1))
    rewards = replay.gather(torch.arange(len(replay))).rewards.tolist()
    expect(rewards == wanted and len(wanted) > 0, "the replay is wrong")


def copied(saver: Saver, folder: Path) -> Saver:
    """The same saver about to save, in a copy of its folder."""
    twin = copy.copy(saver)
    twin.folder = folder
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(saver.folder, folder)
    return twin


def ready(folder: Path) -> dict[str, tuple[Saver, int | None, list[str]]]:
    """Of each scenario: a saver, the decision on disk, and the system calls of its save."""
    found: dict[str, tuple[Saver, int | None, list[str]]] = {}
    for scenario in SCENARIOS:
        saver = about_to_save(scenario, folder / scenario)
        saver.folder.mkdir(parents=True, exist_ok=True)
        before = checkpoint.load(saver.folder)
        calls = calls_of(copied(saver, folder / "counted").save)
        found[scenario] = (saver, before.decision if before else None, calls)
    return found


def calls_of(action: Callable[[], Any]) -> list[str]:
    """The system calls of an action."""
    with hooked(Hooked()) as hook:
        action()
    return hook.calls


def save_kills(cases: range, seed: int, folder: Path) -> Tally:
    """SIGKILL before every system call of a save, and in the middle of every write."""
    tally = Tally()
    plan = [
        (scenario, saver, before, number, half)
        for scenario, (saver, before, calls) in ready(folder / "ready").items()
        for number, name in enumerate(calls, 1)
        for half in ((False, True) if name == "write" else (False,))
    ]
    for scenario, template, before, number, half in chosen(plan, cases):
        saver = copied(template, folder / "saved")
        with tally.case(f"{scenario} save, call {number}{', half done' if half else ''}"):
            child = os.fork()
            if not child:
                save_and_die(saver, number, half)
            _, status = os.waitpid(child, 0)
            expect(os.WTERMSIG(status) == signal.SIGKILL, f"the child ended with {status}")
            check_whole(saver, before)
            save_again(saver)  # as the resumed run will
    return tally


def save_again(saver: Saver) -> None:
    """A later save works, and leaves nothing half-written."""
    saver.save()
    check_whole(saver, saver.decision)
    expect(not left_behind(saver.folder), f"left: {left_behind(saver.folder)}")


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
    tally = Tally(skipped=no_films())
    actions: dict[str, tuple[Callable[[Path, Hooked], None], int]] = {
        f"{scenario} save": (functools.partial(fail_save, saver, before), len(calls))
        for scenario, (saver, before, calls) in ready(folder / "ready").items()
    }
    calls = calls_of(lambda: write_log(folder / "counted"))
    actions["log line"] = fail_log_line, len(calls)
    if not tally.skipped:
        calls = calls_of(lambda: write_movie(folder / "counted.mp4"))
        actions["video"] = fail_video, len(calls)
    plan = [
        (name, fail, number, error)
        for name, (fail, calls) in actions.items()
        for number in range(1, calls + 1)
        for error in ERRORS
    ]
    for name, fail, number, error in chosen(plan, cases):
        (folder / "failed").mkdir(exist_ok=True)
        with tally.case(f"{name}, call {number}: {error}"):
            fail(folder / "failed", failing(number, error))
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


def fail_save(template: Saver, before: int | None, folder: Path, hook: Hooked) -> None:
    """A save meets an error; the old checkpoint is whole, and later saves work."""
    saver = copied(template, folder)
    expect_refusal(hook, saver.save, folder)
    check_whole(saver, before)
    expect(not left_behind(folder), f"left: {left_behind(folder)}")
    save_again(saver)


def write_log(path: Path) -> None:
    """Open a log, write two lines, close it."""
    log = Log(path)
    try:
        for decision in (1, 2):
            log.write("train", decision=decision, text="x" * 2 * SMALL_BLOCK)
    finally:
        log.close()


def fail_log_line(folder: Path, hook: Hooked) -> None:
    """A log meets an error: whole lines are left, and no half one."""
    path = folder / "metrics.jsonl"
    path.unlink(missing_ok=True)
    expect_refusal(hook, lambda: write_log(path), path)
    content = path.read_bytes() if path.exists() else b""
    expect(content == b"" or content.endswith(b"}\n"), "half a line was left")


def write_movie(path: Path) -> None:
    """A short video."""
    from svea.evaluation.film import write_video

    write_video(path, [np.full((32, 32, 3), 10 * k, np.uint8) for k in range(6)], 10)


def fail_video(folder: Path, hook: Hooked) -> None:
    """A video meets an error: the old one is left."""
    path = folder / "train.mp4"
    path.write_bytes(b"the old video")
    expect_refusal(hook, lambda: write_movie(path), path)
    expect(path.read_bytes() == b"the old video" or path.stat().st_size > 500, "it was damaged")
    expect(not left_behind(folder), f"left: {left_behind(folder)}")


@functools.cache
def wanted_and_calls(folder: Path) -> tuple[str, int]:
    """The digest of a run that meets no error, and the number of its system calls."""
    calls = calls_of(lambda: train(config(TOY, folder)))
    return digest(folder), len(calls)


@each()
def full_disks(case: int, random: np.random.Generator, run: Path, tally: Tally) -> None:
    """A whole run meets an error at a random system call; the next one continues it exactly."""
    wanted, calls = wanted_and_calls(run.parent / "whole")
    hook = failing(int(random.integers(1, calls + 1)), ERRORS[case % len(ERRORS)])
    expect_refusal(hook, lambda: train(config(TOY, run)), run)
    train(config(TOY, run))
    expect(digest(run) == wanted, "the resumed run differs from the uninterrupted one")
